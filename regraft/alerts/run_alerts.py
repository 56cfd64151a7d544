"""Run the alert stage against Kafka until asked to stop. The only module of this stage that reads the clock.

Each step reads new records, judges them, chooses what to report, and stores all this with the positions in one
transaction. Only what is stored is sent.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import redis
import structlog

from regraft.alerts.alert_desk import AlertDesk, DeskBatch
from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.alert_metrics import AlertHealth, AlertMetrics
from regraft.alerts.alert_settings import AlertSettings
from regraft.alerts.alert_store import AlertStore
from regraft.alerts.answered_orders import AnswerChangedError
from regraft.alerts.deliver_messages import DeliveryLimits, MessageDelivery
from regraft.alerts.gather_windows import ROWS_WAIT_MS
from regraft.alerts.message_senders import MessageSender
from regraft.alerts.name_targets import name_target, name_webhook
from regraft.alerts.notify_targets import Silencer
from regraft.alerts.post_webhook import WebhookSender
from regraft.alerts.read_alert_inputs import RECORDS_PER_POLL_MAX, InputReader, Lookback, TrustedKeysChangedError
from regraft.alerts.read_rules import RuleBook, load_rules
from regraft.alerts.show_alerts import LiveAlerts, alerts_document
from regraft.infra.kafka.transaction_writer import WriterLostError
from regraft.infra.process.handle_each import is_logged
from regraft.infra.process.serve_metrics import serve_metrics
from regraft.infra.process.stack_error import StackError
from regraft.schemas.alert import Alert, DeliveryState
from regraft.schemas.status_file import StatusFile
from regraft.schemas.topics import ALERTS, topic_name

log = structlog.get_logger(__name__)

VIEW_TIMEOUT_S = 0.5
POSITIONS_MS = 5_000  # Positions are stored at least this often, even if no alert changes.
PROVE_S = 2.0  # Between questions to Kafka, each about one partition.
NOTIFY_MS = 1_000  # How often silenced alerts are checked if nothing else changes.
FORGET_MS = 60_000
WRITING_MS = 30_000  # How long after its end a window may be written so that the look-back still finds it.
CALM_WINDOWS = "calm_windows"
REPORTED = (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.UNCERTAIN)


class AlertSettingsError(StackError):
    """The settings cannot be used; the message lists every error."""


def run_alerts(settings: AlertSettings, stop: threading.Event) -> None:
    """Judge and notify until ``stop`` is set, then wait for a limited time for messages being sent.

    Raises AlertSettingsError and RulesError with all errors at once, MetricsPortError if the metrics port is in use,
    AlertStoreTakenError if another alert stage took over, and InputGoneError if a topic was deleted. Nothing is raised
    if Kafka, Valkey or a target is unavailable.
    """
    errors = settings.errors()
    if errors:
        raise AlertSettingsError("The alert settings cannot be used:\n- " + "\n- ".join(errors))
    rules = load_rules(settings.rules_file)
    metrics, health = AlertMetrics(), AlertHealth()
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        while not stop.is_set():
            try:
                _run_once(settings, rules, metrics, health, stop)
            except (WriterLostError, TrustedKeysChangedError, AnswerChangedError) as error:
                log.warning("alerts_start_over", reason=str(error))


def _run_once(
    settings: AlertSettings, rules: RuleBook, metrics: AlertMetrics, health: AlertHealth, stop: threading.Event
) -> None:
    """Start from what is stored and run until ``stop`` is set.

    Raises WriterLostError, TrustedKeysChangedError or AnswerChangedError if the stage must start over.
    """
    with ExitStack() as held:
        reader = InputReader(settings.kafka, settings.namespace, lookback_of(settings, rules), settings.orders)
        held.callback(reader.close)
        store = AlertStore(settings.kafka, settings.namespace)
        held.callback(store.close)
        engine = _begin(settings, rules, reader, store, health, stop)
        if engine is None:
            return
        delivery = MessageDelivery(_senders(settings), _limits(settings))
        held.callback(delivery.stop)
        loop = AlertLoop(settings, engine, reader, store, delivery, metrics, health)
        while not stop.is_set():
            began_s = time.perf_counter()
            follows_at_once = loop.step(settings.clock.now_ms())
            metrics.step_ms.observe((time.perf_counter() - began_s) * 1000)
            if not follows_at_once:
                stop.wait(settings.tick_ms / 1000)
        loop.wind_down()


def lookback_of(settings: AlertSettings, rules: RuleBook) -> Lookback:
    """Return how much to read again after a restart, so that the rules have the memory that they need."""
    windows_ms = settings.clock.wall_s((rules.windows_memory + 2) * settings.window_ms) * 1000 + WRITING_MS
    return Lookback(
        windows_ms=int(windows_ms),
        state_ms=int(windows_ms + settings.clock.wall_s(settings.window_ms) * 1000 + WRITING_MS),
        events_ms=int(settings.clock.wall_s(rules.span_s_memory * 1000) * 1000),
        resume_ms_max=settings.resume_ms_max,
    )


class AlertLoop:
    """The steps of one stage, none of which waits."""

    def __init__(
        self,
        settings: AlertSettings,
        engine: AlertEngine,
        reader: InputReader,
        store: AlertStore,
        delivery: MessageDelivery,
        metrics: AlertMetrics,
        health: AlertHealth,
    ) -> None:
        self._settings, self._engine, self._reader = settings, engine, reader
        self._store, self._delivery, self._metrics, self._health = store, delivery, metrics, health
        silencer = Silencer(engine.rules.by_name, settings.quiet_span, settings.quiet_below)
        topic = topic_name(ALERTS, settings.namespace)
        self._desk = AlertDesk(engine, silencer, settings.target_names, settings.namespace, topic)
        self._status = None if settings.status_file is None else StatusFile(settings.status_file)
        self._view = _view(settings)
        self._stored_ms = self._notified_ms = self._forgot_ms = self._shown_ms = 0
        self._is_resumed = self._has_stored = False
        self._windows_counted = self._ticks_failed = 0
        self._prove_at_s = 0.0
        self._is_stopping = False

    def step(self, now_ms: int) -> bool:
        """Read, judge, notify, store and send once; return True if more records can be read immediately."""
        self._health.pulse.beat()
        count = 0
        if self._desk.batch.is_empty and not self._store.is_committing:
            count = self._judge(now_ms)
        self._take_reports(now_ms)
        self._save(now_ms)
        self._prove()
        if now_ms - self._shown_ms >= self._settings.status_ms:
            self._show(now_ms)
        return count >= RECORDS_PER_POLL_MAX

    def _prove(self) -> None:
        """Show with the health whether Kafka answers and its records arrive, not only that nothing has failed."""
        health = self._health
        health.is_ready = self._is_ready
        if not self._reader.has_caught_up or time.monotonic() < self._prove_at_s:
            return
        self._prove_at_s = time.monotonic() + PROVE_S
        if self._reader.prove():
            health.asked.beat()
        stalled = ", ".join(sorted(self._reader.stalled))
        health.reading_error = f"records of {stalled} are not arriving, although Kafka has them" if stalled else ""

    @property
    def _is_ready(self) -> bool:
        """Return True if everything that existed at the start has been read and the positions are stored."""
        return self._reader.has_caught_up and self._has_stored

    def wind_down(self) -> None:
        """Stop sending, and store the state of deliveries and what was judged."""
        self._is_stopping = True
        self._delivery.stop()
        deadline_s = time.monotonic() + self._settings.stop_ms_max / 1000
        while time.monotonic() < deadline_s:
            is_over = self._delivery.wait(self._settings.tick_ms / 1000)
            now_ms = self._settings.clock.now_ms()
            self._take_reports(now_ms)
            self._stored_ms = 0
            if self._save(now_ms) and is_over:
                break
        self._show(self._settings.clock.now_ms())

    def _judge(self, now_ms: int) -> int:
        """Judge new records and, once those from before the start are read, the time; return the number of records."""
        changed: list[Alert] = []
        clock = self._settings.clock
        entries = self._reader.poll()
        for entry in entries:
            self._metrics.records.labels(type(entry.record).__name__).inc()
            written_ms = clock_ms_of(entry.written_ms, clock.origin_ms, clock.speed)
            try:
                changed += self._engine.take(entry.record, written_ms, now_ms, is_known=entry.is_known)
            except Exception as error:  # Whatever one record causes, the rules judge those behind it.
                self._reader.park(entry, error)
        if self._reader.has_caught_up and not self._is_resumed:
            changed += self._engine.drop_old_rules(now_ms)
            self._desk.resume(now_ms, resend_uncertain=self._settings.resend_uncertain)
            self._is_resumed = True
        changed += self._judge_time(now_ms)
        self._desk.note(changed)
        for alert in changed:
            self._metrics.changes.labels(alert.rule, str(alert.status)).inc()
        self._desk.batch.letters += self._reader.letters
        self._reader.letters.clear()
        if self._is_resumed and (changed or now_ms - self._notified_ms >= NOTIFY_MS):
            self._notified_ms = now_ms
            for message in self._desk.notify(now_ms):
                self._metrics.messages.labels(str(message.status)).inc()
        if self._is_resumed and now_ms - self._forgot_ms >= FORGET_MS:
            self._forgot_ms = now_ms
            self._desk.forget()
        return len(entries)

    def _judge_time(self, now_ms: int) -> list[Alert]:
        """Return what changes with time alone; a failure shows in the health, and the next step tries again.

        What records left behind may cause it, so that a restart would meet it again.
        """
        judge = self._engine.tick if self._reader.has_caught_up else self._engine.judge_windows
        try:
            changed = judge(now_ms)
        except Exception as error:
            self._ticks_failed += 1
            if is_logged(self._ticks_failed):
                log.exception("alerts_not_judged", count=self._ticks_failed)
            self._health.judging_error = f"rules cannot be judged ({type(error).__name__}: {error})"
            return []
        self._health.judging_error = ""
        return changed

    def _take_reports(self, now_ms: int) -> None:
        if self._store.is_committing:
            return
        for report in self._delivery.reports():
            if report.state is DeliveryState.SENDING and self._is_stopping:
                continue  # It is not granted any more, so it stays pending.
            if report.state in REPORTED:
                self._metrics.deliveries.labels(report.target, str(report.state)).inc()
            self._desk.report(report, now_ms)

    def _save(self, now_ms: int) -> bool:
        """Store the batch with the positions, then take its actions; return True if nothing is left to store."""
        if self._desk.batch.is_empty and not self._store.is_committing and now_ms - self._stored_ms < POSITIONS_MS:
            return True
        remembered = {CALM_WINDOWS: self._engine.calm_windows}
        positions = self._reader.positions(self._engine.gatherer.waiting_starts_ms, remembered)
        if not self._store.commit(self._desk.batch, positions, self._reader.group):
            return False
        self._stored_ms, self._has_stored = now_ms, True
        self._health.stored.beat()
        self._do(self._desk.stored())
        return True

    def _do(self, batch: DeskBatch) -> None:
        for grant in batch.grants:
            self._delivery.grant(grant.message, grant.target)
        for offer in batch.offers:
            self._delivery.offer(offer.message, offer.target)

    def _show(self, now_ms: int) -> None:
        self._shown_ms = now_ms
        engine = self._engine
        document = alerts_document(engine.book.alerts.values(), now_ms)
        errors = self._errors()
        self._show_metrics(errors, now_ms)
        if self._view is not None:
            self._view.publish(document, now_ms)
        if self._status is not None:
            self._status.write(
                {
                    **document,
                    "is_reading": self._is_ready,
                    "proved": self._health().proved,
                    "notes": self._health().notes,
                    "rules": len(engine.rules.rules),
                    "windows": engine.windows_judged,
                    "window_end_ms": engine.newest_end_ms,
                    "waiting_messages": self._delivery.waiting,
                    "errors": errors,
                }
            )

    def _errors(self) -> dict[str, int]:
        errors = {f"undecodable: {topic}": count for topic, count in self._reader.undecodable.items()}
        errors |= {f"no letter: {topic}": count for topic, count in self._reader.only_counted.items()}
        errors |= {f"parked: {topic}": count for topic, count in self._reader.parked.items()}
        errors |= {f"not raised: {rule}": count for rule, count in self._engine.not_raised.items()}
        errors |= {f"windows: {why}": count for why, count in self._engine.gatherer.dropped.items()}
        errors |= {
            "refused: orders": self._reader.orders_refused,
            "reading": self._reader.errors,
            "storing": self._store.failures,
            "unstorable: records": self._store.unstorable,
            "judging": self._ticks_failed,
        }
        errors |= {"live view": 0 if self._view is None else self._view.failures}
        return {what: count for what, count in errors.items() if count}

    def _show_metrics(self, errors: dict[str, int], now_ms: int) -> None:
        metrics, engine = self._metrics, self._engine
        for rule in engine.rules.rules:
            count = len(engine.book.subjects(rule.name))
            metrics.active.labels(rule.name, str(rule.severity)).set(count)
        metrics.silenced.set(sum(alert.is_silenced for alert in engine.book.raised))
        for target, count in self._delivery.waiting.items():
            metrics.waiting.labels(target).set(count)
        for what, count in errors.items():
            metrics.errors.labels(what).set(count)
        metrics.windows.inc(engine.windows_judged - self._windows_counted)
        self._windows_counted = engine.windows_judged
        if engine.newest_end_ms is not None:
            metrics.window_age_ms.set(now_ms - engine.newest_end_ms)


def _begin(
    settings: AlertSettings,
    rules: RuleBook,
    reader: InputReader,
    store: AlertStore,
    health: AlertHealth,
    stop: threading.Event,
) -> AlertEngine | None:
    """Wait for Kafka, then return the engine with what an earlier stage stored, or None if asked to stop before."""
    while not stop.is_set():
        health.pulse.beat()
        # The earlier writer is fenced off first, so that what is read from then on is final.
        stored = store.load() if store.begin() else None
        if stored is not None and reader.begin(time.time_ns() // 1_000_000):
            log.info("alerts_started", rules=len(rules.rules), alerts=len(stored), targets=list(settings.target_names))
            calm = reader.remembered.get(CALM_WINDOWS, 0)
            return AlertEngine(rules, settings.clock.now_ms(), stored, calm, ROWS_WAIT_MS * settings.clock.speed)
        stop.wait(settings.tick_ms / 1000)
    return None


def clock_ms_of(wall_ms: int, origin_ms: int, speed: float) -> int:
    """Return the time on the run's clock at a wall time, such as Kafka's timestamps."""
    return wall_ms if speed == 1.0 else origin_ms + int((wall_ms - origin_ms) * speed)


def _senders(settings: AlertSettings) -> dict[str, MessageSender]:
    senders: dict[str, MessageSender] = {
        name_webhook(url): WebhookSender(url, settings.timeout_s, settings.namespace) for url in settings.webhooks
    }
    if settings.targets:
        from regraft.alerts.send_apprise import AppriseSender  # Loading takes a third of a second.

        for url in settings.targets:
            senders[name_target(url)] = AppriseSender(url, settings.timeout_s, settings.namespace)
    return senders


def _limits(settings: AlertSettings) -> DeliveryLimits:
    return DeliveryLimits(settings.attempts_max, settings.backoff_s, settings.backoff_s_max, settings.queue_max)


def _view(settings: AlertSettings) -> LiveAlerts | None:
    access = settings.redis
    if access is None:
        return None
    time_outs = {"socket_timeout": VIEW_TIMEOUT_S, "socket_connect_timeout": VIEW_TIMEOUT_S}
    client = redis.Redis.from_url(access.url, **access.client_options(), **time_outs)
    return LiveAlerts(client, settings.namespace)
