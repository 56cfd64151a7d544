"""Delivery sets and the interest counted from them."""

import pytest
from hypothesis import given

from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
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
    """Joining spans adds their time and unites their notifications, in whatever order they come."""
    first = sets_of(BROKERS, [{"b00"}, {"b00", "b01"}], span_s=2)
    second = DeliverySets.of(BROKERS, {("b01", "p", 0): 0b10, ("b02", "q", 0): 1}, span_s=3)
    joined = DeliverySets.joined([second, first])
    assert joined.span_s == 5
    assert joined.notification_count == 3
    assert joined.interest()[0, 1] == 1


def test_signed_and_unsigned_masks_are_the_same_bits() -> None:
    """Bit 63 travels as a negative long."""
    signed = DeliverySets.of(BROKERS, {("b00", "p", 0): -(2**63)}, 1.0)
    unsigned = DeliverySets.of(BROKERS, {("b00", "p", 0): 2**63}, 1.0)
    assert signed.words.tolist() == unsigned.words.tolist()
    assert signed.notification_count == 1


def test_spans_that_cannot_be_joined_are_refused() -> None:
    """No span, and spans over different brokers, are errors."""
    with pytest.raises(ValueError, match="no span"):
        DeliverySets.joined([])
    with pytest.raises(ValueError, match="different brokers"):
        DeliverySets.joined([sets_of(BROKERS, []), sets_of(brokers_named(2), [])])
