"""Users' topic sets over time, and the resulting interests of brokers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.dynatops.broker_interests import interest_steps
from regraft_lab.dynatops.user_changes import AT_START, UserChanges, changes_of_tables, differing

TOPICS, BROKERS = 4, 3


def _changes(initial: list[list[int]], later: list[tuple[float, int, list[int]]]) -> UserChanges:
    width = len(initial[0])
    return changes_of_tables(
        TOPICS,
        np.array(initial, dtype=np.int32),
        np.array([time_h for time_h, _, _ in later], dtype=np.float64),
        np.array([user for _, user, _ in later], dtype=np.int32),
        np.array([topics for _, _, topics in later], dtype=np.int32).reshape(-1, width),
    )


def test_sets_have_each_topic_once() -> None:
    """A row that names a topic twice is a smaller set."""
    changes = _changes([[2, 0, 2], [1, 1, 1]], [(0.5, 1, [3, 0, 3]), (1.5, 0, [1, 2, 3]), (2.5, 1, [0, 0, 0])])
    assert [topics.tolist() for topics in changes.initial_topics()] == [[0, 2], [1]]
    assert [(time_h, user, topics.tolist()) for time_h, user, topics in changes.changes()] == [
        (0.5, 1, [0, 3]),
        (1.5, 0, [1, 2, 3]),
        (2.5, 1, [0]),
    ]
    assert changes.previous.tolist() == [AT_START, AT_START, 0]
    assert [user for _, user, _ in changes.changes(from_h=0.5, until_h=2.5)] == [1, 0]


def test_a_change_differs_by_its_set_not_by_its_row() -> None:
    """Order and repetition in a row are irrelevant."""
    initial = np.array([[0, 1, 1], [2, 2, 2]], dtype=np.int32)
    users = np.array([0, 1, 0, 0], dtype=np.int32)
    tables = np.array([[1, 0, 0], [2, 2, 3], [0, 1, 2], [2, 1, 0]], dtype=np.int32)
    assert differing(initial, users, tables).tolist() == [False, True, True, False]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[tuple[float, int, list[int]]], list[int]]:
    """Return users with sets and homes, and changes of both, several of them within one hour."""
    users = draw(st.integers(1, 4))
    sets = st.lists(st.integers(0, TOPICS - 1), min_size=2, max_size=2)
    homes = st.integers(0, BROKERS - 1)
    count = draw(st.integers(0, 12))
    times = sorted(draw(st.lists(st.integers(0, 11), min_size=count, max_size=count)))
    later = [(time / 4, draw(st.integers(0, users - 1)), draw(sets)) for time in times]
    return (
        [draw(sets) for _ in range(users)],
        [draw(homes) for _ in range(users)],
        later,
        [draw(homes) for _ in range(count)],
    )


@given(histories())
def test_steps_count_what_one_change_after_the_other_does(
    history: tuple[list[list[int]], list[int], list[tuple[float, int, list[int]]], list[int]],
) -> None:
    """User counts, beginnings and ends of brokers' subscriptions and handovers equal those of single changes."""
    initial, homes, later, homes_after = history
    steps = list(
        interest_steps(
            _changes(initial, later),
            BROKERS,
            np.array(homes),
            np.array(homes_after, dtype=np.int64),
            duration_h=3.0,
        )
    )
    at, sets = list(homes), [set(topics) for topics in initial]
    counts = np.zeros((BROKERS, TOPICS), dtype=int)
    for home, topics in zip(at, sets, strict=True):
        counts[home, sorted(topics)] += 1
    assert (steps[0].user_counts == counts).all()
    for step in steps[1:]:
        toggled, moved = [], 0
        for (time_h, user, topics), home in zip(later, homes_after, strict=True):
            if not step.end_h - 1 <= time_h < step.end_h:
                continue
            before = counts > 0
            counts[at[user], sorted(sets[user])] -= 1
            moved += at[user] != home
            at[user], sets[user] = home, set(topics)
            counts[home, sorted(topics)] += 1
            toggled += np.argwhere(before != (counts > 0)).tolist()
        assert (step.user_counts == counts).all()
        assert (step.wanted == (counts > 0)).all()
        found = zip(step.changed_brokers.tolist(), step.changed_topics.tolist(), strict=True)
        assert sorted(found) == sorted(map(tuple, toggled))
        assert step.handovers == moved


def test_steps_last_until_the_last_change_when_no_end_is_given() -> None:
    """A change at the last boundary is not lost."""
    changes = _changes([[0, 1]], [(0.5, 0, [1, 2]), (2.0, 0, [2, 3])])
    steps = list(interest_steps(changes, 1, np.array([0])))
    assert [step.end_h for step in steps] == [0.0, 1.0, 2.0]
    assert np.flatnonzero(steps[-1].wanted[0]).tolist() == [2, 3]
    assert len(list(interest_steps(_changes([[0, 1]], []), 1, np.array([0])))) == 1


@pytest.mark.parametrize("homes_after", [None, np.array([1, 1])])
def test_users_stay_at_home_without_new_homes(homes_after: np.ndarray | None) -> None:
    """A user that moves takes its topics along: the old broker loses them, the new one gets them."""
    changes = _changes([[0, 1]], [(0.5, 0, [0, 1]), (0.6, 0, [0, 2])])
    step = list(interest_steps(changes, 2, np.array([0]), homes_after, duration_h=1.0))[-1]
    assert step.handovers == (0 if homes_after is None else 1)
    assert len(step.changed_brokers) == (2 if homes_after is None else 6)
