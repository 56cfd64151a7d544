"""A moving subscription gets what clients publish at either broker once, however near to the switch, equal or not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from regraft.producers.agents.move_subscription import MovingSubscription, new_places
from regraft.schemas.agent_note import MARKS_MAX

OLD, NEW, PLACES = "b01", "b02", 150


@dataclass(frozen=True)
class Traffic:
    """What clients publish at one broker, as marks in the order in which a subscriber gets it.

    The node sees the messages at ``swapped`` in exchange with those ``reach`` places behind. It gets the note behind
    ``noted`` messages, the subscriber ``shift`` earlier or later; it switches behind ``old`` messages, and the
    subscriber learns of that behind ``late`` more, perhaps before it has all of the old epoch.
    """

    marks: tuple[int, ...]
    swapped: frozenset[int]
    noted: int
    shift: int
    old: int
    late: int
    reach: int = 1

    @property
    def order(self) -> list[int]:
        """Return the places in the node's order."""
        order = list(range(len(self.marks)))
        for place in sorted(self.swapped):
            other = place + self.reach
            if place >= 0 and other < len(order) and order[place] == place and order[other] == other:
                order[place], order[other] = order[other], order[place]
        return order

    @property
    def noted_here(self) -> int:
        return min(max(self.noted + self.shift, 0), len(self.marks))

    @property
    def count(self) -> int:
        return self.old - self.noted

    @property
    def last(self) -> list[int]:
        return [self.marks[place] for place in self.order[: self.old]][-MARKS_MAX:]


@st.composite
def traffics(draw: st.DrawFn, reach_max: int = 8) -> Traffic:
    """Messages that are all different may race around note and switch; equal ones and some of a few kinds do not."""
    length, variety = draw(st.integers(0, PLACES)), draw(st.sampled_from((0, 1, 3)))
    order = range(length)
    marks = tuple(draw(st.integers(0, variety - 1)) for _ in order) if variety else tuple(order)
    noted = draw(st.integers(0, length))
    reach = draw(st.just(1) | st.integers(1, reach_max))
    # The switch is long after the note: every broker has been prepared in between.
    old, late = draw(st.integers(min(noted + reach + 3, length), length)), draw(st.integers(0, 80))
    near = st.integers(old - 3, old + 3) | st.integers(noted - 3, noted + 3)
    near |= near.map(lambda place: place - reach)
    near = near.filter(bool)  # Not the first: a message before all that the node has seen counts as not seen by it.
    swapped = draw(st.frozensets(near, max_size=3 if reach == 1 else 1)) if not variety else frozenset()
    return Traffic(marks, swapped, noted, draw(st.integers(-60, 60)) if not variety else 0, old, late, reach)


@given(traffics())
@example(Traffic(tuple(range(20)), frozenset({7}), 2, 1, 8, 5))
@example(Traffic(tuple(range(100)), frozenset(), 10, -40, 80, 5))
@example(Traffic(tuple(range(100)), frozenset({50}), 10, 0, 60, 0, 20))
def test_what_is_published_at_the_old_home_comes_once(traffic: Traffic) -> None:
    """The broker delivers at once, and the next home again what the node has seen after the switch."""
    move, order = MovingSubscription(OLD, NEW), traffic.order
    got: list[int] = []
    learns = min(traffic.old + traffic.late, len(order))
    for place, mark in enumerate(traffic.marks):
        if place == traffic.noted_here:
            move.note_counted_from()
        if place == learns:
            move.note_switched_from(traffic.count, traffic.last)
        if move.takes_from_old("", mark):
            got.append(mark)
    if learns >= len(order):
        if traffic.noted_here >= len(order):
            move.note_counted_from()
        move.note_switched_from(traffic.count, traffic.last)
    got += [traffic.marks[at] for at in order[traffic.old :] if move.takes_from_next(OLD, traffic.marks[at])]
    assert Counter(got) == Counter(traffic.marks)
    assert not move.awaits_repeats


@given(traffics(reach_max=40))
@example(Traffic(tuple(range(20)), frozenset({7}), 2, 1, 8, 5))
@example(Traffic(tuple(range(100)), frozenset(), 10, -40, 80, 5))
@example(Traffic(tuple(range(100)), frozenset({40}), 10, 0, 60, 0, 30))
def test_what_is_published_at_the_next_home_comes_once(traffic: Traffic) -> None:
    """The old home delivers what the node there has seen before the switch, the next home all from the first on."""
    move, order = MovingSubscription(OLD, NEW), traffic.order
    got = [traffic.marks[place] for place in order[: traffic.old] if move.takes_from_old(NEW, traffic.marks[place])]
    for place, mark in enumerate(traffic.marks):
        if place == traffic.noted_here:
            move.note_counted_to()
        assert move.keep_own(mark) == place
    if traffic.noted_here == len(order):
        move.note_counted_to()
    move.note_switched_to(traffic.count, traffic.last)
    got += [traffic.marks[place] for place in sorted(move.finish())]
    assert Counter(got) == Counter(traffic.marks)


def test_an_equal_message_counts_by_its_place_among_the_others() -> None:
    assert new_places([1, 7, 2, 7, 3, 7, 4, 7], 2, [1, 7, 2, 7, 3], is_whole=True) == {5, 6, 7}


def test_the_last_ones_decide_near_the_border_unless_some_are_equal() -> None:
    assert new_places([1, 2, 3, 4, 5], 2, [1, 2, 3], is_whole=True) == {3, 4}
    assert new_places([1, 2, 4, 3, 5], 3, [1, 2, 3], is_whole=True) == {2, 4}
    assert new_places([7, 7, 7, 7], 1, [7, 7], is_whole=True) == {1, 2, 3}
    assert new_places([1, 2, 1, 2, 1], 2, [1, 2], is_whole=True) == {2, 3, 4}
    assert new_places([8, 9, 1, 2, 3], 4, [1, 2], is_whole=True) == {4}
    assert new_places([8, 9, 1, 2, 3], 2, [], is_whole=True) == {2, 3, 4}
    assert new_places(range(100), 50, range(18, 50), is_whole=False) == set(range(50, 100))
    assert new_places([], 0, [], is_whole=True) == set()


def test_what_others_publish_comes_from_the_home_that_hands_it_over() -> None:
    move = MovingSubscription(OLD, NEW)
    assert move.takes_from_old("b09", 1)
    assert move.takes_from_next("b09", 1)


def test_a_move_is_complete_once_both_homes_are_clear() -> None:
    move = MovingSubscription(OLD, NEW)
    move.note_switched_to(0, ())
    assert not move.is_complete
    move.is_drained = True
    assert move.is_complete
