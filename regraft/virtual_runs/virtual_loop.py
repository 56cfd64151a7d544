"""The whole loop on the virtual clock: emulator, reference aggregator and controller, without Kafka or Spark.

In: an inventory, a workload, settings. Out: the results of a live run: plans, costs, the ledger. It runs as fast as
possible; the same input gives the same run. Comparisons do not belong here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import msgspec

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.loop.control_loop import ControlLoop
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.producers.emulator.emulate_overlay import inventory_timing
from regraft.producers.emulator.outage_schedule import outage_of
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.producers.workloads.stock_workload import StockWorkload
from regraft.schemas.client import Client
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.units import SECOND_MS
from regraft.streaming.reference_aggregator import ReferenceAggregator

START_MS = 1_700_000_000_000
STEP_MS = 100.0
WINDOW_MS = 5_000
GRACE_MS = 2_000
FINISH_STEPS_MAX = 3_000


class LoopTap(Protocol):
    """Receives what would be sent to Kafka, in the same order."""

    def on_batch(self, batch: TelemetryBatch) -> None:
        """Receive a batch of telemetry."""

    def on_client(self, name: str, client: Client | None, now_ms: int) -> None:
        """Receive a new or changed client; None if it has left."""

    def on_plan(self, plan: Plan, now_ms: int) -> None:
        """Receive a version of a plan."""


class VirtualLoop:
    """One emulated overlay and its controller on one virtual clock.

    ``step`` advances everything by STEP_MS. ``tap`` receives what would be sent to Kafka. ``stopwatch_s`` measures how
    long decisions take.
    """

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | CheckinSettings,
        settings: ControllerSettings,
        virtual: VirtualSettings,
        window_ms: int = WINDOW_MS,
        grace_ms: int = GRACE_MS,
        tap: LoopTap | None = None,
        stopwatch_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.inventory = inventory
        self.settings = settings
        if virtual.flush_ms is not None:
            virtual = replace(virtual, heartbeats=HeartbeatRule(virtual.flush_ms, window_ms, grace_ms))
        self.virtual = VirtualOverlay(inventory, workload, virtual)
        self.aggregator = ReferenceAggregator(window_ms, grace_ms)
        self.ports = MemoryPorts()
        self.ports.clients.connected = self.virtual.clients.connected
        self._tap, self._stopwatch_s = tap, stopwatch_s
        self._registered: dict[str, Client] = {}
        self._plans_reported = 0
        self.loop = self.new_loop()

    def new_loop(self) -> ControlLoop:
        """Return a controller that knows only what was stored."""
        return compose_loop(self.settings, self.inventory, self.ports.ports, stopwatch_s=self._stopwatch_s)

    def run_for(self, duration_ms: float) -> None:
        """Run brokers, aggregator and controller for this long."""
        end_ms = self.virtual.now_ms + duration_ms
        while self.virtual.now_ms < end_ms:
            self.step()

    def step(self) -> None:
        """Advance everything by STEP_MS."""
        self.virtual.run_for(STEP_MS)
        self._register_clients()
        batches = self.virtual.telemetry.batches
        while batches:
            batch = batches.popleft()
            self.aggregator.take(msgspec.to_builtins(batch))
            if self._tap is not None:
                self._tap.on_batch(batch)
        for window in self.aggregator.advance():
            self.ports.state.records.extend([*window.rows, window.marker])
        results = self.virtual.results.results
        while results:
            self.ports.results.records.append(results.popleft())
        self.ports.announcements.records.extend(self.virtual.membership.announced)
        self.virtual.membership.announced.clear()
        while self.loop.step(int(self.virtual.now_ms)):
            pass
        self.virtual.membership.members |= self.ports.plans.members.keys()
        while self.ports.commands.sent:
            self.virtual.send_command(self.ports.commands.sent.popleft())
        if (asked := self.ports.plans.sample) is not None:
            self.virtual.overlay.cells.sampling = self.virtual.settings.sampling.at_most(asked.power)
        if self._tap is not None:
            for plan in self.ports.plans.versions[self._plans_reported :]:
                self._tap.on_plan(plan, int(self.virtual.now_ms))
            self._plans_reported = len(self.ports.plans.versions)

    def finish(self) -> bool:
        """Let all present plans end while traffic continues; return True if they did within FINISH_STEPS_MAX steps.

        Other plans may begin meanwhile. If True, no transition is in progress.
        """
        so_far = {plan.plan for plan in self.plans}
        for _ in range(FINISH_STEPS_MAX):
            is_over = all(LIFE[plan.phase].is_final for plan in self.plans if plan.plan in so_far)
            if is_over and not self.loop.is_transition_running:
                return True
            self.step()
        return False

    def settle(self) -> bool:
        """Begin no plan, and let the transition in progress end; return True if it did in FINISH_STEPS_MAX steps."""
        self.loop.wind_down()
        for _ in range(FINISH_STEPS_MAX):
            if not self.loop.is_transition_running:
                return True
            self.step()
        return False

    @property
    def plans(self) -> list[Plan]:
        """All plans, by epoch."""
        return sorted(self.ports.plans.stored.values(), key=lambda plan: plan.epoch_to)

    def _register_clients(self) -> None:
        """Report to the tap who connects, moves or leaves; on a tree, count subscriptions as the workload does."""
        if isinstance(self.virtual.workload, StockWorkload):
            self.ports.clients.subscription_count = self.virtual.workload.subscription_count
        if self._tap is None:
            return
        connected, now_ms = self.virtual.clients.connected, int(self.virtual.now_ms)
        for name in sorted(self._registered.keys() - connected.keys()):
            self._tap.on_client(name, None, now_ms)
        for name, client in connected.items():
            if self._registered.get(name) is not client:
                self._tap.on_client(name, client, now_ms)
        self._registered = dict(connected)


def virtual_settings(emulator: EmulatorSettings, inventory: Inventory, start_ms: int) -> VirtualSettings:
    """Return the emulator's settings for the virtual clock; a command takes half a polling interval to arrive."""
    return VirtualSettings(
        seed=emulator.seed,
        start_ms=float(start_ms),
        flush_ms=emulator.flush_ms,
        settle_ms=emulator.settle_s * SECOND_MS,
        queue_length_max=emulator.queue_length_max,
        timing=inventory_timing(inventory, emulator.control_service_ms, emulator.link_bytes_per_ms),
        command_delay_ms=lambda _: emulator.command_poll_ms / 2,
        outages=tuple(outage_of(text) for text in emulator.outages),
        notice_ms=emulator.outage_notice_ms,
        chaos=emulator.chaos,
        candidate_probes_per_s=emulator.candidate_probes_per_s,
    )
