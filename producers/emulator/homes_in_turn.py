"""Whose notifications the client of a moving subscription takes: from the homes that it has had, one after the other.

A next home hands over nothing before the earlier one has handed over everything, unless it no longer waits for that
one, which then counts as dead. It may live nevertheless and come later with something older: the client ignores it, so
that it counts as lost with that broker instead of being out of order.
"""

from __future__ import annotations

from collections import deque

ENDED_KEPT_MAX = 10_000  # Ended subscriptions to which something published before may still be handed over.


class HomesInTurn:
    """The homes of each subscription that has moved: once one has handed over anything, the earlier ones may not."""

    def __init__(self, ended_kept_max: int = ENDED_KEPT_MAX) -> None:
        self.ignored_count = 0
        self._ended_kept_max = ended_kept_max
        self._homes: dict[str, tuple[str, ...]] = {}  # Those that may hand over something, oldest first.
        self._ended: deque[str] = deque()

    def move(self, subscription: str, home: str, home_to: str) -> None:
        """Note that a subscription is about to move; if that is aborted, the next home hands over nothing."""
        homes = self._homes.get(subscription, (home,))
        self._homes[subscription] = (*(one for one in homes if one != home_to), home_to)

    def end(self, subscription: str) -> None:
        """Note that a subscription has ended: only the last ones are remembered."""
        if subscription not in self._homes:
            return
        self._ended.append(subscription)
        while len(self._ended) > self._ended_kept_max:
            del self._homes[self._ended.popleft()]

    def takes(self, subscription: str, broker: str) -> bool:
        """Return True if the client takes what a broker hands over; then it takes nothing from earlier homes."""
        homes = self._homes.get(subscription)
        if homes is None:
            return True
        if broker not in homes:
            self.ignored_count += 1
            return False
        self._homes[subscription] = homes[homes.index(broker) :]
        return True
