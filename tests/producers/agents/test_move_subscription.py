"""A moving subscription gets what clients publish at either broker once, however near to the switch, equal or not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from regraft.producers.agents.move_subscription import MovingSubscription

OLD, NEW, PLACES = "b01", "b02", 150


@dataclass(frozen=True)
class Traffic:
    """What clients publish at one broker, as marks in the order in which a subscriber gets it.

    ``swapped`` are places whose message the node sees after the next one. The subscriber counts from ``counted`` on;
    the node switches after ``old`` messages, and the subscriber learns of it ``late`` messages later.
    """

    marks: tuple[int, ...]
    swapped: frozenset[int]
    counted: int
    old: int
    late: int

    @property
    def at_node(self) -> list[int]:
        """Return the places in the node's order."""
        order = list(range(len(self.marks)))
        for place in sorted(self.swapped):
            if place + 1 < len(order) and place >= self.counted and order[place] == place:
                order[place], order[place + 1] = order[place + 1], order[place]
        return order

    @property
    def count(self) -> int:
        return self.old - self.counted


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    length, variety = draw(st.integers(0, PLACES)), draw(st.sampled_from((1, 3, 0)))
    order = range(length)
    marks = tuple(draw(st.integers(0, variety - 1)) for _ in order) if variety else tuple(order)
    counted = draw(st.integers(0, length))
    old = draw(st.integers(counted, length))
    late = draw(st.integers(0, 80))
    near = st.integers(old - 3, old + 3) | st.integers(old + late - 3, old + late + 3)
    swapped = frozenset(draw(st.sets(near, max_size=3))) if variety != 3 else frozenset()
    return Traffic(marks, swapped, counted, old, late)


@given(traffics())
@example(Traffic(tuple(range(20)), frozenset({12}), 2, 8, 5))  # Two come in different order where the client learns.
def test_what_is_published_at_the_old_home_comes_once(traffic: Traffic) -> None:
    """The broker delivers at once, and the next home again what the node has seen after the switch."""
    move, order = MovingSubscription(OLD, NEW), traffic.at_node
    got: list[int] = []
    learns = min(traffic.old + traffic.late, len(traffic.marks))
    seen_old = set(order[: traffic.old])
    learns = max(learns, max(seen_old, default=-1) + 1)  # The note is behind whatever the node has seen before.
    for place, mark in enumerate(traffic.marks):
        move.is_counted = place >= traffic.counted
        if place == learns:
            move.note_switched_from(traffic.count)
        if move.takes_from_old("", mark):
            got.append(mark)
    if learns >= len(traffic.marks):
        move.note_switched_from(traffic.count)
    got += [traffic.marks[at] for at in order[traffic.old :] if move.takes_from_next(OLD, traffic.marks[at])]
    assert Counter(got) == Counter(traffic.marks)
    assert not move.awaits_repeats


@given(traffics())
def test_what_is_published_at_the_next_home_comes_once(traffic: Traffic) -> None:
    """The old home delivers what the node there has seen before the switch, the next home all from the first on."""
    move, order = MovingSubscription(OLD, NEW), traffic.at_node
    old = order[: traffic.old]
    got = [traffic.marks[place] for place in old if move.takes_from_old(NEW, traffic.marks[place])]
    kept = list(traffic.marks[traffic.counted :])
    move.note_switched_to(traffic.count)
    left_out = move.old_of(kept)
    got += [mark for place, mark in enumerate(kept) if place not in left_out]
    assert Counter(got) == Counter(traffic.marks)


def test_what_others_publish_comes_from_the_home_that_hands_it_over() -> None:
    move = MovingSubscription(OLD, NEW)
    assert move.takes_from_old("b09", 1)
    assert move.takes_from_next("b09", 1)


def test_a_move_is_complete_once_both_homes_are_clear() -> None:
    move = MovingSubscription(OLD, NEW)
    move.note_switched_to(0)
    assert not move.is_complete
    move.is_drained = True
    assert move.is_complete
