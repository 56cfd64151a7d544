"""Bloom filters: no false negatives, the rate of false positives, and estimates of what two filters share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.yardsticks.bloom_filters import (
    BloomFilter,
    FilterShape,
    bit_positions,
    false_positive_share,
    filter_shape,
    notification_ids,
)


def filter_of(ids: np.ndarray[tuple[int], np.dtype[np.uint64]], *shape: int) -> BloomFilter:
    made = BloomFilter(*shape)
    made.add(ids)
    return made


def ids_between(first: int, last: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Consecutive identifiers, the hardest case for a weak hash."""
    return np.arange(first, last, dtype=np.uint64)


def test_a_full_cache_of_the_paper_has_0_43_percent_false_positives() -> None:
    """8,192 identifiers in 100,000 bits with 5 hash functions: 0.43 % by the formula, and measured."""
    held = filter_of(ids_between(0, 8192))
    claimed = held.contains(ids_between(1_000_000, 2_000_000)).mean()
    assert false_positive_share(8192, held.shape) == pytest.approx(0.0043, abs=5e-5)
    assert claimed == pytest.approx(0.0043, abs=5e-4)
    assert held.size_bytes == 12_500


@given(st.sets(st.integers(0, 2**64 - 1), max_size=200), st.integers(1, 3000), st.integers(1, 8))
def test_an_added_identifier_is_always_claimed(values: set[int], bits: int, hashes: int) -> None:
    """There are no false negatives, whatever the filter's shape."""
    ids = np.array(sorted(values), dtype=np.uint64)
    assert filter_of(ids, bits, hashes).contains(ids).all()


def test_positions_are_the_same_in_every_process() -> None:
    """Brokers compare each other's filters, so the hash is fixed: SplitMix64 (checked by its output for seed 0)."""
    (position,) = bit_positions(ids_between(0, 1), FilterShape(1 << 62, 1)).tolist()
    assert position == [0xE220_A839_7B1D_CDAF % (1 << 62)]
    assert notification_ids("stocks/IBM", [0, 1]).tolist() == [7877155447088660761, 7877155447088660762]


@given(st.integers(0, 2**32))
def test_the_conjunction_claims_what_both_claim(seed: int) -> None:
    """An identifier's bits are set in the conjunction exactly when they are set in both."""
    ids = np.random.default_rng(seed).integers(0, 2**63, 600, dtype=np.uint64)
    left, right = filter_of(ids[:400], 1500, 3), filter_of(ids[200:], 1500, 3)
    assert np.array_equal((left & right).contains(ids), left.contains(ids) & right.contains(ids))


def test_common_count_is_estimated_from_set_bits() -> None:
    """Swamidass and Baldi: for two full caches that share 3,000 identifiers the estimate is within a few percent."""
    left, right = filter_of(ids_between(0, 8192)), filter_of(ids_between(5192, 13384))
    assert left.id_count == pytest.approx(8192, rel=0.02)
    assert left.common_count(right) == pytest.approx(3000, rel=0.05)
    assert filter_of(ids_between(0, 100)).common_count(filter_of(ids_between(500, 600))) == pytest.approx(0, abs=3)


def test_a_full_filter_still_gives_a_finite_count() -> None:
    """With every bit set the formula has no value; the filter is treated as one bit short of full."""
    full = filter_of(ids_between(0, 1000), 10, 3)
    assert full.set_share == 1
    assert full.id_count == pytest.approx(-10 / 3 * np.log(1 / 10))


@given(st.integers(1, 20_000), st.floats(1e-6, 0.9))
def test_the_adapted_shape_keeps_the_rate_asked_for(id_count: int, share: float) -> None:
    """A full filter of the adapted shape has at most the false positive rate asked for; 1 % fewer bits exceed it."""
    shape = filter_shape(id_count, share)
    assert false_positive_share(id_count, shape) <= share * (1 + 1e-9)
    if id_count > 1000:
        assert false_positive_share(id_count, FilterShape(shape.bits * 99 // 100, shape.hashes)) > share


def test_the_adapted_shape_of_a_full_cache() -> None:
    """A rate of 1 % needs 9.6 bits per identifier and 10 % half of that, compared with the paper's 12.2."""
    assert filter_shape(8192, 0.01) == FilterShape(78_586, 7)
    assert filter_shape(8192, 0.1).bits / 8192 == pytest.approx(4.81, abs=0.01)
    share = filter_of(ids_between(0, 8192), *filter_shape(8192, 0.1)).contains(ids_between(10**6, 2 * 10**6)).mean()
    assert share == pytest.approx(0.1, abs=0.005)


def test_impossible_shapes_are_refused() -> None:
    """Every message holds the value and the limit."""
    with pytest.raises(ValueError, match="bits is 0, hashes is 5: there must be at least 1 bit"):
        BloomFilter(0, 5)
    with pytest.raises(ValueError, match="false_positive_share is 1"):
        filter_shape(10, 1)
    with pytest.raises(ValueError, match="cannot be combined: give both the same shape"):
        BloomFilter(10, 1) & BloomFilter(11, 1)
