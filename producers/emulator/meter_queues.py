"""Report to brokers of a structured cyclic overlay, window by window, the traffic at the queues of their links.

A link's queue is what its bandwidth has not sent yet, not what is on its way. The broker decides when a queue is
congested.
"""

from __future__ import annotations

import simpy

from regraft.overlay.link_congestion import WINDOW_MS, QueueWindow
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.emulated_broker import LinkEnd

Pair = tuple[str, str]


class LinkMeter:
    """Measures all links each ``window_ms`` from :meth:`start` to :meth:`stop`, on the overlay's clock.

    ``congested_windows`` counts the windows, over all links, in which a broker considered its link congested.
    ``is_dynamic``: whether brokers send notifications around such links.
    """

    def __init__(self, overlay: EmulatedOverlay, window_ms: float = WINDOW_MS) -> None:
        self._overlay = overlay
        self._window_ms = window_ms
        self._before: dict[Pair, tuple[int, int]] = {}  # Messages entered since the start, messages queued.
        self._is_running = False
        self.congested_windows = 0
        self.is_dynamic = True

    def start(self) -> None:
        """Begin with the next window."""
        self._is_running = True
        self._schedule()

    def stop(self) -> None:
        """Stop measuring; brokers consider their links free from now on."""
        self._is_running = False
        for core in self._cores().values():
            core.links.observe({})

    def _cores(self) -> dict[str, ScotBroker]:
        cores = ((name, broker.core) for name, broker in self._overlay.brokers.items())
        return {name: core for name, core in cores if isinstance(core, ScotBroker)}

    def _schedule(self) -> None:
        self._overlay.env.timeout(self._window_ms).callbacks.append(self._measure)

    def _measure(self, _: simpy.Event) -> None:
        if not self._is_running:
            return
        windows: dict[str, dict[str, QueueWindow]] = {}
        for pair, end in self._overlay.link_ends.items():
            windows.setdefault(pair[0], {})[pair[1]] = self._window_of(pair, end)
        for name, core in self._cores().items():
            core.links.is_dynamic = self.is_dynamic
            core.links.observe(windows.get(name, {}))
            self.congested_windows += len(core.links.hot)
        self._schedule()

    def _window_of(self, pair: Pair, end: LinkEnd) -> QueueWindow:
        entered_before, queued_before = self._before.get(pair, (0, 0))
        entered, queued = end.counters.messages_in, self._queued(end)
        self._before[pair] = entered, queued
        arrived = entered - entered_before
        return QueueWindow(arrived, max(arrived + queued_before - queued, 0), queued)

    def _queued(self, end: LinkEnd) -> int:
        """Return how many messages of the link's mean size still wait for its bandwidth."""
        bytes_per_ms = self._overlay.timing.bytes_per_ms_max
        if bytes_per_ms is None or not end.counters.messages_in:
            return 0
        backlog_bytes = max(end.busy_until_ms - self._overlay.env.now, 0.0) * bytes_per_ms
        return round(backlog_bytes * end.counters.messages_in / end.counters.bytes_in)
