"""The generic Poisson model of Zhao13: users replace a topic at random times.

In: settings and a seeded generator. Out: :class:`UserChanges`. Homes, brokers and rates of topics do not belong here.

Source: Zhao13, section 6.1.2. The text gives 50,000 users, 1,000 topics, 5 topics for each user, 100 hours, the three
patterns, 100 modes of 10 topics, and rates of 0.1 and 0.025 (section 6.3). Readings:

- the rate counts one user's changes per hour, so 50,000 users make 500,000 changes at 0.1;
- a change replaces a uniformly random one of the user's topics by a topic that the user does not have, drawn by the
  pattern, for multimodal within the user's mode; with ``redraws_mode`` a change moves the user to another mode and
  draws five topics of it;
- a user's topics are distinct and drawn one after the other;
- the exponent of Zipf's law is not given. The default is 1, the law in its plain form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.user_changes import Floats, Ints, UserChanges, changes_of_tables

Pattern = Literal["uniform", "zipf", "multimodal"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


@dataclass(frozen=True)
class PoissonSettings:
    """The numbers of section 6.1.2. ``broker_count`` and ``step_h`` are for the placement of users.

    ``zipf_exponent`` applies to the pattern zipf, ``mode_count`` and ``redraws_mode`` to multimodal. Raises ValueError
    if users hold all the topics that they choose from, so that none is left to change to.
    """

    pattern: Pattern = "multimodal"
    changes_per_user_h: float = 0.1
    user_count: int = 50_000
    broker_count: int = 100
    topic_count: int = 1_000
    topics_per_user: int = 5
    duration_h: float = 100.0
    step_h: float = 1.0
    zipf_exponent: float = 1.0
    mode_count: int = 100
    redraws_mode: bool = False

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise ValueError(f"pattern is {self.pattern!r}: expected one of {', '.join(PATTERNS)}")
        if self.topic_count % self.modes or (self.redraws_mode and self.modes == 1):
            raise ValueError(
                f"mode_count is {self.mode_count} and topic_count {self.topic_count}: modes are equally large, and one "
                "is only redrawn with the pattern multimodal and two modes at least"
            )
        if self.topics_per_user >= self.mode_size:
            raise ValueError(
                f"topics_per_user is {self.topics_per_user}: a change needs one of {self.mode_size} topics that the "
                "user does not have, so give fewer"
            )

    @property
    def modes(self) -> int:
        """The number of modes; 1 for patterns without modes."""
        return self.mode_count if self.pattern == "multimodal" else 1

    @property
    def mode_size(self) -> int:
        """The number of topics that a user chooses from: those of a mode, or all."""
        return self.topic_count // self.modes

    @cached_property
    def popularity_ends(self) -> Floats:
        """Cumulative probabilities of the topics that a user chooses from, shape (mode_size + 1,), from 0 to 1."""
        # The paper counts topics from 1, and gives the i-th the weight (i + 1)^-s.
        ranks = np.arange(2, self.mode_size + 2, dtype=np.float64)
        weights = ranks**-self.zipf_exponent if self.pattern == "zipf" else np.ones(self.mode_size)
        return np.concatenate([[0.0], np.cumsum(weights) / weights.sum()])


def draw_poisson_changes(settings: PoissonSettings, rng: np.random.Generator) -> UserChanges:
    """Return the users' topics and changes. Cost O(changes), in as many array steps as the most changes of a user."""
    size = settings.mode_size
    modes = rng.integers(settings.modes, size=settings.user_count)
    held = _first_topics(settings, settings.user_count, rng)
    initial = held + (modes * size)[:, None]

    count = int(rng.poisson(settings.changes_per_user_h * settings.duration_h * settings.user_count))
    times_h = np.sort(rng.uniform(0, settings.duration_h, count))
    users = rng.integers(settings.user_count, size=count).astype(np.int32)
    tables = np.empty((count, settings.topics_per_user), dtype=np.int32)
    for rows in _turns(users):
        who = users[rows]
        if settings.redraws_mode:
            modes[who] = (modes[who] + rng.integers(1, settings.modes, size=len(who))) % settings.modes
            held[who] = _first_topics(settings, len(who), rng)
        else:
            held[who] = _replaced(settings, held[who], rng)
        tables[rows] = held[who] + (modes[who] * size)[:, None]
    return changes_of_tables(settings.topic_count, initial.astype(np.int32), times_h, users, tables)


def _turns(users: Ints) -> Iterator[NDArray[np.int64]]:
    """Yield the first changes of all users, then the second ones, and so on.

    A user's changes depend on its earlier ones, but not on those of other users, so each batch is drawn at once.
    """
    order = np.argsort(users, kind="stable")
    ranks = np.empty(len(users), dtype=np.int64)
    ranks[order] = np.arange(len(users)) - np.searchsorted(users[order], users[order])
    by_rank = np.argsort(ranks, kind="stable")
    bounds = np.searchsorted(ranks[by_rank], np.arange(int(ranks.max(initial=-1)) + 2)).tolist()
    for first, end in pairwise(bounds):
        yield by_rank[first:end]


def _first_topics(settings: PoissonSettings, count: int, rng: np.random.Generator) -> Ints:
    """Return topics of a mode for ``count`` users, shape (count, topics_per_user), drawn one after the other."""
    held = np.empty((count, 0), dtype=np.int32)
    for _ in range(settings.topics_per_user):
        held = np.column_stack([held, _other_topics(settings, held, rng)])
    return held


def _replaced(settings: PoissonSettings, held: Ints, rng: np.random.Generator) -> Ints:
    changed = held.copy()
    place = rng.integers(settings.topics_per_user, size=len(held))
    changed[np.arange(len(held)), place] = _other_topics(settings, held, rng)
    return changed


def _other_topics(settings: PoissonSettings, held: Ints, rng: np.random.Generator) -> Ints:
    """Return for each row a topic that it does not hold, drawn by popularity, exactly and without rejection."""
    ends = settings.popularity_ends
    rising = np.sort(held, axis=1)
    free = 1.0 - (ends[rising + 1] - ends[rising]).sum(axis=1)
    at = rng.uniform(size=len(held)) * free
    for column in rising.T:
        # ``at`` counts only the shares of topics not held: skip the share of each held topic at or before it.
        at = np.where(at >= ends[column], at + ends[column + 1] - ends[column], at)
    drawn: Ints = np.minimum(np.searchsorted(ends, at, side="right") - 1, settings.mode_size - 1).astype(np.int32)
    clash = (drawn[:, None] == held).any(axis=1)  # Only by rounding at the edge of a held topic.
    if clash.any():
        drawn[clash] = _other_topics(settings, held[clash], rng)
    return drawn
