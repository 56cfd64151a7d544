"""Users whose topics change: each user's first set of topics, and its whole new set at each change, in order of time.

Users' homes do not belong here (:mod:`experiments.dynatops.broker_interests`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Offsets = NDArray[np.int64]
Floats = NDArray[np.float64]

AT_START = -1  # Stands for the change that gave a user its first set.


@dataclass(frozen=True, eq=False)
class UserChanges:
    """Topics of users over time; a topic is an integer from 0 to ``topic_count`` - 1.

    User u starts with ``wanted[starts[u]:starts[u + 1]]``. Change c, at ``times_h[c]``, replaces all topics of user
    ``users[c]`` by ``new_wanted[new_starts[c]:new_starts[c + 1]]``. Times never decrease; the topics of a set are
    distinct and ascending.
    """

    topic_count: int
    starts: Offsets
    wanted: Ints
    times_h: Floats
    users: Ints
    new_starts: Offsets
    new_wanted: Ints

    @property
    def user_count(self) -> int:
        """The number of users."""
        return len(self.starts) - 1

    @property
    def change_count(self) -> int:
        """The number of changes."""
        return len(self.times_h)

    def initial_topics(self) -> list[Ints]:
        """Return each user's first set of topics."""
        return np.split(self.wanted, self.starts[1:-1])

    def changes(self, from_h: float = 0.0, until_h: float = np.inf) -> Iterator[tuple[float, int, Ints]]:
        """Yield (time in h, user, all its topics from then on) for the changes in [from_h, until_h)."""
        first, end = np.searchsorted(self.times_h, [from_h, until_h]).tolist()
        bounds = self.new_starts[first : end + 1].tolist()
        rows = zip(self.times_h[first:end].tolist(), self.users[first:end].tolist(), strict=True)
        for place, (time_h, user) in enumerate(rows):
            yield time_h, user, self.new_wanted[bounds[place] : bounds[place + 1]]

    @cached_property
    def previous(self) -> Offsets:
        """The preceding change of the same user for each change, AT_START for its first, shape (changes,)."""
        order = np.argsort(self.users, kind="stable")
        before = np.full(self.change_count, AT_START, dtype=np.int64)
        same = self.users[order][1:] == self.users[order][:-1]
        before[order[1:][same]] = order[:-1][same]
        return before


def changes_of_tables(topic_count: int, initial: Ints, times_h: Floats, users: Ints, tables: Ints) -> UserChanges:
    """Build from tables of topics, shape (users, width) and (changes, width); duplicates in a row count once.

    Changes must be in order of time.
    """
    starts, wanted = _sets(initial)
    new_starts, new_wanted = _sets(tables)
    return UserChanges(topic_count, starts, wanted, times_h, users, new_starts, new_wanted)


def differing(initial: Ints, users: Ints, tables: Ints) -> NDArray[np.bool_]:
    """Mark the changes that give a user a different set, shape (changes,); arguments as for ``changes_of_tables``."""
    order = np.argsort(users, kind="stable")
    later = _canonical(tables)[order]
    before = np.concatenate([later[:1], later[:-1]])
    fresh = np.concatenate([[True], users[order][1:] != users[order][:-1]])[: len(users)]
    before[fresh] = _canonical(initial)[users[order][fresh]]
    differing_users = np.empty(len(users), dtype=np.bool_)
    differing_users[order] = (before != later).any(axis=1)
    return differing_users


def _sets(table: Ints) -> tuple[Offsets, Ints]:
    """Return where each row starts, and the distinct topics of all rows, ascending within each row."""
    ordered = np.sort(table, axis=1)
    kept = ~_repeated(ordered)
    return np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64), ordered[kept].astype(np.int32)


def _canonical(table: Ints) -> Ints:
    """Return rows that are equal if and only if their sets are: sorted, with padding at the end for duplicates."""
    ordered = np.sort(table, axis=1)
    return np.sort(np.where(_repeated(ordered), np.iinfo(np.int32).max, ordered), axis=1)


def _repeated(ordered: Ints) -> NDArray[np.bool_]:
    twice = np.zeros(ordered.shape, dtype=np.bool_)
    twice[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return twice
