"""Run the controller against Kafka and Valkey until it is told to stop. The only place of this stage with a clock."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from functools import partial

import redis
import structlog

from controller.compose_loop import compose_loop
from controller.control_loop import ControlLoop
from controller.control_ports import ControlPorts, ViewSink
from controller.controller_settings import TERM_FIRST, ControllerSettings
from controller.decide.find_planners import kind_faults, own_faults, planner_faults
from controller.ports.client_register import KafkaClientRegister
from controller.ports.kafka_links import KafkaPlanStore, RecordSender, TopicReader
from controller.ports.measure_ports import measured
from controller.ports.order_topic import KafkaOrders
from controller.ports.write_live_view import ValkeyView
from controller.ports.write_status import StatusView
from controller.report.loop_metrics import LoopHealth, LoopMetrics
from infra.serve_metrics import serve_metrics
from overlay.inventory import Inventory
from schemas.command import CommandResult
from schemas.state import StateRow, WindowClosed
from schemas.topics import (
    AUDIT,
    CLIENTS,
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    ORDERS,
    PLANS,
    RESULTS,
    STATE,
    WINDOWS,
    topic_name,
)

log = structlog.get_logger(__name__)

VIEW_TIMEOUT_S = 0.5  # A server that is slower is as good as away: the loop must not wait for it.
SILENCE_S_MAX = 30.0  # A step that takes longer is ill: no call in it waits for more than some seconds.

HURRY = 10  # How many times as often the loop looks while a plan moves: at the default of 100 ms, every 10 ms.


class ControllerSettingsError(ValueError):
    """The settings cannot be used; the message lists every fault."""


class ControllerDeposedError(RuntimeError):
    """Another controller leads; the message names both terms."""


def run_controller(settings: ControllerSettings, stop: threading.Event) -> None:
    """Run the control loop until ``stop`` is set, then until the transition under way is over, within a bound.

    A transition that is not over by ``settings.stop_ms_max`` is taken up by the next controller.

    Raises ControllerSettingsError with all faults at once, InventoryError when the inventory cannot be read,
    MetricsPortError when the metrics port is in use, ControllerDeposedError when brokers obey a controller of a higher
    term, after which nothing is sent any more, and NotATreeError, RingError or ValueError when the stored plans
    belong to another inventory. Kafka or Valkey being away raises nothing.
    """
    _check(settings.faults() + planner_faults(settings) + own_faults(settings))
    inventory = Inventory.load(settings.inventory_path)
    _check(kind_faults(settings, inventory.bootstrap.KIND))
    metrics, health = LoopMetrics(), LoopHealth(SILENCE_S_MAX)
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        links = KafkaLinks(settings, settings.clock.now_ms())
        held.callback(links.close)
        links.show(metrics)
        ports = measured(links.ports(_views(settings, metrics)), metrics, health)
        loop = compose_loop(
            settings, inventory, ports, None, metrics, links.faults, term=TERM_FIRST, instance=uuid.uuid4().hex
        )
        _turn(loop, settings, metrics, health, stop)
        if loop.deposed_by_term:
            log.error("controller_deposed", term=loop.state.term, by_term=loop.deposed_by_term)
            raise ControllerDeposedError(
                f"brokers obey a controller of term {loop.deposed_by_term}, this one has term {loop.state.term}: "
                "it stops; let the other one lead, or end it and start this one with a higher term"
            )


def _turn(
    loop: ControlLoop, settings: ControllerSettings, metrics: LoopMetrics, health: LoopHealth, stop: threading.Event
) -> None:
    """Step until ``stop`` is set, then until the transition under way is over or its time is; or until deposed."""
    now_ms, tick_s = settings.clock.now_ms, settings.clock.wall_s(settings.tick_ms)
    hurried_s = tick_s / HURRY  # Clients that move wait for each answer and each command of their plan.

    def step() -> bool:
        began_s = time.perf_counter()
        follows_at_once = loop.step(now_ms())
        metrics.step_ms.observe((time.perf_counter() - began_s) * 1000)
        health.pulse.beat()
        return follows_at_once

    while not stop.is_set() and not loop.deposed_by_term:
        if not step():
            stop.wait(hurried_s if loop.is_transition_running else tick_s)
    loop.wind_down()
    deadline_ms = now_ms() + settings.stop_ms_max
    while loop.is_transition_running and not loop.deposed_by_term and now_ms() < deadline_ms:
        step()
        time.sleep(hurried_s)
    step()


def _check(faults: list[str]) -> None:
    if faults:
        raise ControllerSettingsError("the controller's settings cannot be used:\n- " + "\n- ".join(faults))


class KafkaLinks:
    """All Kafka ports of one controller, opened together and closed together."""

    def __init__(self, settings: ControllerSettings, now_ms: int) -> None:
        since_ms = settings.clock.wall_ms(now_ms - settings.lookback_ms)  # Kafka's timestamps are wall time.
        kafka, self._namespace = settings.kafka, settings.namespace
        self._sender = RecordSender(kafka, settings.namespace)
        bury = self._sender.bury
        self._state: TopicReader[StateRow | WindowClosed] = TopicReader(
            kafka,
            {topic_name(STATE, settings.namespace): StateRow, topic_name(WINDOWS, settings.namespace): WindowClosed},
            since_ms,
            bury,
        )
        self._results = TopicReader(kafka, {topic_name(RESULTS, settings.namespace): CommandResult}, since_ms, bury)
        self._plans = KafkaPlanStore(kafka, settings.namespace, bury)
        self._clients = KafkaClientRegister(kafka, settings.namespace, bury)

        def is_flushed() -> bool:
            return self._sender.waiting_count == 0

        self._orders = KafkaOrders(kafka, settings.namespace, bury, settings.orders, is_flushed)
        self._readers = (self._state, self._results, self._plans, self._clients, self._orders)

    def ports(self, views: tuple[ViewSink, ...]) -> ControlPorts:
        """Return them as the control loop wants them."""
        out = self._sender
        return ControlPorts(self._state, self._results, out, out, self._plans, self._clients, self._orders, out, views)

    def faults(self) -> dict[str, int]:
        """Return how many records did not decode or could not be sent, by topic."""
        undecodable = sum((reader.undecodable for reader in self._readers), Counter[str]())
        found = {f"undecodable: {topic}": count for topic, count in undecodable.items()}
        return found | {f"not sent: {topic}": count for topic, count in self._sender.lost.items()}

    def show(self, metrics: LoopMetrics) -> None:
        """Let the metrics ask what waits, failed and was lost; they do at each scrape."""
        metrics.queue_length.labels("outbound").set_function(lambda: self._sender.waiting_count)
        for name, reader in (("state", self._state), ("results", self._results)):
            metrics.kafka_faults.labels(name).set_function(partial(getattr, reader, "fault_count"))
        for topic in (COMMANDS, EVENTS, AUDIT, DEAD_LETTERS):
            metrics.records_lost.labels(topic.suffix).set_function(
                partial(self._sender.lost.__getitem__, topic_name(topic, self._namespace))
            )
        for topic in (STATE, WINDOWS, RESULTS, PLANS, CLIENTS, ORDERS):
            metrics.dead_letters.labels(topic.suffix).set_function(
                partial(self._undecodable_count, topic_name(topic, self._namespace))
            )

    def _undecodable_count(self, topic: str) -> int:
        return sum(reader.undecodable[topic] for reader in self._readers)

    def close(self) -> None:
        """Send what is still to be sent, within a bound, and let go."""
        self._plans.close()
        self._sender.close()
        self._state.close()
        self._results.close()
        self._clients.close()
        self._orders.close()


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
