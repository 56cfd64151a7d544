"""The distributed protocol on a running emulated overlay.

In: an inventory, a workload and settings. Out: the resulting tree, messages by kind, the ledger. It runs on the
virtual clock of :mod:`producers.virtual_overlay`; the protocol's messages take the delay of their links and no service
time. The same overlay with a central planner is :mod:`experiments.psoop.distributed_central`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from regraft.api.brokers import BrokerPhase
from regraft.api.emulation import (
    CONTROL_SERVICE_MS,
    LedgerSnapshot,
    OverlayTiming,
    VirtualOverlay,
    VirtualSettings,
    WorkloadSettings,
    inventory_timing,
)
from regraft.api.overlays import Inventory
from regraft.api.trees import TreeConfiguration
from regraft_lab.message_tally import MessageTally
from regraft_lab.psoop.distributed_broker import NOT_EXECUTED, DistributedBroker, LocalView
from regraft_lab.psoop.distributed_cache import CachingCells, NotificationCache, NotificationIds, TrafficRecord
from regraft_lab.psoop.distributed_exchanges import (
    ExchangeQueue,
    command_delay,
    message_cost,
)
from regraft_lab.psoop.distributed_messages import (
    HEADER_BYTES,
    KIND_OF_MESSAGE,
    Effect,
    Exchange,
    HandOver,
    MessageKind,
    ProtocolMessage,
    Release,
    Send,
)
from regraft_lab.psoop.distributed_settings import DistributedSettings

FINISH_STEP_MS = 100.0
FINISH_MS_MAX = 300_000.0


class CachedOverlay:
    """An emulated overlay whose brokers cache the ids of notifications that they publish or deliver."""

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | None,
        seed: int,
        cache_count_max: int,
        timing: OverlayTiming | None = None,
    ) -> None:
        self.inventory = inventory
        self.executor = inventory.brokers[0]
        timing = timing or inventory_timing(inventory, CONTROL_SERVICE_MS)
        self.virtual = VirtualOverlay(
            inventory,
            workload,
            VirtualSettings(
                seed=seed,
                flush_ms=None,
                timing=timing,
                command_delay_ms=command_delay(timing.link_delay_ms, self.executor),
            ),
        )
        self.tally = MessageTally[MessageKind]()
        self.ids = NotificationIds()
        self.traffic = TrafficRecord(inventory.brokers)
        self.caches = {broker: NotificationCache(cache_count_max) for broker in inventory.brokers}
        for name, broker in self.virtual.overlay.brokers.items():
            broker.cells = CachingCells(name, self.ids, self.caches[name], self.traffic)

    @property
    def present(self) -> TreeConfiguration:
        """The tree that notifications published at the executor currently take."""
        core = self.virtual.cores[self.executor]
        tree: TreeConfiguration = core.state.tables[core.epoch].configuration
        return tree

    @property
    def notification_cost(self) -> float:
        """The cost of all notifications so far by Eq. 1-2: c and p of each link and broker crossed."""
        overlay, inventory = self.virtual.overlay, self.inventory
        links = sum(
            end.counters.notifications_out * inventory.cost_of_link(*pair) for pair, end in overlay.link_ends.items()
        )
        brokers = sum(
            overlay.brokers[name].counters.notifications_out * float(cost)
            for name, cost in zip(inventory.brokers, inventory.processing_cost, strict=True)
        )
        return links + brokers

    def start(self) -> None:
        """Begin to adapt; this base class does nothing."""

    def finish(self) -> LedgerSnapshot:
        """Stop the clients, wait until the overlay is quiet, and return the account."""
        return self.virtual.finish()

    def call_every(self, period_ms: float, first_ms: float, act: Callable[[], bool]) -> None:
        """Call ``act`` after ``first_ms`` and then every ``period_ms``, until it returns False."""

        def on_time(_: object) -> None:
            if act():
                self.virtual.env.timeout(period_ms).callbacks.append(on_time)

        self.virtual.env.timeout(first_ms).callbacks.append(on_time)


class DistributedOverlay(CachedOverlay):
    """An overlay whose brokers decide by themselves.

    ``on_agreed(exchange)`` is called for every exchange once its cycle has agreed; ``message_delay_ms`` overrides the
    delay of the protocol's messages, for example in tests.
    """

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | None,
        seed: int,
        settings: DistributedSettings | None = None,
        timing: OverlayTiming | None = None,
        on_agreed: Callable[[Exchange], None] = lambda _: None,
        message_delay_ms: Callable[[str, str], float] | None = None,
    ) -> None:
        self.settings = settings or DistributedSettings()
        errors = self.settings.errors()
        if errors:
            raise ValueError("; ".join(errors))
        super().__init__(inventory, workload, seed, self.settings.cache_count_max, timing)
        self.outcomes: Counter[str] = Counter()  # How often cycles were freed, by reason.
        self.agreed_count = 0
        self.on_agreed = on_agreed
        self._message_delay_ms = message_delay_ms or self.virtual.overlay.timing.link_delay_ms
        self._is_running = True
        self._under_way = 0  # Protocol messages in transit.
        self.queue = ExchangeQueue(
            self.virtual, self.executor, inventory, self.settings, self.tally, self._report_rejected
        )
        self.brokers = {
            name: DistributedBroker(name, float(cost), self.settings, self.caches[name], self._meter(name))
            for name, cost in zip(inventory.brokers, inventory.processing_cost, strict=True)
        }

    def start(self) -> None:
        """Begin to broadcast, each broker at a random time in the first interval."""
        rng = random.Random(self.virtual.settings.seed)
        for name in self.inventory.brokers:
            self.call_every(
                self.settings.broadcast_ms,
                rng.uniform(0, self.settings.broadcast_ms),
                partial(self._on_period, name),
            )

    def broadcast(self, name: str) -> None:
        """Let one broker broadcast now."""
        self._execute(name, self.brokers[name].broadcast(self.view(name)))

    def finish(self) -> LedgerSnapshot:
        """Stop broadcasting, execute agreed exchanges while traffic still flows, and return the account.

        Raises RuntimeError if that takes longer than ``FINISH_MS_MAX``.
        """
        self._is_running = False
        end_ms = self.virtual.now_ms + FINISH_MS_MAX
        while self._under_way or not self.queue.is_idle:
            if self.virtual.now_ms > end_ms:
                raise RuntimeError(f"an exchange is still in progress after {FINISH_MS_MAX:g} ms: a broker is stuck")
            self.virtual.run_for(FINISH_STEP_MS)
        return self.virtual.finish()

    def view(self, name: str) -> LocalView:
        """Return a broker's current view of the overlay."""
        core = self.virtual.cores[name]
        trees = {epoch: tables.configuration for epoch, tables in core.state.tables.items()}
        return LocalView(trees, core.epoch, core.phase is BrokerPhase.STEADY)

    def _on_period(self, name: str) -> bool:
        if self._is_running:
            self.broadcast(name)
        return self._is_running

    def _execute(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, message):
                    self._send(name, peer, message)
                case HandOver(exchange):
                    self.agreed_count += 1
                    self.on_agreed(exchange)
                    self._to_executor(name, exchange)

    def _send(self, source: str, target: str, message: ProtocolMessage) -> None:
        cost = message_cost(self.inventory, source, target)
        self.tally.note(KIND_OF_MESSAGE[type(message)], message.size_bytes, cost)

        def arrive() -> None:
            if isinstance(message, Release) and target == message.cycle.brokers[0]:
                self.outcomes[message.reason] += 1
            effects = self.brokers[target].handle(source, message, self.view(target), self.virtual.now_ms)
            self._execute(target, effects)

        self._after(self._message_delay_ms(source, target), arrive)

    def _after(self, delay_ms: float, arrive: Callable[[], None]) -> None:
        def on_time(_: object) -> None:
            self._under_way -= 1
            arrive()

        self._under_way += 1
        self.virtual.env.timeout(delay_ms).callbacks.append(on_time)

    def _to_executor(self, name: str, exchange: Exchange) -> None:
        self._count_direct(MessageKind.HAND_OVER, name, self.executor)
        self._after(self._message_delay_ms(name, self.executor), lambda: self.queue.hand_over(exchange))

    def _report_rejected(self, exchange: Exchange) -> None:
        """Notify the deciding broker, which frees the cycle."""
        decider = exchange.cycle.brokers[-1]
        self._count_direct(MessageKind.RELEASE, self.executor, decider)

        def arrive() -> None:
            self._execute(decider, self.brokers[decider].give_up(exchange.cycle, NOT_EXECUTED))

        self._after(self._message_delay_ms(self.executor, decider), arrive)

    def _count_direct(self, kind: MessageKind, source: str, target: str) -> None:
        if source != target:
            self.tally.note(kind, HEADER_BYTES, message_cost(self.inventory, source, target))

    def _meter(self, name: str) -> Callable[[str], float]:
        """Return a broker's measure of link costs: links of its trees by their traffic, other links by a probe."""

        def measure(peer: str) -> float:
            core = self.virtual.cores[name]
            if peer not in core.live_neighbours:
                for source, target in ((name, peer), (peer, name)):
                    self._count_direct(MessageKind.PROBE, source, target)
            return self.inventory.cost_of_link(name, peer)

        return measure
