"""Links that are slow or cut for a time: messages over them arrive later, and none is lost."""

from __future__ import annotations

import simpy

from regraft.overlay.overlay_configuration import Link, link


class LinkFaults:
    """Which links are slow, by which factor, and which are cut; each until a time, in both directions alike."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._slow: dict[Link, tuple[float, float]] = {}  # Factor, until when.
        self._cut_until_ms: dict[Link, float] = {}

    def slow(self, broker: str, peer: str, factor: float, for_ms: float) -> None:
        """Multiply the delay of a link by ``factor`` for a time."""
        self._slow[link(broker, peer)] = factor, self._env.now + for_ms

    def cut(self, broker: str, peer: str, for_ms: float) -> None:
        """Cut a link for a time; messages sent over it arrive afterwards, in order."""
        self._cut_until_ms[link(broker, peer)] = self._env.now + for_ms

    def is_cut(self, broker: str, peer: str) -> bool:
        """Return True if a link is cut now."""
        return self._cut_until_ms.get(link(broker, peer), 0.0) > self._env.now

    def delayed_ms(self, broker: str, peer: str, delay_ms: float) -> float:
        """Return how long a message sent now takes over a link whose usual delay is ``delay_ms``."""
        if not self._slow and not self._cut_until_ms:
            return delay_ms
        pair, now_ms = link(broker, peer), self._env.now
        factor, until_ms = self._slow.get(pair, (1.0, 0.0))
        waits_ms = max(self._cut_until_ms.get(pair, 0.0) - now_ms, 0.0)
        return waits_ms + delay_ms * (factor if now_ms < until_ms else 1.0)
