"""POP or GRAPE on a running emulated overlay: brokers trace, decide and have publishers moved.

In: an inventory, clients and the brokers' algorithm. Out: the resulting homes of publishers, messages by kind, memory,
the ledger. It runs on the virtual clock of :mod:`producers.virtual_overlay`. The best homes with full knowledge do not
belong here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from regraft.api.brokers import Filter
from regraft.api.emulation import (
    CONTROL_SERVICE_MS,
    OverlayListener,
    OverlayTiming,
    TelemetrySink,
    VirtualOverlay,
    VirtualSettings,
    inventory_timing,
)
from regraft.api.overlays import Inventory
from regraft.api.records import Role
from regraft.api.trees import bootstrap_tree
from regraft_lab.message_tally import MessageTally
from regraft_lab.pop_grape.distributed_core import TracingCore
from regraft_lab.pop_grape.distributed_grape import BrokerMonitor, GrapeBroker
from regraft_lab.pop_grape.distributed_moves import Move, MoveQueue
from regraft_lab.pop_grape.distributed_pop import PopBroker, PopSettings
from regraft_lab.pop_grape.distributed_selection import GrapeSettings, Selection
from regraft_lab.pop_grape.distributed_traces import (
    HEADER_BYTES,
    ID_BYTES,
    KIND_OF_MESSAGE,
    NUMBER_BYTES,
    Chosen,
    Gathered,
    MessageKind,
    RelocationRequest,
    TraceMessage,
    TraceRequest,
    TracingBroker,
)
from regraft_lab.psoop.distributed_exchanges import command_delay, message_cost

FINISH_STEP_MS = 100.0
FINISH_MS_MAX = 300_000.0

Settings = PopSettings | GrapeSettings | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of a publisher's home.

    ``selection_ms``: time since its first request for the decision, 0 if it asked no other broker; ``pinged_ms``: the
    part of it spent on pings.
    """

    publisher: str
    home: str
    target: str
    decided_ms: float
    selection_ms: float
    pinged_ms: float


class RelocatingOverlay(OverlayListener):
    """An emulated overlay whose brokers run POP, GRAPE or, without settings, neither.

    The caller connects clients through ``virtual.overlay``. A publisher runs on the machine of its first home.
    ``telemetry_sink`` gets batches every ``flush_ms``, none if that is None. ``on_sent(broker, peer, message)`` is
    called for each trace message sent, ``on_gathered(found)`` for each session once its home has all reports.
    """

    def __init__(
        self,
        inventory: Inventory,
        seed: int,
        settings: Settings,
        timing: OverlayTiming | None = None,
        telemetry_sink: TelemetrySink | None = None,
        flush_ms: float | None = None,
    ) -> None:
        errors = settings.errors() if settings else []
        if errors:
            raise ValueError("; ".join(errors))
        self.inventory = inventory
        self.settings = settings
        self.executor = inventory.brokers[0]
        timing = timing or inventory_timing(inventory, CONTROL_SERVICE_MS)
        virtual_settings = VirtualSettings(
            seed=seed,
            flush_ms=flush_ms,
            timing=timing,
            command_delay_ms=command_delay(timing.link_delay_ms, self.executor),
        )
        self.virtual = VirtualOverlay(inventory, None, virtual_settings, telemetry_sink)
        self.tally = MessageTally[MessageKind]()
        self.decisions: list[Decision] = []
        self.tracers: dict[str, TracingBroker] = {}
        self.hosts: dict[str, str] = {}
        self.homes: dict[str, str] = {}
        self.moves = MoveQueue(
            self.virtual, self.executor, inventory, self.tally, self.hosts.__getitem__, self._on_failed
        )
        self.on_sent: Callable[[str, str, TraceMessage], None] = lambda *_: None
        self.on_gathered: Callable[[Gathered], None] = lambda _: None
        self._moving: dict[str, Move] = {}
        self._asked_ms: dict[str, float] = {}
        self._is_running = True
        self._pinging = 0
        self.virtual.overlay.listeners.append(self)
        if settings:
            self._install(settings, random.Random(seed))

    # --- results so far ----------------------------------------------------------------------------------------------

    @property
    def memory_bytes_max(self) -> dict[str, int]:
        """The peak size of the traces of each broker."""
        return {broker: tracer.memory.bytes_max for broker, tracer in self.tracers.items()}

    # --- running -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Stop deciding, and execute pending decisions while traffic still flows.

        Stop the traffic only afterwards, and end the run with ``virtual.finish``. Raises RuntimeError if it takes
        longer than ``FINISH_MS_MAX``.
        """
        self._is_running = False
        end_ms = self.virtual.now_ms + FINISH_MS_MAX
        while self._pinging or not self.moves.is_idle:
            if self.virtual.now_ms > end_ms:
                raise RuntimeError(f"a move is still in progress after {FINISH_MS_MAX:g} ms: a broker is stuck")
            self.virtual.run_for(FINISH_STEP_MS)

    # --- what the overlay reports ------------------------------------------------------------------------------------

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """Record a publisher's home; once it arrives at a new one, the brokers on its path forget it."""
        if role is not Role.PUBLISHER or filter_ is None:
            return
        self.hosts.setdefault(client, home)
        self.homes[client] = home
        move = self._moving.pop(client, None)
        if move is not None:
            for broker in move.path:
                self.tracers[broker].forget(client)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def _install(self, settings: PopSettings | GrapeSettings, rng: random.Random) -> None:
        overlay = self.virtual.overlay
        for name, broker in overlay.brokers.items():
            if isinstance(settings, PopSettings):
                tracer: TracingBroker = PopBroker(name, settings, random.Random(rng.getrandbits(64)))
            else:
                tracer = GrapeBroker(name, settings.threshold, self._monitor(name, settings.link_delays))
            self.tracers[name] = tracer
            broker.core = TracingCore(
                name, bootstrap_tree(self.inventory), overlay.boot_ms, tracer, self._on_sent, self._on_decided
            )

    def _monitor(self, name: str, link_delays: bool) -> Callable[[], BrokerMonitor]:
        """Return a broker's monitor, which uses the counters that also feed its telemetry."""
        overlay, matching_ms = self.virtual.overlay, float(self.inventory.processing_cost[self.inventory.index[name]])
        link_delay_ms = overlay.timing.link_delay_ms

        def measure() -> BrokerMonitor:
            broker = overlay.brokers[name]
            neighbours = broker.core.live_neighbours
            ends = [overlay.link_ends.get((name, peer)) for peer in neighbours]
            output_ms = [end.counters.wait_ms / max(end.counters.messages_out, 1) if end else 0.0 for end in ends]
            if link_delays:
                output_ms = [
                    waited + link_delay_ms(name, peer) for waited, peer in zip(output_ms, neighbours, strict=True)
                ]
            queueing_ms = broker.counters.wait_ms / max(broker.counters.messages_out, 1)
            return BrokerMonitor(neighbours, queueing_ms, matching_ms, (*output_ms, 0.0))  # Clients do not wait.

        return measure

    def _on_sent(self, broker: str, peer: str, message: TraceMessage) -> None:
        if isinstance(message, TraceRequest | RelocationRequest) and self.homes[message.publisher] == broker:
            self._asked_ms.setdefault(message.publisher, self.virtual.now_ms)
        kind = KIND_OF_MESSAGE[type(message)]
        self.tally.note(kind, message.size_bytes, message_cost(self.inventory, broker, peer))
        self.on_sent(broker, peer, message)

    def _on_decided(self, decision: Chosen | Gathered) -> None:
        if isinstance(decision, Chosen):
            self._conclude(decision.publisher, decision.path, 0.0)
        else:
            self.on_gathered(decision)
            self._select(decision)

    def _select(self, gathered: Gathered) -> None:
        """Let the publisher ping the candidates that the selection needs, then conclude with its target."""
        if not isinstance(self.settings, GrapeSettings):
            raise TypeError(f"{type(self.settings).__name__} do not select from reports: use GrapeSettings")
        selection = Selection(self.settings, gathered.reports)
        candidates = selection.to_ping
        host, home = self.hosts[gathered.publisher], gathered.reports[0].broker
        delay_ms = self.virtual.overlay.timing.link_delay_ms
        round_trips_ms = {
            broker: delay_ms(host, broker) + delay_ms(broker, host) if broker != host else 0.0 for broker in candidates
        }
        self._count_pings(host, home, candidates)

        def decide(_: object) -> None:
            self._pinging -= 1
            target = selection.target(round_trips_ms)
            path = bootstrap_tree(self.inventory).path(home, target)
            self._conclude(gathered.publisher, path, waited_ms)

        waited_ms = max(round_trips_ms.values(), default=0.0)  # Pings are concurrent.
        self._pinging += 1
        self.virtual.env.timeout(waited_ms).callbacks.append(decide)

    def _count_pings(self, host: str, home: str, candidates: tuple[str, ...]) -> None:
        """Count a round trip to each candidate, and the home's request and its answer."""
        if not candidates:
            return
        for broker in candidates:
            if broker != host:
                cost = message_cost(self.inventory, host, broker)
                self.tally.note(MessageKind.PING, HEADER_BYTES, cost, 2)
        if home != host:
            list_bytes = HEADER_BYTES + (ID_BYTES + NUMBER_BYTES) * len(candidates)
            self.tally.note(MessageKind.PING, list_bytes, message_cost(self.inventory, home, host), 2)

    def _conclude(self, publisher: str, path: tuple[str, ...], pinged_ms: float) -> None:
        """Record the decision; have the publisher moved, or traced again if it stays."""
        now_ms = self.virtual.now_ms
        selection_ms = now_ms - self._asked_ms.pop(publisher, now_ms)
        self.decisions.append(Decision(publisher, path[0], path[-1], now_ms, selection_ms, pinged_ms))
        if len(path) > 1 and self._is_running:
            self._moving[publisher] = Move(publisher, path, now_ms)
            self.moves.hand_over(self._moving[publisher])
        elif self._is_running:
            self.tracers[path[0]].resume(publisher)

    def _on_failed(self, move: Move) -> None:
        del self._moving[move.publisher]
        self.tracers[move.path[0]].resume(move.publisher)
