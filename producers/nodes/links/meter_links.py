"""Measure the queues of a node's links, window by window, for brokers that route around congested ones.

In: how many frames were put for each peer and how many it has acknowledged, the round trip of the idle link, the time.
Out: a :class:`overlay.link_congestion.QueueWindow` for each. What is on its way over a long link waits for nothing, so
the queue is what was put longer ago than that round trip, and is not acknowledged yet. That also shows queues beyond
this machine, as in a router or a proxy, and a link that is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from regraft.overlay.link_congestion import QueueWindow
from regraft.schemas.units import SECOND_MS

SLACK_MS = 100.0  # Beyond the round trip: acknowledgements are collected, and machines are busy.
UNMEASURED_MS = 1_000.0  # The round trip of a link that has none yet.
LEAST_KEPT_S = 60.0  # A link whose round trip grows for good is as long as that after this time.


class LeastLately:
    """The least of the values noted in the last ``LEAST_KEPT_S``; the newest one always counts."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()  # With their times; both ascend.

    def note(self, now_s: float, value: float) -> None:
        """Note a value."""
        while self._values and self._values[-1][1] >= value:
            self._values.pop()
        self._values.append((now_s, value))
        while self._values[0][0] < now_s - LEAST_KEPT_S:
            self._values.popleft()

    @property
    def least(self) -> float | None:
        """The least value, None before the first."""
        return self._values[0][1] if self._values else None


@dataclass(frozen=True, slots=True)
class LinkStanding:
    """Where a link stands: frames ever put for this pair of incarnations, those no longer owed, the idle round trip.

    ``pair`` changes with the incarnation of either end, and both counts begin again.
    """

    pair: tuple[str, str]
    put: int
    over: int
    least_rtt_ms: float | None


@dataclass(slots=True)
class _Past:
    """What was put by when in the present pair of incarnations, the oldest entry no younger than needed."""

    pair: tuple[str, str]
    puts: deque[tuple[float, int]] = field(default_factory=deque)
    over: int = 0


class LinkMeter:
    """The meter of one node's links; ``standing_of`` returns where the link to a peer stands."""

    def __init__(self, standing_of: Callable[[str], LinkStanding]) -> None:
        self._standing_of = standing_of
        self._links: dict[str, _Past] = {}

    def windows(self, peers: Collection[str], now_s: float) -> dict[str, QueueWindow]:
        """Return the traffic of the links to these peers since the last call; other links are forgotten."""
        self._links = {peer: past for peer, past in self._links.items() if peer in peers}
        return {peer: self._window_of(peer, now_s) for peer in peers}

    def _window_of(self, peer: str, now_s: float) -> QueueWindow:
        standing = self._standing_of(peer)
        past = self._links.get(peer)
        if past is None or past.pair != standing.pair:
            past = self._links[peer] = _Past(standing.pair, over=standing.over)
            past.puts.append((now_s, standing.put))
            return QueueWindow()
        entered, left = standing.put - past.puts[-1][1], standing.over - past.over
        past.over = standing.over
        past.puts.append((now_s, standing.put))
        idle_ms = UNMEASURED_MS if standing.least_rtt_ms is None else standing.least_rtt_ms
        due_s = now_s - (idle_ms + SLACK_MS) / SECOND_MS
        while len(past.puts) > 1 and past.puts[1][0] <= due_s:
            past.puts.popleft()
        first_s, due = past.puts[0]
        return QueueWindow(entered, left, max(due - standing.over, 0) if first_s <= due_s else 0)
