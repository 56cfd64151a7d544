"""A streaming job that cannot keep up gets less telemetry, decisions continue, and later it gets everything again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regraft.controller.settings.controller_settings import ControllerSettings, SamplingSettings
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import ENDED, EventKind
from regraft.streaming.reference_aggregator import ReferenceAggregator, ReferenceWindow
from tests.scenarios.closed_loop import DESCENTS_ONLY, GRACE_MS, WINDOW_MS, ClosedLoop

WORKLOAD = WorkloadSettings(
    publisher_count=12, notifications_per_s=4.0, interested_broker_count=5, lifetime_s_mean=15.0, regime_change_s=60.0
)
SLOW_FROM_S, KILL_S, SLOW_UNTIL_S, END_S = 20, 90, 125, 190


class SlowAggregator(ReferenceAggregator):
    """An aggregator that handles ``cells_per_s_max`` cells of deliveries; other batches wait in their order."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        super().__init__(WINDOW_MS, GRACE_MS)
        self.cells_per_s_max = float("inf")
        self.cells_taken = 0
        self._now_ms, self._free_from_ms = now_ms, 0.0
        self._waiting: deque[dict[str, Any]] = deque()

    def take(self, batch: Any) -> None:
        """Let the batch wait for its turn."""
        self._waiting.append(batch)

    def advance(self, event_ms: int | None = None) -> list[ReferenceWindow]:
        """Take what there is time for, and close windows accordingly."""
        now_ms = self._now_ms()
        while self._waiting and self._free_from_ms <= now_ms:
            batch = self._waiting.popleft()
            cells = len(batch["deliveries"])
            self.cells_taken += cells
            self._free_from_ms = max(self._free_from_ms, now_ms - 100) + 1000 * cells / self.cells_per_s_max
            super().take(batch)
        return super().advance(event_ms)


def test_the_share_follows_the_load_and_decisions_continue() -> None:
    """The job has time for two of three cells for a while; a controller dies meanwhile, and interests shift."""
    sampling = SamplingSettings(share_min=1 / 16, delay_windows_max=1.5, calm_windows=4)
    settings = ControllerSettings(
        bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, sampling=sampling, planners=DESCENTS_ONLY
    )
    loop = ClosedLoop(place_overlay(12, 6, random.Random(4)), WORKLOAD, 4, settings)
    loop.aggregator = slow = SlowAggregator(lambda: loop.virtual.now_ms)
    start_ms = loop.virtual.now_ms

    def run_until(time_s: float) -> None:
        loop.run_for(start_ms + time_s * 1000 - loop.virtual.now_ms)

    run_until(SLOW_FROM_S)
    assert loop.virtual.overlay.cells.sampling.share == 1
    slow.cells_per_s_max = 0.67 * slow.cells_taken / SLOW_FROM_S
    run_until(KILL_S)
    asked = loop.loop.state.asked
    assert 1 / 16 <= loop.virtual.overlay.cells.sampling.share == asked.share < 1
    loop.kill_controller()
    run_until(SLOW_UNTIL_S)
    seen = loop.loop.state
    assert seen.asked.share <= asked.share
    assert seen.newest is not None
    assert seen.newest.sets.share == seen.asked.share
    assert seen.last_decision is not None
    assert (seen.last_decision.state_verdict, seen.last_decision.window_end_ms) == (None, seen.newest.end_ms)
    assert seen.last_decision.refused, "nothing was proposed on a sample"
    slow.cells_per_s_max = float("inf")
    run_until(END_S)
    assert loop.virtual.overlay.cells.sampling.share == loop.loop.state.asked.share == 1
    assert loop.loop.state.newest is not None
    assert loop.loop.state.newest.sets.share == 1
    events = [event for event in loop.ports.events.emitted if event.kind is EventKind.SHARE_CHANGED]
    shares = [float(event.details["share"]) for event in events]
    assert 1 / 16 <= shares[0] < shares[-1] == 1
    assert [ENDED in event.details for event in events] == [share == 1 for share in shares]
    loop.finish()
    account = loop.virtual.finish()
    assert (account.lost, account.repeated, account.out_of_order, account.unexpected) == (0, 0, 0, 0)
    assert account.delivered == account.expected > 5_000
