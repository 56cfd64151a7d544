"""Users, their homes and the topics they subscribe to at one moment, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class UserInterests:
    """Users, their homes, and the topics that each user wants.

    ``homes`` (users,) are positions in ``brokers``. User u wants the topics at positions ``wanted[starts[u]:starts[u +
    1]]``, ascending and distinct; ``starts`` has shape (users + 1,). ``brokers``, ``topics`` and ``users`` are sorted.
    """

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    users: tuple[str, ...]
    homes: Positions
    starts: NDArray[np.int64]
    wanted: Positions

    @classmethod
    def of(
        cls,
        brokers: Sequence[str],
        users: Mapping[str, tuple[str, Iterable[str]]],
        topics: Iterable[str] = (),
    ) -> UserInterests:
        """Build from ``user -> (home, topics)``; ``topics`` adds topics that no user may want.

        Raises KeyError if a home is not a broker.
        """
        ordered = tuple(sorted(brokers))
        place = {broker: position for position, broker in enumerate(ordered)}
        names = sorted(users)
        sets = [sorted(set(users[name][1])) for name in names]
        named = tuple(sorted(set(topics).union(*sets)))
        topic = {name: position for position, name in enumerate(named)}
        return cls(
            ordered,
            named,
            tuple(names),
            np.array([place[users[name][0]] for name in names], dtype=np.int32),
            np.cumsum([0, *(len(one) for one in sets)], dtype=np.int64),
            np.array([topic[name] for one in sets for name in one], dtype=np.int32),
        )

    @property
    def user_count(self) -> int:
        """The number of users."""
        return len(self.users)

    @property
    def subscription_count(self) -> int:
        """The number of subscriptions of all users together."""
        return len(self.wanted)

    @cached_property
    def position_of(self) -> dict[str, int]:
        """Each user's position."""
        return {user: position for position, user in enumerate(self.users)}

    @cached_property
    def owners(self) -> Positions:
        """The user of each subscription, shape (subscriptions,)."""
        return np.repeat(np.arange(len(self.users), dtype=np.int32), np.diff(self.starts))

    @cached_property
    def user_counts(self) -> NDArray[np.int32]:
        """The number of users at each broker who want each topic, (brokers, topics); above 0, the broker subscribes."""
        count = len(self.topics)
        at = self.homes[self.owners].astype(np.int64) * count + self.wanted
        counts = np.bincount(at, minlength=len(self.brokers) * count).astype(np.int32)
        return counts.reshape(len(self.brokers), count)

    @cached_property
    def loads(self) -> NDArray[np.float64]:
        """L_b of each broker: its users' share of all subscriptions (Zhao13, section 4), shape (brokers,)."""
        local = self.user_counts.sum(axis=1)
        return np.asarray(local / max(self.subscription_count, 1))

    def topics_of(self, user: str) -> tuple[str, ...]:
        """Return the topics that a user wants, sorted."""
        position = self.position_of[user]
        return tuple(self.topics[one] for one in self.wanted[self.starts[position] : self.starts[position + 1]])

    def at_homes(self, homes: Mapping[str, str]) -> UserInterests:
        """Return the same users at these homes; users not in ``homes`` stay, unknown users are ignored.

        Raises KeyError if a home is not a broker.
        """
        place = {broker: position for position, broker in enumerate(self.brokers)}
        moved = self.homes.copy()
        for user, home in homes.items():
            position = self.position_of.get(user)
            if position is not None:
                moved[position] = place[home]
        return replace(self, homes=moved)

    def over(self, brokers: tuple[str, ...]) -> UserInterests:
        """Return the users whose home is among these sorted brokers, over all topics; other users are left out."""
        if brokers == self.brokers:
            return self
        place = {broker: position for position, broker in enumerate(brokers)}
        homes = np.array([place.get(broker, -1) for broker in self.brokers], dtype=np.int32)[self.homes]
        kept = homes >= 0
        sizes = np.diff(self.starts)
        return replace(
            self,
            brokers=brokers,
            users=tuple(user for user, stays in zip(self.users, kept.tolist(), strict=True) if stays),
            homes=homes[kept],
            starts=np.concatenate([[0], np.cumsum(sizes[kept])]).astype(np.int64),
            wanted=self.wanted[np.repeat(kept, sizes)],
        )
