"""The stock workload on a structured cyclic overlay: brokers receive their links' queues, and bursts are measured.

In: settings and a seed. Out: requests of clients, windows of queues for brokers, figures. Detours around congested
links may be on in every second burst only, so that one run shows both.
"""

from __future__ import annotations

import random
from typing import Any

from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.measure_bursts import BurstMeter
from regraft.producers.emulator.meter_queues import LinkMeter
from regraft.producers.workloads.stock_settings import Detours, WorkloadSettings
from regraft.producers.workloads.stock_workload import StockWorkload


class ScotWorkload(StockWorkload):
    """Publishers and subscribers of stock quotes, and the meters of links and bursts."""

    def __init__(
        self, overlay: EmulatedOverlay, settings: WorkloadSettings, rng: random.Random, detours: Detours
    ) -> None:
        super().__init__(overlay, settings, rng)
        self._emulated = overlay
        self._detours = detours
        self._burst_count = 0
        self.links = LinkMeter(overlay)
        self.bursts = BurstMeter()
        self.links.is_dynamic = detours is Detours.ALWAYS
        self.on_burst = self._note_burst

    def start(self) -> None:
        """Connect all clients and begin measuring."""
        self._emulated.ledger.watch = self.bursts.take
        self.links.start()
        super().start()

    def _note_burst(self, has_begun: bool) -> None:
        if not has_begun:
            self.bursts.end(self._emulated.env.now)
            return
        self._burst_count += 1
        if self._detours is Detours.ALTERNATE:
            self.links.is_dynamic = self._burst_count % 2 == 0
        self.bursts.begin(self._emulated.env.now, is_dynamic=self.links.is_dynamic)

    def counts(self) -> dict[str, Any]:
        """Return the status file's figures on congestion and bursts."""
        cores = (broker.core for broker in self._emulated.brokers.values())
        return {
            "clusters_diverted": sum(core.links.diverted for core in cores if isinstance(core, ScotBroker)),
            "congested_link_windows": self.links.congested_windows,
            "bursts_begun_ms": self.bursts.begun_ms,
            **self.bursts.figures(),
        }
