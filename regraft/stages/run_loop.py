"""Run the loop against an existing Kafka: supervise the stages as child processes, and show the run until stopped.

In: settings. Out: only the effects of the stages. The demo, with its own servers, is ``run_demo``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.console import Console

from regraft.infra.kafka.check_kafka import Diagnosis, check_kafka, why_closed
from regraft.infra.kafka.compare_topics import durability_note
from regraft.infra.kafka.create_topics import count_brokers, require_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import is_kafka_ready
from regraft.infra.local.service import ServiceEvent, ServiceEventKind
from regraft.infra.local.supervise import ServiceFailedError, Supervisor
from regraft.infra.orders.order_keys import OrderSettings, make_local_keys
from regraft.infra.process.end_on_sigterm import stop_on_signals
from regraft.infra.process.find_user import find_user
from regraft.infra.process.hold_lock import hold_lock
from regraft.infra.process.secret_files import TO_DO, open_text
from regraft.infra.process.show_progress import show_progress
from regraft.infra.process.stack_error import StackError
from regraft.run_records.run_record import ServiceUse
from regraft.settings.place_demo import agents_of, ensure_inventory
from regraft.settings.run_settings import Settings
from regraft.settings.shape_topics import create_run_topics
from regraft.stages.loop_services import (
    ALERTS,
    CONTROLLER,
    DASHBOARD,
    EMULATOR,
    GRACE_S,
    SHOWN_NAMES,
    STREAMING,
    loop_service,
    started_together,
)
from regraft.stages.observe_run import RunObserver, read_status
from regraft.stages.report_restarts import report_restarts
from regraft.stages.show_run import RunScreen

TICK_S = 0.5
ANSWER_S_MAX = 5.0
LOCAL_KEYS_DAYS = 365
NO_LIVE_VIEW = (
    "--dashboard shows the live view that the controller keeps in Valkey or Redis, but none is named: set redis.url "
    "(REGRAFT_REDIS_URL), start one for trials with `regraft servers`, or leave --dashboard out."
)


class KafkaUnavailableError(StackError):
    """No Kafka answered; the message names its address and the cause."""


class StageGaveUpError(StackError):
    """A stage ended for good; the message names it and its log."""


def run_loop(
    settings: Settings, console: Console, *, emulate: bool, with_dashboard: bool = False, creates_topics: bool = False
) -> None:
    """Run until Ctrl-C or SIGTERM, or until a stage ends for good. Raises StackError and InventoryError.

    Unless the brokers are emulated, there must be an inventory, and missing topics are created only if
    ``creates_topics``.
    """
    if with_dashboard and settings.dashboard.redis is None:
        raise StackError(NO_LIVE_VIEW)
    names = [CONTROLLER, STREAMING, ALERTS, *[DASHBOARD] * with_dashboard, *[EMULATOR] * emulate]
    gave_up: list[ServiceEvent] = []
    with stop_on_signals() as stop, hold_lock(settings.run.directory / "run.lock"):

        def on_event(event: ServiceEvent) -> None:
            _print(console, event.text)
            if event.kind is ServiceEventKind.GAVE_UP:
                gave_up.append(event)
                stop.set()

        require_kafka(settings.kafka.access)
        _place(settings, emulate=emulate, creates_topics=creates_topics)
        _describe(settings, console)
        with (
            report_restarts(settings.kafka.access, settings.kafka.namespace) as reporter,
            Supervisor(on_event, patience=settings.run.patience) as supervisor,
        ):
            supervisor.listen(reporter.take)
            threading.Thread(target=_announce_stop, args=(stop, console, names), daemon=True).start()
            try:
                _start(settings, console, stop, supervisor, names)
            except ServiceFailedError as error:  # Of a stop that was asked for, or of another stage that gave up?
                if not stop.is_set() or any(str(error) == event.failure for event in gave_up):
                    raise
            if with_dashboard and not stop.is_set():
                address = dashboard_address(settings)
                _print(console, f"Dashboard: {address}; `regraft dashboard token --by NAME` lets NAME give orders")
            _watch(settings, console, stop, supervisor)
    if gave_up:
        raise StageGaveUpError(gave_up[0].failure)


def _describe(settings: Settings, console: Console) -> None:
    """Print what an operator should know of Kafka, of orders and of secrets."""
    if note := durability_note(count_brokers(settings.kafka.access)):
        _print(console, note)
    _print(console, prepare_orders(settings.orders))
    if reason := open_text(settings.secret_files):
        _print(console, f"Secrets: {reason}; {TO_DO}.")


def _start(
    settings: Settings, console: Console, stop: threading.Event, supervisor: Supervisor, names: Sequence[str]
) -> None:
    """Start the stages, with their progress; leave out the rest once ``stop`` is set."""
    with show_progress("Starting", len(names), console) as advance:
        for together in started_together(names):
            if not stop.is_set():
                services = [loop_service(name, settings) for name in together]
                supervisor.start(
                    *services, stop=stop, on_wait=lambda name: advance(SHOWN_NAMES[name], names.index(name))
                )


def _announce_stop(stop: threading.Event, console: Console, names: Sequence[str]) -> None:
    """Print that the stages are being stopped: in order, which takes a while."""
    stop.wait()
    wait_s_max = sum(GRACE_S[name] for name in names)
    what = "finishing the plan, batch and messages in progress"
    _print(console, f"Stopping: {what}, in at most {wait_s_max:.0f} s. Press Ctrl-C again to stop immediately.")


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _place(settings: Settings, *, emulate: bool, creates_topics: bool) -> None:
    """Place emulated brokers, and create the missing topics; raise StackError if there are any and neither is asked."""
    if emulate:
        ensure_inventory(settings)
    if emulate or creates_topics:
        create_run_topics(settings)
    else:
        require_topics(settings.kafka.access, settings.kafka.namespace, agents_of(settings))


def prepare_orders(orders: OrderSettings) -> str:
    """Make keys for orders from this machine if none are configured; return a sentence on which orders are accepted."""
    if orders.allow_unsigned:
        return "Orders: accepted from anyone who can write to Kafka, because orders.allow_unsigned is set."
    if orders.trusted_keys_file is None and orders.directory is not None:
        is_new = make_local_keys(orders.directory, find_user(), LOCAL_KEYS_DAYS)
        made = f", created now and valid for {LOCAL_KEYS_DAYS} days" if is_new else ""
        return (
            f"Orders: accepted only with the keys in {orders.directory}{made}; commands that use this run directory "
            "find them."
        )
    return f"Orders: accepted only with the keys that {orders.trusted_file} trusts."


def dashboard_address(settings: Settings) -> str:
    """Return the dashboard's address; with port 0 it is known only once the dashboard has written its status."""
    dashboard = settings.dashboard
    status = read_status(settings.run.directory / f"{DASHBOARD}.json") or {}
    return str(status.get("url") or f"{dashboard.scheme}://{dashboard.host}:{dashboard.port}/")


def require_kafka(kafka: KafkaAccess) -> None:
    """Raise KafkaUnavailableError with the reason if no Kafka answers."""
    if (closed := why_closed(kafka, ANSWER_S_MAX)) is not None:
        raise KafkaUnavailableError(f"Kafka cannot be reached: {closed.found}. {closed.to_do}")
    if is_kafka_ready(kafka, ANSWER_S_MAX):
        return
    finding = check_kafka(kafka, timeout_s=ANSWER_S_MAX)
    why = (
        f"{finding.found}. {finding.to_do}" if isinstance(finding, Diagnosis) else "it was slow to respond. Try again."
    )
    raise KafkaUnavailableError(f"Kafka at {kafka.bootstrap} did not answer within {ANSWER_S_MAX:g} s: {why}")


def _watch(settings: Settings, console: Console, stop: threading.Event, supervisor: Supervisor) -> None:
    observer, started_s = RunObserver(settings.run.directory), time.time()
    with RunScreen(console) as screen:
        while not stop.wait(TICK_S):
            for event in observer.refresh():
                screen.report(event.text, max(event.time_ms / 1000 - started_s, 0.0))
            use = supervisor.memory_bytes_max
            services = tuple(ServiceUse(name, supervisor.restarts(name), size) for name, size in use.items())
            screen.show(observer.frame("running", time.time() - started_s, None, services))
