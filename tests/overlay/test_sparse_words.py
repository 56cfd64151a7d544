"""Delivery sets keep only the words that are not 0, and read as if they kept all."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.arrays import Words


def drawn_sets(share: float, shape: tuple[int, int] = (400, 90)) -> tuple[DeliverySets, Words, Words]:
    """Return sets of which this share of the words has bits, and their words and deliveries."""
    rng = np.random.default_rng(1)
    words = rng.integers(1, 1 << 63, shape, dtype=np.uint64) * (rng.random(shape) < share)
    delivered = words & rng.integers(0, 1 << 63, shape, dtype=np.uint64)
    brokers = tuple(f"b{row:03d}" for row in range(shape[0]))
    columns = tuple(("p", block) for block in range(shape[1]))
    return DeliverySets(brokers, columns, words, 1.0, delivered), words, delivered


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 1.0])
def test_words_are_read_as_they_were_set(share: float) -> None:
    """Also through copies with other fields and through pickles; words and deliveries are kept apart."""
    sets, words, delivered = drawn_sets(share)
    for each in (sets, replace(sets, span_s=2.0), pickle.loads(pickle.dumps(sets))):
        assert (each.words == words).all()
        assert (each.delivered == delivered).all()
    assert (replace(sets, words=delivered).words == delivered).all()


def test_sparse_sets_take_a_fraction_of_the_memory() -> None:
    """Of words of which one in ten has bits, less than a quarter of the bytes is kept."""
    sets, words, delivered = drawn_sets(0.1)
    assert len(pickle.dumps(sets)) < (words.nbytes + delivered.nbytes) / 4


def test_an_array_of_no_columns_keeps_its_shape() -> None:
    """A window without traffic has a row for each broker."""
    sets, _, _ = drawn_sets(0.5, (3, 0))
    assert sets.words.shape == sets.delivered.shape == (3, 0)
