"""The whole loop on the virtual clock: emulator, reference aggregator and controller, without Kafka or Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from controller.control_loop import ControlLoop
from controller.controller_settings import ControllerSettings
from controller.memory_ports import MemoryPorts
from overlay.inventory import Inventory
from producers.checkin_settings import CheckinSettings
from producers.emulator_settings import WorkloadSettings
from producers.stock_workload import StockWorkload
from producers.virtual_overlay import VirtualOverlay, VirtualSettings
from schemas.client import Client
from schemas.command import Command
from schemas.plan import Plan, PlanPhase
from streaming.reference_aggregator import ReferenceAggregator

STEP_MS = 100.0
WINDOW_MS = 5_000
GRACE_MS = 2_000


class ClosedLoop:
    """One emulated overlay and its controller on one virtual clock; ``kill_controller`` may be called at any time."""

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | CheckinSettings,
        seed: int,
        settings: ControllerSettings | None = None,
        command_delay_ms: Callable[[Command], float] = lambda _: 5.0,
        window_ms: int = WINDOW_MS,
        flush_ms: float = 250.0,
    ) -> None:
        self.inventory = inventory
        self.virtual = VirtualOverlay(
            inventory, workload, VirtualSettings(seed=seed, flush_ms=flush_ms, command_delay_ms=command_delay_ms)
        )
        self.aggregator = ReferenceAggregator(window_ms, GRACE_MS)
        self.ports = MemoryPorts()
        self._registered: dict[str, Client] = {}
        self.settings = replace(
            settings or ControllerSettings(bootstrap="virtual", inventory_path=Path("virtual")), seed=seed
        )
        self.loop = self._new_loop()

    def _new_loop(self) -> ControlLoop:
        return ControlLoop(self.settings, self.inventory, self.ports.ports)

    def kill_controller(self) -> None:
        """Replace the controller by one that knows only what was stored; what it had not read or sent yet is lost."""
        self.ports.results.records.clear()
        self.loop = self._new_loop()

    def run_for(self, duration_ms: float) -> None:
        """Run brokers, aggregator and controller side by side."""
        end_ms = self.virtual.now_ms + duration_ms
        while self.virtual.now_ms < end_ms:
            self.step()

    def step(self) -> None:
        """Advance everything by one step of the controller's pace."""
        self.virtual.run_for(STEP_MS)
        batches = self.virtual.telemetry.batches
        while batches:
            self.aggregator.take(msgspec.to_builtins(batches.popleft()))
        for window in self.aggregator.advance():
            self.ports.state.records.extend([*window.rows, window.marker])
        results = self.virtual.results.results
        while results:
            self.ports.results.records.append(results.popleft())
        self._register_clients()
        while self.loop.step(int(self.virtual.now_ms)):
            pass
        while self.ports.commands.sent:
            self.virtual.send_command(self.ports.commands.sent.popleft())

    def _register_clients(self) -> None:
        """Let the controller know of clients what the register would tell it: on a tree only how many there are."""
        if isinstance(self.virtual.workload, StockWorkload):
            self.ports.clients.subscription_count = self.virtual.workload.subscription_count
            return
        connected = self.virtual.clients.connected
        for name in self._registered.keys() - connected.keys():
            self.ports.clients.remove(name)
        for name, client in connected.items():
            if self._registered.get(name) is not client:
                self.ports.clients.put(client)
        self._registered = dict(connected)

    def finish(self) -> None:
        """Let a plan under way come to its end with traffic still flowing, then stop the clients."""
        for _ in range(3_000):
            if not any(plan.phase not in (PlanPhase.COMPLETED, PlanPhase.ABORTED) for plan in self.plans):
                return
            self.step()
        raise AssertionError(f"a plan is still under way: {self.plans[-1]}")

    @property
    def plans(self) -> list[Plan]:
        """All plans, in the order of their epochs."""
        return sorted(self.ports.plans.stored.values(), key=lambda plan: plan.epoch_to)
