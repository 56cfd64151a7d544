"""Track until when each broker was active, and in which of its lives, from closed windows. Pure.

In: closed windows in the order of time. Out: how long brokers have been silent, which have restarted. Reacting to it
belongs to :mod:`controller.loop.follow_members`.
"""

from __future__ import annotations

from collections.abc import Mapping

from regraft.controller.state.closed_window import ClosedWindow


class BrokerActivity:
    """When each broker was last seen, in event time. Memory O(brokers)."""

    def __init__(self, boots: Mapping[str, int]) -> None:
        """Start with the known lives, by broker; 0 means none."""
        self.boots = {broker: boot for broker, boot in boots.items() if boot}
        self._last_seen_ms: dict[str, int] = {}
        self._begun_ms: int | None = None
        self.newest: ClosedWindow | None = None

    def add(self, window: ClosedWindow) -> dict[str, int]:
        """Add a window; return the brokers that reported from a later life, with their previous one."""
        self._begun_ms = window.start_ms if self._begun_ms is None else self._begun_ms
        self.newest = window
        again = {}
        for broker, boot in window.boots.items():
            self._last_seen_ms[broker] = window.end_ms
            if boot > self.boots.get(broker, 0):
                if broker in self.boots:
                    again[broker] = self.boots[broker]
                self.boots[broker] = boot
        return again

    def silent_ms(self, broker: str, since_ms: int) -> int:
        """Return how long a broker has been silent that could have been active since a time.

        Silence lasts until the end of the newest window, and begins no earlier than the first window.
        """
        if self.newest is None or self._begun_ms is None:
            return 0
        last_ms = max(self._last_seen_ms.get(broker, self._begun_ms), min(since_ms, self.newest.end_ms))
        return self.newest.end_ms - last_ms

    def was_active_since(self, broker: str, since_ms: int) -> bool:
        """Return True if the broker was active in any window that ended after a time."""
        return self._last_seen_ms.get(broker, -1) > since_ms

    def is_active_since(self, broker: str, since_ms: int) -> bool:
        """Return True if the broker was active in the newest window, and that did not begin before a time."""
        return self.newest is not None and broker in self.newest.boots and self.newest.start_ms >= since_ms
