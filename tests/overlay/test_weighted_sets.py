"""Merging equal delivery sets loses nothing."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.sets import distinct_sets as module
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.weighted_sets import WeightedSets
from tests.overlay.small_overlays import brokers_named, sets_of


def drawn_sets(
    seed: int, brokers: int, notifications: int, kinds: int, publisher: str = "p"
) -> tuple[DeliverySets, list[set[str]]]:
    rng = random.Random(seed)
    names = brokers_named(brokers)
    known = [set(rng.sample(names, rng.randint(1, brokers))) for _ in range(kinds)]
    wanted = [rng.choice(known) for _ in range(notifications)]
    return sets_of(names, wanted, 2.0, publisher), wanted


@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(0, 300), st.integers(1, 20))
def test_distinct_sets_are_counted(seed: int, brokers: int, notifications: int, kinds: int) -> None:
    """Each set of brokers appears once, with the number of its notifications."""
    sets, wanted = drawn_sets(seed, brokers, notifications, kinds)
    rows, counts = sets.distinct
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    found = {
        frozenset(sets.brokers[position] for position in np.flatnonzero(row)): count
        for row, count in zip(bits, counts, strict=True)
    }
    assert len(found) == len(rows)
    assert found == Counter(frozenset(places) for places in wanted)


@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(1, 300), st.integers(1, 20))
def test_merged_sets_give_the_same_counts(seed: int, brokers: int, notifications: int, kinds: int) -> None:
    """Interest and counts of any two brokers are those of the original sets."""
    sets, _ = drawn_sets(seed, brokers, notifications, kinds)
    merged = WeightedSets.over_all([sets])
    assert (merged.interest() == sets.interest()).all()
    assert merged.counts(merged.words)[:, 0].tolist() == np.diagonal(sets.interest()).tolist()
    joined = np.bitwise_or.reduce(merged.words[:2], axis=0)
    expected = int(np.bitwise_count(np.bitwise_or.reduce(sets.words[:2], axis=0)).sum())
    assert merged.counts(joined)[0] == expected


def test_many_equal_sets_become_few_words() -> None:
    """A thousand notifications for the same two brokers become six words, one for each 1 of a thousand in binary."""
    sets, _ = drawn_sets(1, 5, 1000, 1)
    merged = WeightedSets.over_all([sets])
    assert merged.words.shape == (5, (1000).bit_count())
    assert sets.words.shape == (5, 16)


def test_spans_are_counted_separately_or_together() -> None:
    """By span each window keeps its count; over all spans the counts add up."""
    first, _ = drawn_sets(1, 5, 30, 3, "p")
    second, _ = drawn_sets(2, 5, 50, 3, "q")
    apart, together = SpanSets.of([first, second]), WeightedSets.over_all([first, second])
    by_span = apart.counts(apart.words)
    assert by_span[:, 0].tolist() == np.diagonal(first.interest()).tolist()
    assert by_span[:, 1].tolist() == np.diagonal(second.interest()).tolist()
    assert together.counts(together.words)[:, 0].tolist() == by_span.sum(axis=1).tolist()
    assert together.spans_s.tolist() == [4.0]


def test_spans_without_notifications_count_none() -> None:
    """There are no words then, but still spans."""
    silent = DeliverySets.of(brokers_named(3), {}, 5.0)
    merged = SpanSets.of([silent, silent])
    assert merged.words.shape == (3, 0)
    assert merged.counts(merged.words).tolist() == [[0.0, 0.0]] * 3


@given(st.integers(0, 2**32), st.integers(1, 70))
def test_spans_count_like_their_own_sets(seed: int, brokers: int) -> None:
    """By all words, and by any part of them."""
    spans = [drawn_sets(seed + span, brokers, 30, 2, f"p{span}")[0] for span in range(3)]
    merged = SpanSets.of(spans)
    counts = merged.counts(merged.words)
    for span, sets in enumerate(spans):
        assert counts[:, span].tolist() == np.bitwise_count(sets.words).sum(axis=1).tolist()
    columns = np.arange(0, merged.words.shape[1], 2)
    others = np.setdiff1d(np.arange(merged.words.shape[1]), columns)
    parts = [merged.counts_in(merged.words[:, part], part) for part in (columns, others)]
    assert (parts[0] + parts[1] == counts).all()


def test_pairs_of_brokers_have_different_keys() -> None:
    """Also those whose brokers have the highest bits of their words, of which a product alone leaves little."""
    brokers = 64 * 16
    pairs = [(a, b) for a in range(brokers) for b in range(a + 1, brokers) if a % 64 > 55 and b % 64 > 55]
    rows = np.zeros((len(pairs), brokers // 64), dtype=np.uint64)
    for broker in np.array(pairs).T:
        rows[np.arange(len(pairs)), broker // 64] |= np.uint64(1) << (broker % 64).astype(np.uint64)
    assert len(np.unique(module._keys(rows))) == len(pairs)


def test_two_sets_with_the_same_key_stay_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the hash of sets to keys collides, the sets themselves are compared."""
    monkeypatch.setattr(module, "MIXERS", np.zeros_like(module.MIXERS))
    sets, wanted = drawn_sets(3, 6, 40, 4)
    rows, counts = sets.distinct
    assert len(rows) == len({frozenset(places) for places in wanted})
    assert counts.sum() == 40


def test_merging_invalid_spans_is_refused() -> None:
    """No span, or spans over different brokers, cannot be merged."""
    for merge in (SpanSets.of, WeightedSets.over_all):
        with pytest.raises(ValueError, match="at least one window"):
            merge([])
    others = [drawn_sets(1, 5, 3, 1)[0], drawn_sets(1, 6, 3, 1)[0]]
    with pytest.raises(ValueError, match="different brokers"):
        SpanSets.of(others)
