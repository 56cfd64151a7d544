"""Delivery sets, and interest counted from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets, MaskCells
from regraft.schemas.arrays import Words
from tests.overlay.small_overlays import brokers_named, overlays, sets_of

BROKERS = brokers_named(3)


@given(overlays())
def test_interest_counts_common_notifications(drawn: tuple[Inventory, list[set[str]], DeliverySets]) -> None:
    """I_ij is the number of notifications that both i and j published or delivered, I_ii those of i."""
    inventory, wanted, sets = drawn
    interest = sets.interest()
    for i, one in enumerate(inventory.brokers):
        for j, other in enumerate(inventory.brokers):
            assert interest[i, j] == sum({one, other} <= places for places in wanted)
    assert sets.notification_count == len(wanted)


def test_overlapping_windows_count_a_notification_once() -> None:
    """Joining spans adds up their durations and unites their notifications, in any order."""
    first = sets_of(BROKERS, [{"b00"}, {"b00", "b01"}], span_s=2)
    second = DeliverySets.of(BROKERS, {("b01", "p", 0): 0b10, ("b02", "q", 0): 1}, span_s=3)
    joined = DeliverySets.joined([second, first])
    assert joined.span_s == 5
    assert joined.notification_count == 3
    assert joined.interest()[0, 1] == 1


def test_signed_and_unsigned_masks_are_the_same_bits() -> None:
    """Bit 63 is encoded as a negative long."""
    signed = DeliverySets.of(BROKERS, {("b00", "p", 0): -(2**63)}, 1.0)
    unsigned = DeliverySets.of(BROKERS, {("b00", "p", 0): 2**63}, 1.0)
    assert signed.words.tolist() == unsigned.words.tolist()
    assert signed.notification_count == 1


@st.composite
def separated_sets(draw: st.DrawFn) -> tuple[DeliverySets, dict[tuple[str, int], str], dict[str, set[tuple[str, int]]]]:
    """Draw sets with publications kept separate, the publisher of each notification, and which brokers delivered it."""
    names = st.tuples(st.sampled_from("pqr"), st.sampled_from([0, 1, 63, 64, 200]))
    publishers = draw(st.dictionaries(names, st.sampled_from(BROKERS), min_size=1))
    takers = {name: draw(st.sets(st.sampled_from(BROKERS))) for name in publishers}
    delivered: dict[tuple[str, str, int], int] = {}
    published: dict[tuple[str, str, int], int] = {}
    for (publisher, sequence), home in publishers.items():
        for masks, brokers in ((published, {home}), (delivered, takers[publisher, sequence])):
            for broker in brokers:
                key = (broker, publisher, sequence // 64)
                masks[key] = masks.get(key, 0) | 1 << sequence % 64
    taken = {broker: {name for name, brokers in takers.items() if broker in brokers} for broker in BROKERS}
    return DeliverySets.of(BROKERS, delivered, 2.0, published=published), publishers, taken


def names_in(sets: DeliverySets, words: Words) -> dict[str, set[tuple[str, int]]]:
    """Return the notifications in each broker's row, by publisher and sequence number."""
    return {
        broker: {
            (publisher, 64 * block + bit)
            for (publisher, block), word in zip(sets.columns, row.tolist(), strict=True)
            for bit in range(64)
            if word >> bit & 1
        }
        for broker, row in zip(sets.brokers, words, strict=True)
    }


@given(separated_sets())
def test_delivered_and_published_make_up_the_sets(
    drawn: tuple[DeliverySets, dict[tuple[str, int], str], dict[str, set[tuple[str, int]]]],
) -> None:
    """V(n) is the publisher's home and the brokers that delivered n; every n was published."""
    sets, homes, taken = drawn
    assert names_in(sets, sets.delivered) == taken
    both = {broker: taken[broker] | {name for name, home in homes.items() if home == broker} for broker in BROKERS}
    assert names_in(sets, sets.words) == both
    assert names_in(sets, sets.published[None, :].repeat(3, axis=0))["b00"] == set(homes)
    assert sets.notification_count == len(homes)


@given(separated_sets(), st.dictionaries(st.sampled_from("pqrs"), st.sampled_from(BROKERS)))
def test_publishers_at_other_homes_give_the_sets_published_there(
    drawn: tuple[DeliverySets, dict[tuple[str, int], str], dict[str, set[tuple[str, int]]]], moved: dict[str, str]
) -> None:
    """V(n) is as if all had been published at the other homes; deliveries and other publishers stay as they are."""
    sets, homes, taken = drawn
    placed = sets.at_homes(moved)
    assert placed.delivered.tolist() == sets.delivered.tolist()
    there = {name: moved.get(name[0], home) for name, home in homes.items()}
    both = {broker: taken[broker] | {name for name, home in there.items() if home == broker} for broker in BROKERS}
    assert names_in(placed, placed.words) == both
    assert placed.at_homes(moved).words.tolist() == placed.words.tolist()


def test_the_new_home_of_a_publisher_must_be_a_broker() -> None:
    """The error names it."""
    known = DeliverySets.of(BROKERS, {}, 1.0, published={("b00", "p", 0): 1})
    with pytest.raises(KeyError, match="b09"):
        known.at_homes({"p": "b09"})


def test_joined_spans_keep_deliveries_and_publications_apart() -> None:
    """As each of them does."""
    first = DeliverySets.of(BROKERS, {("b01", "p", 0): 0b01}, 1.0, published={("b00", "p", 0): 0b11})
    second = DeliverySets.of(BROKERS, {("b01", "p", 0): 0b10}, 1.0, published={("b02", "p", 1): 0b1})
    joined = DeliverySets.joined([first, second])
    assert joined.columns == (("p", 0), ("p", 1))
    assert joined.delivered.tolist() == [[0, 0], [0b11, 0], [0, 0]]
    assert joined.words.tolist() == [[0b11, 0], [0b11, 0], [0, 1]]
    assert joined.at_homes({"p": "b02"}).words.tolist() == [[0, 0], [0b11, 0], [0b11, 1]]


def test_cells_of_the_same_broker_and_column_are_united() -> None:
    """Cells may come in any order of columns, and repeatedly for the same broker and column."""
    row, column = np.array([1, 1, 0, 1]), np.array([0, 0, 1, 1])
    masks, published = np.array([1, 2, 4, 8], dtype=np.uint64), np.array([16, 0, 32, 0], dtype=np.uint64)
    columns = [("q", 3), ("p", 7)]
    sets = DeliverySets.of_cells(BROKERS, columns, MaskCells(row, column, masks, published), 1.0)
    assert sets.columns == (("p", 7), ("q", 3))
    assert sets.delivered.tolist() == [[4, 0], [8, 3], [0, 0]]
    assert sets.words.tolist() == [[36, 0], [8, 19], [0, 0]]


def test_spans_that_cannot_be_joined_are_refused() -> None:
    """No span at all, or spans over different brokers, raise an error."""
    with pytest.raises(ValueError, match="no span"):
        DeliverySets.joined([])
    with pytest.raises(ValueError, match="different brokers"):
        DeliverySets.joined([sets_of(BROKERS, []), sets_of(brokers_named(2), [])])
