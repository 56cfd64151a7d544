"""A whole emulated overlay on the virtual clock, for tests and experiments: as fast as possible, step by step.

In: an inventory, perhaps a workload, and any delay as a function. Out: everything that would go to Kafka, in memory,
and the ledger. Wall clock and Kafka belong to :mod:`producers.run_emulator`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import simpy

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.emulator.delivery_cells import CellRule
from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.producers.emulator.emit_telemetry import CANDIDATES_MAX, ReportForwarder, TelemetryEmitter
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay, OverlayTiming, inventory_timing
from regraft.producers.emulator.emulator_ports import (
    MemoryClients,
    MemoryMembership,
    MemoryResults,
    MemoryTelemetry,
    TelemetrySink,
)
from regraft.producers.emulator.ledger import Ledger, LedgerSnapshot
from regraft.producers.emulator.newcomers import Newcomer, with_newcomers
from regraft.producers.emulator.outage_schedule import Chaos, Outage, with_names
from regraft.producers.emulator.play_newcomers import NewcomerPlayer
from regraft.producers.emulator.play_outages import OutagePlayer
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.checkin_workload import CheckinWorkload
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.producers.workloads.stock_workload import StockWorkload
from regraft.schemas.command import Command
from regraft.schemas.sampled_blocks import FULL, Sampling
from regraft.schemas.units import SECOND_MS

CELLS_KEPT_S = 120
CONTROL_SERVICE_MS = 0.05
QUEUE_LENGTH_MAX = 10_000
DRAIN_STEP_MS = 100.0


@dataclass(frozen=True, slots=True)
class VirtualSettings:
    """How a virtual overlay runs.

    ``start_ms``: epoch time at which it starts. ``flush_ms``: pause between two telemetry batches of a broker, None for
    no telemetry. ``start``: where brokers begin, None for the bootstrap overlay. ``settle_ms``: age from which a
    missing notification counts as lost. ``timing``: None for the inventory's costs as ms. ``command_delay_ms``: time
    from sending a command until it is in its broker's queue. ``outages``, ``chaos``: outages of brokers and links,
    counted from ``start_ms``; ``notice_ms``: time until neighbours notice a death, at least.
    ``candidate_probes_per_s``: probes, by all brokers together, of links that are not in the overlay;
    ``candidates_max``: how many peers each broker probes. ``newcomers``: brokers that come later and announce
    themselves. ``sampling``: which blocks brokers report in full. ``subscribers_reported_max``: how many single
    subscribers each broker reports separately. ``heartbeats``: which flushes without news still send, None for all.
    """

    seed: int = 1
    start_ms: float = 1_000_000.0
    start: StartingPoint | None = None
    flush_ms: float | None = 250.0
    settle_ms: float = 60_000.0
    queue_length_max: int = QUEUE_LENGTH_MAX
    timing: OverlayTiming | None = None
    command_delay_ms: Callable[[Command], float] = field(default=lambda _: 0.0)
    outages: tuple[Outage, ...] = ()
    notice_ms: float = 2_000.0
    chaos: Chaos | None = None
    candidate_probes_per_s: float = 0.0
    candidates_max: int = CANDIDATES_MAX
    newcomers: tuple[Newcomer, ...] = ()
    sampling: Sampling = FULL
    subscribers_reported_max: int = 0
    heartbeats: HeartbeatRule | None = None


class VirtualOverlay:
    """Brokers, links, clients, telemetry and ledger on one virtual clock.

    ``workload`` None leaves all clients to the caller, through ``overlay``. ``telemetry_sink`` replaces the in-memory
    ``telemetry``, which then stays empty.
    """

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | CheckinSettings | None = None,
        settings: VirtualSettings | None = None,
        telemetry_sink: TelemetrySink | None = None,
    ) -> None:
        self.settings = settings or VirtualSettings()
        rng = random.Random(self.settings.seed)
        inventory = with_newcomers(inventory, self.settings.newcomers)
        self.env = simpy.Environment(initial_time=self.settings.start_ms)
        self.ledger = Ledger(self.settings.settle_ms)
        self.overlay = EmulatedOverlay(
            self.env,
            inventory,
            self.settings.timing or inventory_timing(inventory, CONTROL_SERVICE_MS),
            self.ledger,
            queue_length_max=self.settings.queue_length_max,
            cells=CellRule(CELLS_KEPT_S, self.settings.sampling, self.settings.subscribers_reported_max),
            start=self.settings.start,
        )
        self.telemetry = MemoryTelemetry()
        self.results = MemoryResults()
        self.clients = MemoryClients()
        self.membership = MemoryMembership()
        self.workload = self._workload_of(workload, rng)
        forwarder = ReportForwarder(self.overlay, self.results, self.clients, self._publisher_rate_per_s)
        self.overlay.listeners.append(forwarder)
        self.emitter = self._emitter_to(telemetry_sink or self.telemetry, rng)
        if self.settings.flush_ms is not None:
            self.emitter.start()
        if self.workload:
            self.workload.start()
        NewcomerPlayer(self.overlay, self.settings.newcomers, self.emitter, self.membership).start()
        self.outages = self._outages_of(inventory)
        self.outages.start()

    def _emitter_to(self, sink: TelemetrySink, rng: random.Random) -> TelemetryEmitter:
        settings = self.settings
        return TelemetryEmitter(
            self.overlay,
            sink,
            settings.flush_ms or 1.0,
            rng,
            settings.candidate_probes_per_s,
            settings.candidates_max,
            settings.heartbeats,
        )

    def _outages_of(self, inventory: Inventory) -> OutagePlayer:
        settings = self.settings
        outages = [with_names(outage, inventory) for outage in settings.outages]
        return OutagePlayer(
            self.overlay, outages, settings.notice_ms, settings.chaos, random.Random(f"outages {settings.seed}")
        )

    def _workload_of(
        self, settings: WorkloadSettings | CheckinSettings | None, rng: random.Random
    ) -> StockWorkload | CheckinWorkload | None:
        if isinstance(settings, CheckinSettings):
            return CheckinWorkload(self.overlay, settings, rng)
        return StockWorkload(self.overlay, settings, rng) if settings else None

    def _publisher_rate_per_s(self, publisher: str) -> float:
        return self.workload.publisher_rate_per_s(publisher) if self.workload else 0.0

    @property
    def now_ms(self) -> float:
        """The virtual time."""
        return float(self.env.now)

    @property
    def cores(self) -> Mapping[str, BrokerProtocol]:
        """The cores of the brokers by name."""
        return {name: broker.core for name, broker in self.overlay.brokers.items()}

    def send_command(self, command: Command) -> None:
        """Send a command; it reaches its broker's queue after ``command_delay_ms``, so commands may be reordered."""
        delay_ms = self.settings.command_delay_ms(command)
        self.env.timeout(delay_ms).callbacks.append(lambda _: self.overlay.obey(command))

    def run_until(self, time_ms: float) -> None:
        """Advance the clock to this time, settling the ledger every second."""
        while self.env.now < time_ms:
            self.env.run(until=min(self.env.now + SECOND_MS, time_ms))
            self.ledger.settle(self.env.now)

    def run_for(self, duration_ms: float) -> None:
        """Advance the clock by this time."""
        self.run_until(self.env.now + duration_ms)

    def finish(self, drain_ms_max: float = 60_000.0) -> LedgerSnapshot:
        """End all traffic and outages, run until the model is quiet, flush all telemetry, return the final account.

        The account is not final if the model has not become quiet within ``drain_ms_max``, for example while a
        transition that no controller drives holds deliveries back.
        """
        if self.workload:
            self.workload.stop()
        self.overlay.publishers.stop()
        self.outages.stop()
        end_ms = self.env.now + drain_ms_max
        while not self.overlay.is_quiet and self.env.now < end_ms:
            self.run_for(DRAIN_STEP_MS)
        self.emitter.flush_all()
        return self.ledger.close() if self.overlay.is_quiet else self.ledger.snapshot()
