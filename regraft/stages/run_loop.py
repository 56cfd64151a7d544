"""Run the loop against an existing Kafka: supervise the stages as child processes, and show the run until stopped.

In: settings. Out: only the effects of the stages. The demo, with its own servers, is ``run_demo``.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from rich.console import Console

from regraft.infra.check_kafka import KafkaFault, check_kafka, why_closed
from regraft.infra.compare_topics import durability_note
from regraft.infra.create_topics import count_brokers
from regraft.infra.find_user import find_user
from regraft.infra.hold_lock import hold_lock
from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_server import is_kafka_ready
from regraft.infra.order_keys import OrderSettings, make_local_keys
from regraft.infra.service import ServiceEvent, ServiceEventKind
from regraft.infra.stack_error import StackError
from regraft.infra.supervise import Supervisor
from regraft.run_records.run_record import ServiceUse
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import Settings
from regraft.settings.shape_topics import create_run_topics
from regraft.stages.loop_services import ALERTS, CONTROLLER, DASHBOARD, EMULATOR, STREAMING, loop_service
from regraft.stages.observe_run import RunObserver, read_status
from regraft.stages.report_restarts import report_restarts
from regraft.stages.show_run import RunScreen

TICK_S = 0.5
ANSWER_S_MAX = 5.0
LOCAL_KEYS_DAYS = 365
NO_LIVE_VIEW = (
    "--dashboard shows the live view that the controller keeps in a Valkey or Redis, and none is named: set redis.url "
    "(REGRAFT_REDIS_URL), start one for trials with `regraft servers`, or leave --dashboard out."
)


class KafkaUnavailableError(StackError):
    """No Kafka answered; the message names its address and the cause."""


class StageGaveUpError(StackError):
    """A stage ended for good; the message names it and its log."""


def run_loop(settings: Settings, console: Console, *, emulate: bool, with_dashboard: bool = False) -> None:
    """Run until Ctrl-C or SIGTERM, or until a stage ends for good. Raises StackError."""
    if with_dashboard and settings.dashboard.redis is None:
        raise StackError(NO_LIVE_VIEW)
    stop = threading.Event()
    gave_up: list[ServiceEvent] = []

    def on_event(event: ServiceEvent) -> None:
        console.print(f"{event.service} {event.kind} (process {event.pid})", markup=False, highlight=False)
        if event.kind is ServiceEventKind.GAVE_UP:
            gave_up.append(event)
            stop.set()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    earlier = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    names = [CONTROLLER, STREAMING, ALERTS, *[DASHBOARD] * with_dashboard, *[EMULATOR] * emulate]
    try:
        with hold_lock(settings.run.directory / "run.lock"):
            require_kafka(settings.kafka.access)
            ensure_inventory(settings)
            create_run_topics(settings)
            if note := durability_note(count_brokers(settings.kafka.access)):
                console.print(note, markup=False, highlight=False, soft_wrap=True)
            console.print(prepare_orders(settings.orders), markup=False, highlight=False, soft_wrap=True)
            kafka = settings.kafka
            with (
                report_restarts(kafka.access, kafka.namespace) as reporter,
                Supervisor(on_event, patience=settings.run.patience) as supervisor,
            ):
                supervisor.listen(reporter.take)
                for name in names:
                    if not stop.is_set():
                        supervisor.start(loop_service(name, settings))
                if with_dashboard:
                    console.print(f"Dashboard: {dashboard_address(settings)}", markup=False, highlight=False)
                _watch(settings, console, stop, supervisor)
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    if gave_up:
        raise StageGaveUpError(gave_up[0].failure)


def prepare_orders(orders: OrderSettings) -> str:
    """Make keys for orders from this machine if none are configured; return a sentence on which orders are accepted."""
    if orders.allow_unsigned:
        return "Orders: accepted from anybody who can write to Kafka, as orders.allow_unsigned is set."
    if orders.trusted_keys_file is None and orders.directory is not None:
        is_new = make_local_keys(orders.directory, find_user(), LOCAL_KEYS_DAYS)
        made = f", made now for {LOCAL_KEYS_DAYS} days" if is_new else ""
        return (
            f"Orders: only with the keys in {orders.directory}{made}; commands that use this run directory find them."
        )
    return f"Orders: only with the keys that {orders.trusted_file} trusts."


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
    found = check_kafka(kafka, timeout_s=ANSWER_S_MAX)
    why = f"{found.found}. {found.to_do}" if isinstance(found, KafkaFault) else "it was slow to respond. Try again."
    raise KafkaUnavailableError(f"Kafka at {kafka.bootstrap} did not answer within {ANSWER_S_MAX:g} s: {why}")


def _watch(settings: Settings, console: Console, stop: threading.Event, supervisor: Supervisor) -> None:
    observer, started_s = RunObserver(settings.run.directory), time.time()
    with RunScreen(console) as screen:
        while not stop.wait(TICK_S):
            for event in observer.refresh():
                screen.report(event.text, max(event.time_ms / 1000 - started_s, 0.0))
            use = supervisor.rss_bytes_max
            services = tuple(ServiceUse(name, supervisor.restarts(name), size) for name, size in use.items())
            screen.show(observer.frame("running", time.time() - started_s, None, services))
