"""Let brokers take detours in the bursts of a workload in which they should, and measure all bursts."""

from __future__ import annotations

from collections.abc import Callable

from regraft.producers.emulator.measure_bursts import BurstMeter
from regraft.producers.workloads.stock_settings import Detours


class BurstDetours:
    """``set_dynamic`` is called with whether detours are taken from now on; ``is_dynamic`` is that."""

    def __init__(self, detours: Detours, set_dynamic: Callable[[bool], None], now_ms: Callable[[], float]) -> None:
        self.meter = BurstMeter()
        self.is_dynamic = detours is Detours.ALWAYS
        self._alternates, self._burst_count = detours is Detours.ALTERNATE, 0
        self._set_dynamic, self._now_ms = set_dynamic, now_ms
        set_dynamic(self.is_dynamic)

    def note(self, has_begun: bool) -> None:
        """Note that a burst begins, or ends."""
        if not has_begun:
            self.meter.end(self._now_ms())
            return
        self._burst_count += 1
        if self._alternates:
            self.is_dynamic = self._burst_count % 2 == 0
            self._set_dynamic(self.is_dynamic)
        self.meter.begin(self._now_ms(), is_dynamic=self.is_dynamic)

    def figures(self) -> dict[str, object]:
        """Return the status file's figures on bursts."""
        return {"bursts_begun_ms": self.meter.begun_ms, **self.meter.figures()}
