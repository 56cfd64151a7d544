"""Links that are slow or cut for a time: what is sent over them comes later, and nothing is lost."""

from __future__ import annotations

import simpy

from regraft.overlay.configuration import link
from regraft.overlay.overlay_configuration import Link


class LinkFaults:
    """Which links are slow, and which are cut until when; both ways alike. ``until_ms`` bounds each fault."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._slow: dict[Link, tuple[float, float]] = {}  # Factor, until when.
        self._cut_until_ms: dict[Link, float] = {}

    def slow(self, broker: str, peer: str, factor: float, for_ms: float) -> None:
        """Let messages take ``factor`` times as long over a link for a time."""
        self._slow[link(broker, peer)] = factor, self._env.now + for_ms

    def cut(self, broker: str, peer: str, for_ms: float) -> None:
        """Let nothing sent over a link arrive for a time; it comes then, in its order."""
        self._cut_until_ms[link(broker, peer)] = self._env.now + for_ms

    def is_cut(self, broker: str, peer: str) -> bool:
        """Return True if nothing gets over a link now."""
        return self._cut_until_ms.get(link(broker, peer), 0.0) > self._env.now

    def delayed_ms(self, broker: str, peer: str, delay_ms: float) -> float:
        """Return how long what is sent now takes over a link that takes ``delay_ms`` as a rule."""
        if not self._slow and not self._cut_until_ms:
            return delay_ms
        pair, now_ms = link(broker, peer), self._env.now
        factor, until_ms = self._slow.get(pair, (1.0, 0.0))
        waits_ms = max(self._cut_until_ms.get(pair, 0.0) - now_ms, 0.0)
        return waits_ms + delay_ms * (factor if now_ms < until_ms else 1.0)
