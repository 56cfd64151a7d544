"""The control loop on the virtual clock for scenarios: with a controller that may be killed, and any delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regraft.controller.planners.tree.pack_users_drop import PackingSettings
from regraft.controller.planners.tree.swap_links_cost import SearchSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import Command
from regraft.virtual_runs.virtual_loop import GRACE_MS, WINDOW_MS, VirtualLoop

__all__ = ["DESCENTS_ONLY", "GRACE_MS", "WINDOW_MS", "ClosedLoop"]

# Settings of planners for scenarios that are not about how good plans are: kicks after the descents would take most of
# the time.
DESCENTS_ONLY = {
    "swap_links_cost": SearchSettings(escape_words_max=0),
    "pack_drop": PackingSettings(escape_words_max=0),
}


class ClosedLoop(VirtualLoop):
    """An emulated overlay and its controller on one virtual clock; ``kill_controller`` may be called at any time."""

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
        acting = ControllerSettings(
            bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, planners=DESCENTS_ONLY
        )
        super().__init__(
            inventory,
            workload,
            replace(settings or acting, seed=seed),
            VirtualSettings(seed=seed, flush_ms=flush_ms, command_delay_ms=command_delay_ms),
            window_ms,
        )

    def kill_controller(self) -> None:
        """Replace the controller by one that knows only what was stored; what it had not yet read or sent is lost."""
        self.ports.results.records.clear()
        self.loop = self.new_loop()

    def finish(self) -> bool:
        """Let a plan under way end with traffic still flowing, then stop the clients.

        Raises AssertionError if it does not.
        """
        if not super().finish():
            raise AssertionError(f"a plan is still under way: {self.plans[-1]}")
        return True
