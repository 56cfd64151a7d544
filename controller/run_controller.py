"""Run the controller against Kafka and Valkey until it is told to stop. The only place of this stage with a clock."""

from __future__ import annotations

import threading
import time

import redis
import structlog

from controller.client_register import KafkaClientRegister
from controller.control_loop import ControlLoop
from controller.control_ports import ControlPorts, DocumentSink
from controller.controller_settings import ControllerSettings
from controller.kafka_links import KafkaPlanStore, RecordSender, TopicReader
from controller.live_view import LiveView
from controller.loop_metrics import LoopMetrics
from controller.write_status import StatusView
from overlay.inventory import Inventory
from schemas.command import CommandResult
from schemas.state import StateRow, WindowClosed
from schemas.topics import RESULTS, STATE, WINDOWS, topic_name

log = structlog.get_logger(__name__)

VIEW_TIMEOUT_S = 0.5  # A server that is slower is as good as away: the loop must not wait for it.


class ControllerSettingsError(ValueError):
    """The settings cannot be used; the message lists every fault."""


def run_controller(settings: ControllerSettings, stop: threading.Event) -> None:
    """Run the control loop until ``stop`` is set, then until the transition under way is over, within a bound.

    A transition that is not over by ``settings.stop_ms_max`` is taken up by the next controller.

    Raises ControllerSettingsError with all faults at once, InventoryError when the inventory cannot be read, OSError
    when the metrics port is in use and NotATreeError, RingError or ValueError when the stored plans belong to another
    inventory. Kafka or Valkey being away raises nothing.
    """
    _check(settings.faults())
    inventory = Inventory.load(settings.inventory_path)
    _check(settings.overlay_faults(inventory.bootstrap))
    metrics = LoopMetrics()
    if settings.metrics_port is not None:
        metrics.serve(settings.metrics_port, settings.metrics_host)
    links = KafkaLinks(settings, _now_ms())
    loop = ControlLoop(settings, inventory, links.ports(_views(settings)), None, metrics, links.faults)
    try:
        while not stop.is_set():
            with metrics.step_s.time():
                follows_at_once = loop.step(_now_ms())
            if not follows_at_once:
                stop.wait(settings.tick_ms / 1000)
        loop.wind_down()
        deadline_ms = _now_ms() + settings.stop_ms_max
        while loop.is_transition_running and _now_ms() < deadline_ms:
            loop.step(_now_ms())
            time.sleep(settings.tick_ms / 1000)
        loop.step(_now_ms())
    finally:
        links.close()


def _check(faults: list[str]) -> None:
    if faults:
        raise ControllerSettingsError("the controller's settings cannot be used:\n- " + "\n- ".join(faults))


class KafkaLinks:
    """All Kafka ports of one controller, opened together and closed together."""

    def __init__(self, settings: ControllerSettings, now_ms: int) -> None:
        since_ms = now_ms - settings.lookback_ms
        self._sender = RecordSender(settings.bootstrap, settings.namespace)
        bury = self._sender.bury
        self._state: TopicReader[StateRow | WindowClosed] = TopicReader(
            settings.bootstrap,
            {topic_name(STATE, settings.namespace): StateRow, topic_name(WINDOWS, settings.namespace): WindowClosed},
            since_ms,
            bury,
        )
        self._results = TopicReader(
            settings.bootstrap, {topic_name(RESULTS, settings.namespace): CommandResult}, since_ms, bury
        )
        self._plans = KafkaPlanStore(settings.bootstrap, settings.namespace, bury)
        self._clients = KafkaClientRegister(settings.bootstrap, settings.namespace, bury)

    def ports(self, views: tuple[DocumentSink, ...]) -> ControlPorts:
        """Return them as the control loop wants them."""
        return ControlPorts(self._state, self._results, self._sender, self._sender, self._plans, self._clients, views)

    def faults(self) -> dict[str, int]:
        """Return how many records did not decode or could not be sent, by topic."""
        undecodable = self._state.undecodable + self._results.undecodable + self._plans.undecodable
        undecodable += self._clients.undecodable
        found = {f"undecodable: {topic}": count for topic, count in undecodable.items()}
        return found | {f"not sent: {topic}": count for topic, count in self._sender.lost.items()}

    def close(self) -> None:
        """Send what is still to be sent, within a bound, and let go."""
        self._plans.close()
        self._sender.close()
        self._state.close()
        self._results.close()
        self._clients.close()


def _views(settings: ControllerSettings) -> tuple[DocumentSink, ...]:
    views: list[DocumentSink] = []
    if settings.redis_url is not None:
        client = redis.Redis.from_url(
            settings.redis_url, socket_timeout=VIEW_TIMEOUT_S, socket_connect_timeout=VIEW_TIMEOUT_S
        )
        views.append(LiveView(client, settings.namespace))
    if settings.status_file is not None:
        views.append(StatusView(settings.status_file))
    return tuple(views)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
