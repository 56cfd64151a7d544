"""Run the controller against Kafka and Valkey until asked to stop: on standby, or leading.

The only place of this stage with a clock, besides :mod:`controller.ports.recover_plans`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from functools import partial

import redis
import structlog

from regraft.controller.control_ports import ControlPorts, DeposedError, ViewSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import check_plan_log
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.loop.control_loop import ControlLoop
from regraft.controller.planners.planner_registry import kind_errors, own_errors, planner_errors
from regraft.controller.ports.client_register import KafkaClientRegister
from regraft.controller.ports.leader_basis import LeaderBasis
from regraft.controller.ports.leadership import HeldTerm, Leadership
from regraft.controller.ports.measure_ports import ClockCheck, clock_text, measured
from regraft.controller.ports.order_topic import KafkaOrders
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import AnnouncementReader, LetterSender, ResultReader, TopicReader
from regraft.controller.ports.write_live_view import StatusView, ValkeyView
from regraft.controller.report.loop_metrics import LoopHealth, LoopMetrics
from regraft.controller.report.render_view import render_view
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.orders.order_keys import TrustedKeys
from regraft.infra.process.serve_metrics import serve_metrics
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.announcement import EXPIRY_MS
from regraft.schemas.order_book import OrderBook
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import (
    ANNOUNCEMENTS,
    AUDIT,
    CLIENTS,
    DEAD_LETTERS,
    EVENTS,
    ORDERS,
    RESULTS,
    STATE,
    WINDOWS,
    Topic,
    topic_name,
)

log = structlog.get_logger(__name__)

VIEW_TIMEOUT_S = 0.5  # A slower server is as good as unavailable: the loop must not wait for it.
SILENCE_S_MAX = 30.0  # A step that takes longer is unhealthy: no call in it waits for more than some seconds.

YIELD_PAUSE_S = 600.0  # A controller that is alone, or whose successors' clocks are no better, leads meanwhile.
DOUBT_S = 600.0  # One broker alone, or one agent's, deposes a leader at most this often.
MOVING_STEPS_PER_TICK = 10  # While a plan moves: at the default tick of 100 ms, a step every 10 ms.


class ControllerSettingsError(ValueError):
    """The settings cannot be used; the message lists every error."""


def run_controller(settings: ControllerSettings, stop: threading.Event) -> None:
    """Stand by until this controller leads, then run the control loop, until ``stop`` is set.

    A leader that is asked to stop continues until the transition under way is over, at most ``settings.stop_ms_max``;
    the next leader, which follows at once, finishes the rest. One that loses the lead returns to standby.

    Raises ControllerSettingsError with all errors at once, InventoryError if the inventory cannot be read,
    MetricsPortError if the metrics port is in use, UnreadableRecordError if a plan or an order cannot be read,
    PlanLogBehindError if plans have been lost, SessionRefusedError if Kafka does not allow the session, and
    LinkError, RingError or ValueError if the stored plans belong to another inventory. An unavailable Kafka or
    Valkey raises nothing.
    """
    _check(settings.errors() + planner_errors(settings) + own_errors(settings))
    inventory = load_inventory(settings.inventory_path)
    _check(kind_errors(settings, inventory.bootstrap.KIND))
    metrics, health = LoopMetrics(), LoopHealth(SILENCE_S_MAX)
    threading.Thread(target=_prepare, args=(kind_of(inventory, settings),), name="prepare", daemon=True).start()
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        agent_of = inventory.broker_topics(settings.namespace).agent_of
        keys, is_named = TrustedKeys(settings.orders.trusted_file), settings.orders.trusted_keys_file is not None
        basis_of = partial(LeaderBasis.of, inventory, keys, is_named=is_named)
        leadership = Leadership(
            settings.kafka, settings.namespace, settings.instance_name, settings.session_ms, agent_of, basis_of
        )
        held.callback(leadership.close)
        yielding, doubt = Rarely(YIELD_PAUSE_S), Rarely(DOUBT_S)
        while (held_term := _stand_by(leadership, settings, inventory, metrics, health, stop)) is not None:
            try:
                _lead(leadership, held_term, settings, inventory, metrics, health, yielding, doubt, stop)
            except DeposedError as error:
                log.warning("leadership_lost", term=held_term.term.term, reason=str(error))
                metrics.depositions.inc()


def _prepare(kind: AnyKind) -> None:
    """Make ready what saves time while the loop already runs: until then it decides the same, but slower."""
    if reason := kind.prepare():
        log.info("kind_not_prepared", kind=kind.inventory.bootstrap.KIND, reason=reason)


def _stand_by(
    leadership: Leadership,
    settings: ControllerSettings,
    inventory: Inventory,
    metrics: LoopMetrics,
    health: LoopHealth,
    stop: threading.Event,
) -> HeldTerm | None:
    """Wait for the lead and return the term that begins; None if asked to stop before that.

    It shows its state in the status file only: the live view is the leader's.
    """
    health.is_standby, health.has_plans = True, False
    objection = ""
    metrics.leads.set(0)
    file = None if settings.status_file is None else StatusView(settings.status_file)
    shown_ms = -settings.status_ms
    while not stop.is_set():
        health.pulse.beat()
        leadership.poll()
        now_ms = settings.clock.now_ms()
        if leadership.is_chosen and (held_term := leadership.take_over(now_ms)) is not None:
            health.is_standby, health.objection = False, ""
            return held_term
        if leadership.objection != objection:
            objection = health.objection = leadership.objection
            log.warning("leadership_not_sought", reason=objection or "the reason is gone")
        metrics.term.set(leadership.newest.term)
        if file is not None and now_ms - shown_ms >= settings.status_ms:
            shown_ms = now_ms
            state = LoopState.at_start(inventory, leadership.newest.term)
            state.leader, state.is_standby, state.standby_reason = leadership.newest.leader, True, objection
            file.publish(render_view(state, settings, OrderBook().in_force(now_ms), {}, now_ms), now_ms)
        stop.wait(settings.clock.wall_s(settings.tick_ms))
    return None


def _lead(
    leadership: Leadership,
    held_term: HeldTerm,
    settings: ControllerSettings,
    inventory: Inventory,
    metrics: LoopMetrics,
    health: LoopHealth,
    yielding: Rarely,
    doubt: Rarely,
    stop: threading.Event,
) -> None:
    """Run the control loop for one term. Raises DeposedError if another controller takes over."""
    term = held_term.term
    log.info("leadership_acquired", term=term.term, leader=term.leader)
    metrics.leads.set(1)
    metrics.term.set(term.term)
    links = KafkaLinks(settings, settings.clock.now_ms(), held_term.plans)
    try:
        links.show(metrics)
        ports = measured(links.ports(_views(settings, metrics)), metrics, health)
        loop = compose_loop(
            settings, inventory, ports, None, metrics, links.errors, term=term.term, instance=uuid.uuid4().hex
        )
        loop.state.leader = term.leader
        if doubt.is_pausing:
            loop.doubt_single_terms()
        _run_steps(loop, leadership, links, settings, metrics, health, yielding, doubt, stop)
    finally:
        links.close()


def _run_steps(
    loop: ControlLoop,
    leadership: Leadership,
    links: KafkaLinks,
    settings: ControllerSettings,
    metrics: LoopMetrics,
    health: LoopHealth,
    yielding: Rarely,
    doubt: Rarely,
    stop: threading.Event,
) -> None:
    """Step until ``stop`` is set, then until the transition under way ends or its time is up. Raises DeposedError."""
    tick_s = settings.clock.wall_s(settings.tick_ms)
    moving_tick_s = tick_s / MOVING_STEPS_PER_TICK  # Moving clients wait for each answer and command.

    def now_ms() -> int:
        return settings.clock.now_ms() - links.ahead_ms

    def step() -> bool:
        health.objection = clock_text(links.ahead_ms) if links.ahead_ms else ""
        if links.ahead_ms and yielding.is_due():
            leadership.yield_lead(f"{health.objection}: another controller may lead")
            raise DeposedError(health.objection)
        leadership.check()
        began_s = time.perf_counter()
        follows_at_once = loop.step(now_ms())
        if loop.deposed_by_term:
            _end_term(loop, leadership, doubt)
        check_plan_log(loop.state, now_ms(), settings.decision.window_age_ms_max)
        metrics.step_ms.observe((time.perf_counter() - began_s) * 1000)
        health.pulse.beat()
        return follows_at_once

    while not stop.is_set():
        if not step():
            stop.wait(moving_tick_s if loop.is_transition_running else tick_s)
    loop.wind_down()
    deadline_ms = now_ms() + settings.stop_ms_max
    while loop.is_transition_running and now_ms() < deadline_ms:
        step()
        time.sleep(moving_tick_s)
    step()


def _end_term(loop: ControlLoop, leadership: Leadership, doubt: Rarely) -> None:
    """Note the higher term that brokers obey, and raise DeposedError."""
    if loop.is_deposed_by_one:
        doubt.is_due()
    leadership.note_term(loop.deposed_by_term)
    raise DeposedError(f"brokers obey a controller of term {loop.deposed_by_term}")


def _check(errors: list[str]) -> None:
    if errors:
        raise ControllerSettingsError("The controller settings cannot be used:\n- " + "\n- ".join(errors))


class Rarely:
    """Something that this process does at most every ``pause_s``."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s, self._again_s = pause_s, 0.0

    @property
    def is_pausing(self) -> bool:
        """Return True if it was done less than the pause ago."""
        return time.monotonic() < self._again_s

    def is_due(self) -> bool:
        """Return True, once, if it may be done now."""
        if self.is_pausing:
            return False
        self._again_s = time.monotonic() + self._pause_s
        return True


class KafkaLinks:
    """All Kafka ports of one leader, opened and closed together; ``plans`` writes in its term."""

    def __init__(self, settings: ControllerSettings, now_ms: int, plans: KafkaPlanStore) -> None:
        since_ms = settings.clock.wall_ms(now_ms - settings.lookback_ms)  # Kafka's timestamps are wall time.
        kafka, self._plans = settings.kafka, plans
        self._letters = LetterSender(kafka, settings.namespace)
        on_letter = self._letters.send
        self._state: TopicReader[StateRow | WindowClosed] = TopicReader(
            kafka,
            {topic_name(STATE, settings.namespace): StateRow, topic_name(WINDOWS, settings.namespace): WindowClosed},
            since_ms,
            on_letter,
            on_time=self._compare_clocks,
        )
        self._clock_check, self._has_wall_time = ClockCheck(), settings.clock.speed == 1.0
        self._results = ResultReader(kafka, plans, since_ms, on_letter)
        self._clients = KafkaClientRegister(kafka, settings.namespace, on_letter)
        self._orders = KafkaOrders(
            kafka, settings.namespace, on_letter, settings.orders, lambda: self._waiting_count() == 0
        )
        asked_ms = settings.clock.wall_ms(now_ms) - EXPIRY_MS  # The interval of announcements is wall time.
        self._announcements = AnnouncementReader(kafka, plans, asked_ms, on_letter)
        self._readers = (self._state, self._results, self._clients, self._orders, self._announcements)

    def ports(self, views: tuple[ViewSink, ...]) -> ControlPorts:
        """Return the ports, as the control loop takes them."""
        plans = self._plans
        announcements = self._announcements
        return ControlPorts(
            self._state, self._results, plans, plans, self._clients, self._orders, plans, announcements, views
        )

    @property
    def ahead_ms(self) -> int:
        """How far this clock is ahead of the times in Kafka, below 0 if behind; 0 if it is right, or unknown."""
        return self._clock_check.ahead_ms

    def _compare_clocks(self, record_ms: int) -> None:
        if self._has_wall_time:  # A faster clock cannot be compared with Kafka's.
            self._clock_check.add(record_ms, time.time_ns() // 1_000_000)

    def errors(self) -> dict[str, int]:
        """Return how many records did not decode or could not be sent, by topic, and whether the clock is wrong."""
        undecodable = sum((reader.undecodable for reader in self._readers), Counter[str]())
        errors = {f"undecodable: {topic}": count for topic, count in undecodable.items()}
        if self.ahead_ms:
            errors[f"clock: s {'ahead of' if self.ahead_ms > 0 else 'behind'} Kafka"] = abs(self.ahead_ms) // 1000
        return errors | {f"not sent: {topic}": count for topic, count in self._lost().items()}

    def show(self, metrics: LoopMetrics) -> None:
        """Make the metrics read what waits, failed and was lost at each scrape."""
        metrics.queue_length.labels("outbound").set_function(self._waiting_count)
        for name, reader in (
            ("state", self._state),
            ("results", self._results),
            ("announcements", self._announcements),
        ):
            metrics.kafka_errors.labels(name).set_function(partial(getattr, reader, "error_count"))
        for topic in (EVENTS, AUDIT, DEAD_LETTERS):
            metrics.records_lost.labels(topic.suffix).set_function(
                partial(self._lost_count, topic_name(topic, self._plans.topics.namespace))
            )
        for topic in (STATE, WINDOWS, RESULTS, CLIENTS, ORDERS, AUDIT):
            metrics.dead_letters.labels(topic.suffix).set_function(partial(self._undecodable_count, topic))

        metrics.dead_letters.labels(ANNOUNCEMENTS.suffix).set_function(self._announcements.undecodable.total)

    def _undecodable_count(self, topic: Topic) -> int:
        return sum(reader.undecodable[name] for reader in self._readers for name in self._plans.topics.names(topic))

    def _lost(self) -> Counter[str]:
        return self._letters.lost + self._plans.lost

    def _lost_count(self, topic: str) -> int:
        return self._lost()[topic]

    def _waiting_count(self) -> int:
        return self._letters.waiting_count + self._plans.waiting_count

    def close(self) -> None:
        """Send what is still to be sent, within a bounded time, and close."""
        self._plans.close()
        self._letters.close()
        self._state.close()
        self._results.close()
        self._clients.close()
        self._orders.close()
        self._announcements.close()


def _views(settings: ControllerSettings, metrics: LoopMetrics) -> tuple[ViewSink, ...]:
    views: list[ViewSink] = []
    access = settings.redis
    if access is not None:
        time_outs = {"socket_timeout": VIEW_TIMEOUT_S, "socket_connect_timeout": VIEW_TIMEOUT_S}
        client = redis.Redis.from_url(access.url, **access.client_options(), **time_outs)
        live = ValkeyView(client, settings.namespace)
        metrics.view_failures.set_function(lambda: live.failures)
        views.append(live)
    if settings.status_file is not None:
        views.append(StatusView(settings.status_file))
    return tuple(views)
