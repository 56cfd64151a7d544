"""Counts of a ring's users: which broker subscribes to which topic because of them, and how long their moves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


class BrokerTopics:
    """Which broker subscribes to which topic because of its users, and how often that has changed.

    A broker subscribes to a topic as long as one of its users does (Zhao13, section 3). ``changes`` is what the paper
    calls brokers' subscription changes.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._users: Counter[tuple[str, str]] = Counter()

    def add(self, home: str, topics: Iterable[str]) -> None:
        """Add a user's topics at this broker."""
        for topic in topics:
            self._users[home, topic] += 1
            self.changes += self._users[home, topic] == 1

    def remove(self, home: str, topics: Iterable[str]) -> None:
        """Remove a user's topics at this broker."""
        for topic in topics:
            self._users[home, topic] -= 1
            if not self._users[home, topic]:
                del self._users[home, topic]
                self.changes += 1

    @property
    def subscription_count(self) -> int:
        """Number of (broker, topic) pairs."""
        return len(self._users)


@dataclass(slots=True)
class UserCounts:
    """Users that changed their home, and the requests they made meanwhile: how many, and how long until confirmed."""

    moved: int = 0
    asked: int = 0
    wait_ms_sum: float = 0.0
    wait_ms_max: float = 0.0
