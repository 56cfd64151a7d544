"""Brokers' interests while users change topics and homes: user counts and brokers' subscription changes.

The cost of such a change is not counted here (:attr:`experiments.dynatops.dissemination.RootedTrees.change_messages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.user_changes import AT_START, Ints, Offsets, UserChanges


@dataclass(frozen=True, eq=False)
class InterestStep:
    """One step of time.

    ``user_counts`` (brokers, topics): how many users at each broker want each topic at the end of the step.
    ``changed_brokers`` and ``changed_topics`` (broker changes,): each start or end of a broker's subscription within
    the step, so a pair may occur several times. ``handovers``: how often a user changed its home.
    """

    end_h: float
    user_counts: Ints
    changed_brokers: Ints
    changed_topics: Ints
    handovers: int

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """True for the topics that each broker subscribes to, shape (brokers, topics)."""
        return self.user_counts > 0


def interest_steps(
    changes: UserChanges,
    broker_count: int,
    homes: NDArray[np.integer],
    homes_after: NDArray[np.integer] | None = None,
    step_h: float = 1.0,
    duration_h: float | None = None,
) -> Iterator[InterestStep]:
    """Yield the steps; the first one ends at 0 h and holds the initial state.

    ``homes`` (users,) are positions of brokers; ``homes_after`` (changes,) is the home of the changing user from each
    change on, by default its first home. ``duration_h`` defaults to the time of the last change. Cost
    O(subscriptions log) for all steps and O(brokers * topics) for each.
    """
    topics = changes.topic_count
    after = homes[changes.users] if homes_after is None else homes_after
    counts = np.zeros(broker_count * topics, dtype=np.int32)
    owners = np.repeat(homes.astype(np.int64), np.diff(changes.starts))
    counts += np.bincount(owners * topics + changes.wanted, minlength=len(counts)).astype(np.int32)
    begun = np.flatnonzero(counts).astype(np.int32)
    yield InterestStep(0.0, counts.reshape(broker_count, topics).copy(), begun // topics, begun % topics, 0)

    moved = after != _homes_before(changes, homes, after)
    change_of, pairs, deltas = _deltas(changes, homes, after)
    last_h = float(changes.times_h[-1]) if changes.change_count else 0.0
    steps = int(np.ceil((last_h if duration_h is None else duration_h) / step_h))
    ends_h = step_h * np.arange(1, steps + 1)
    # A change exactly at the end of a step belongs to the next step; the last step includes its end.
    ends = np.searchsorted(changes.times_h, ends_h)
    if duration_h is None and len(ends):
        ends[-1] = changes.change_count
    first = 0
    for end_h, end in zip(ends_h.tolist(), ends.tolist(), strict=True):
        rows = slice(*np.searchsorted(change_of, [first, end]).tolist())
        toggled = _toggles(counts, pairs[rows], deltas[rows])
        np.add.at(counts, pairs[rows], deltas[rows])
        handovers = int(moved[first:end].sum())
        yield InterestStep(
            end_h, counts.reshape(broker_count, topics).copy(), toggled // topics, toggled % topics, handovers
        )
        first = end


def _homes_before(changes: UserChanges, homes: NDArray[np.integer], after: NDArray[np.integer]) -> NDArray[np.integer]:
    return np.where(changes.previous == AT_START, homes[changes.users], after[changes.previous])


def _deltas(
    changes: UserChanges, homes: NDArray[np.integer], after: NDArray[np.integer]
) -> tuple[Offsets, Offsets, Ints]:
    """Return (change, pair, +1 or -1) for each (broker, topic) pair that gains or loses a user, ordered by change."""
    lengths = np.diff(changes.new_starts)
    change = np.arange(changes.change_count, dtype=np.int64)
    gained = _keys(np.repeat(change, lengths), np.repeat(after, lengths), changes.new_wanted, changes.topic_count)

    fresh = changes.previous == AT_START
    old_starts = np.where(fresh, changes.starts[changes.users], changes.new_starts[changes.previous])
    old_ends = np.where(fresh, changes.starts[changes.users + 1], changes.new_starts[changes.previous + 1])
    # One array holds the first sets followed by the new ones, so the new ones are shifted.
    shift = np.where(fresh, 0, len(changes.wanted))
    every = np.concatenate([changes.wanted, changes.new_wanted])
    old = every[_ranges(old_starts + shift, old_ends + shift)]
    sizes = old_ends - old_starts
    before = _homes_before(changes, homes, after)
    lost = _keys(np.repeat(change, sizes), np.repeat(before, sizes), old, changes.topic_count)

    rows = np.concatenate([gained, lost])
    signs = np.repeat(np.array([1, -1], dtype=np.int32), [gained.shape[0], lost.shape[0]])
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    rows, signs = rows[order], signs[order]
    same = (rows[1:] == rows[:-1]).all(axis=1)  # Lost and gained in one change: no change.
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[1:] &= ~same
    kept[:-1] &= ~same
    return rows[kept, 0], rows[kept, 1], signs[kept]


def _keys(change: Offsets, broker: NDArray[np.integer], topic: Ints, topic_count: int) -> NDArray[np.int64]:
    return np.stack([change, broker.astype(np.int64) * topic_count + topic], axis=1)


def _ranges(starts: Offsets, ends: Offsets) -> Offsets:
    """Return the numbers of all ranges [start, end), concatenated."""
    sizes = ends - starts
    offsets = np.cumsum(sizes) - sizes
    ranges: Offsets = np.arange(sizes.sum()) + np.repeat(starts - offsets, sizes)
    return ranges


def _toggles(counts: Ints, pairs: Offsets, deltas: Ints) -> Ints:
    """Return the pairs whose count reached or left 0, once per event; ``pairs`` are in the order of changes."""
    order = np.argsort(pairs, kind="stable")
    pairs, deltas = pairs[order], deltas[order]
    total = np.cumsum(deltas)
    opens = np.concatenate([[True], pairs[1:] != pairs[:-1]]) if len(pairs) else np.zeros(0, dtype=np.bool_)
    first = np.flatnonzero(opens)
    base = np.repeat(total[first] - deltas[first], np.diff(np.append(first, len(pairs))))
    now = counts[pairs] + total - base
    toggles: Ints = pairs[(now == 0) | (now - deltas == 0)].astype(np.int32)
    return toggles
