"""Bloom filters over 64-bit identifiers, thousands at a time.

In: identifiers as uint64 arrays. Out: which of them a filter claims to hold, and how many two filters share. What goes
into a filter and who sends it do not belong here. The usual package, rbloom, is configured by error rate and does not
accept the bits and hash functions that Jaeger07 states, hence our own implementation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]

PAPER_BITS = 100_000  # Jaeger07, section 5.
PAPER_HASHES = 5
HASHES_MAX = 64  # More would never help: 64 functions already mean one false positive in 2^64.
# Increment and multipliers of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every input bit changes half of the output.
GOLDEN_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
MIX_FACTORS = (np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB))


class FilterShape(NamedTuple):
    """The number of bits of a filter, and the number of hash functions: the bits that one identifier sets."""

    bits: int
    hashes: int

    @property
    def size_bytes(self) -> int:
        """The size in a message of a filter of this shape."""
        return -(-self.bits // 8)


class BloomFilter:
    """A set of identifiers that may claim to hold some that were never added, but never misses one that was.

    Raises ValueError if the shape has no bits or no hash functions. Source: Jaeger07, section 4, after Bloom 1970.
    """

    def __init__(self, bits: int = PAPER_BITS, hashes: int = PAPER_HASHES) -> None:
        if bits < 1 or not 1 <= hashes <= HASHES_MAX:
            raise ValueError(
                f"bits is {bits}, hashes is {hashes}: there must be at least 1 bit and from 1 to {HASHES_MAX} hash "
                "functions"
            )
        self.shape = FilterShape(bits, hashes)
        self._is_set = np.zeros(bits, dtype=np.bool_)

    def add(self, ids: Ids) -> None:
        """Add identifiers; adding one again changes nothing."""
        self._is_set[bit_positions(ids, self.shape)] = True

    def contains(self, ids: Ids) -> NDArray[np.bool_]:
        """Return True for each identifier that the filter claims to hold, in the shape of ``ids``."""
        claimed = np.zeros(len(ids), dtype=np.bool_)
        claimed[claimed_rows(self._is_set, bit_positions(ids, self.shape))] = True
        return claimed

    def __and__(self, other: BloomFilter) -> BloomFilter:
        """Return the conjunction, which claims exactly the identifiers that both filters claim.

        It has more bits set than a filter of only the common identifiers, so its ``id_count`` is too high.
        """
        return self._combined(other, self._is_set & self._same_shape(other)._is_set)

    def __or__(self, other: BloomFilter) -> BloomFilter:
        """Return the union: the filter of the identifiers of both."""
        return self._combined(other, self._is_set | self._same_shape(other)._is_set)

    @property
    def size_bytes(self) -> int:
        """The size of the filter in a message."""
        return self.shape.size_bytes

    @property
    def set_share(self) -> float:
        """The share of bits that are set, 0 to 1."""
        return float(np.count_nonzero(self._is_set) / self.shape.bits)

    @property
    def id_count(self) -> float:
        """The number of identifiers added, estimated from the set bits.

        Source: Swamidass and Baldi, J. Chem. Inf. Model. 47, 2007: -(m / k) ln(1 - X / m). A full filter shows only
        that there were many, and counts as one bit short of full.
        """
        clear_share = max(1.0 - self.set_share, 1.0 / self.shape.bits)
        return -self.shape.bits / self.shape.hashes * math.log(clear_share)

    def common_count(self, other: BloomFilter) -> float:
        """Return the number of identifiers in both, at least 0, estimated from set bits alone (Swamidass and Baldi)."""
        return max(self.id_count + other.id_count - (self | other).id_count, 0.0)

    def _same_shape(self, other: BloomFilter) -> BloomFilter:
        if self.shape != other.shape:
            raise ValueError(f"filters of {self.shape} and {other.shape} cannot be combined: give both the same shape")
        return other

    def _combined(self, other: BloomFilter, is_set: NDArray[np.bool_]) -> BloomFilter:
        combined = BloomFilter(*other.shape)
        combined._is_set = is_set
        return combined


def filter_shape(id_count: int, false_positive_share: float) -> FilterShape:
    """Return the smallest shape whose filter has at most this share of false positives when it holds ``id_count``.

    Solves (1 - e^(-k n / m))^k for the integer number k of hash functions that needs the fewest bits m: about 1.44
    log2(1 / share) bits per identifier. Raises ValueError if the share is outside (0, 1) or the count is negative.
    """
    if not 0 < false_positive_share < 1 or id_count < 0:
        raise ValueError(
            f"id_count is {id_count}, false_positive_share is {false_positive_share}: they must be at least 0, and "
            "between 0 and 1"
        )
    best = -math.log2(false_positive_share)
    shapes = []
    for hashes in {min(max(round_(best), 1), HASHES_MAX) for round_ in (math.floor, math.ceil)}:
        set_share = false_positive_share ** (1 / hashes)
        bits = math.ceil(-hashes * max(id_count, 1) / math.log1p(-set_share))
        shapes.append(FilterShape(bits, hashes))
    return min(shapes)


def false_positive_share(id_count: float, shape: FilterShape) -> float:
    """Return the share of never-added identifiers that a filter holding ``id_count`` claims to hold."""
    return float((1 - math.exp(-shape.hashes * id_count / shape.bits)) ** shape.hashes)


def notification_ids(publisher: str, sequences: Sequence[int] | Ids) -> Ids:
    """Return the identifiers of a publisher's notifications: the same in every process and on every machine."""
    start = np.frombuffer(blake2b(publisher.encode("utf-8"), digest_size=8).digest(), dtype="<u8").astype(np.uint64)
    # Unsigned arrays wrap around. To share identifiers, two publishers would have to hash within a few thousand of each
    # other out of 2^64.
    return start + np.asarray(sequences, dtype=np.uint64)


def bit_positions(ids: Ids, shape: FilterShape) -> NDArray[np.int64]:
    """Return the bits that each identifier sets, shape (ids, hashes).

    Double hashing: two mixed hashes yield all others as h1 + t * h2, with the same false positive rate as independent
    hashes (Kirsch and Mitzenmacher 2006).
    """
    first = _mixed(ids + GOLDEN_STEP)
    step = _mixed(first + GOLDEN_STEP) | np.uint64(1)
    turns = np.arange(shape.hashes, dtype=np.uint64)
    return ((first[:, None] + turns[None, :] * step[:, None]) % np.uint64(shape.bits)).astype(np.int64)


def claimed_rows(is_set: NDArray[np.bool_], positions: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the rows of ``positions`` (ids, hashes) whose bits are all set.

    Each hash function checks only the identifiers that passed the earlier ones. With the paper's shape a third pass
    each, so an identifier takes 1.5 look-ups instead of 5.
    """
    rows = np.flatnonzero(is_set[positions[:, 0]])
    for turn in range(1, positions.shape[1]):
        rows = rows[is_set[positions[rows, turn]]]
    return rows


def _mixed(values: Ids) -> Ids:
    """Return SplitMix64's output function applied to each value."""
    values = (values ^ (values >> np.uint64(30))) * MIX_FACTORS[0]
    values = (values ^ (values >> np.uint64(27))) * MIX_FACTORS[1]
    return values ^ (values >> np.uint64(31))
