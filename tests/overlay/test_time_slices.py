"""Slices of a window hold each of its notifications once, in the order of their sequence numbers."""

import numpy as np
import pytest

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.time_slices import time_slices

BROKERS = ("b00", "b01", "b02")


def busy_sets() -> DeliverySets:
    """Return the sets of two publishers: p published 100 notifications over three blocks, q five."""
    rng = np.random.default_rng(5)
    masks, published = {}, {}
    for publisher, first, count in (("p", 40, 100), ("q", 0, 5)):
        for block in range(first // 64, (first + count - 1) // 64 + 1):
            numbers = [number for number in range(first, first + count) if number // 64 == block]
            there = sum(1 << number % 64 for number in numbers)
            published["b00", publisher, block] = there
            masks["b01", publisher, block] = there & int(rng.integers(1 << 63))
            masks["b02", publisher, block] = there
    return DeliverySets.of(BROKERS, masks, 5.0, published)


@pytest.mark.parametrize("count", [2, 5, 16])
def test_slices_divide_each_publisher_evenly(count: int) -> None:
    """Together they are the window; a publisher's counts per slice differ by at most one, and its numbers ascend."""
    sets = busy_sets()
    parts = time_slices(sets, count)
    assert len(parts) == count
    assert sum(part.span_s for part in parts) == pytest.approx(sets.span_s)
    united = np.bitwise_or.reduce([part.words for part in parts])
    assert np.array_equal(united, sets.words)
    assert sum(part.notification_count for part in parts) == sets.notification_count == 105
    last = -1
    for part in parts:
        numbers = [
            64 * block + bit
            for column, (name, block) in enumerate(part.columns)
            for bit in range(64)
            if name == "p" and int(part.published[column]) >> bit & 1
        ]
        assert len(numbers) in (100 // count, 100 // count + 1)
        assert numbers[0] == last + 1 or last == -1
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        last = numbers[-1]
        assert np.array_equal(part.delivered & part.published, part.delivered & sets.delivered)


def test_one_slice_is_the_window_itself() -> None:
    """A single slice cuts nothing."""
    sets = busy_sets()
    assert time_slices(sets, 1) == (sets,)


def test_slices_of_an_idle_window_are_empty() -> None:
    """A window without notifications has as many slices as any other."""
    parts = time_slices(DeliverySets.of(BROKERS, {}, 5.0), 4)
    assert [(part.notification_count, part.span_s) for part in parts] == [(0, 1.25)] * 4
