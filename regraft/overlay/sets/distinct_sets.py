"""Find and count equal delivery sets: notifications of one type mostly go to the same brokers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.arrays import Places, Words

COLUMNS_AT_ONCE = 512  # Columns transposed at a time, so that they stay in the processor's cache.
ROWS_AT_ONCE = 1 << 11  # Sets whose keys are computed at a time: likewise.
MIXERS = np.random.Generator(np.random.PCG64(0)).integers(1 << 62, 1 << 63, 1 << 12, dtype=np.uint64) * 2 + 1
LAST_MIXER = np.uint64(0x9E37_79B9_7F4A_7C15)

Counts = NDArray[np.int64]


def distinct_sets(words: Words) -> tuple[Words, Counts]:
    """Return the distinct V(n), shape (sets, words of brokers), and the number of notifications with each.

    ``words`` (brokers, columns) has a bit for each notification; a bit that no broker has set is not a notification.
    Cost O(brokers * columns) on words.
    """
    parts = [_by_notification(words[:, at : at + COLUMNS_AT_ONCE]) for at in range(0, words.shape[1], COLUMNS_AT_ONCE)]
    merged = [_merged(part, np.ones(len(part), dtype=np.int64)) for part in parts]
    return merged[0] if len(merged) == 1 else merge_sets(merged, words.shape[0])


def merge_sets(parts: list[tuple[Words, Counts]], brokers: int) -> tuple[Words, Counts]:
    """Merge the distinct sets of several parts, adding their counts; the order depends on the sets alone."""
    if not parts:
        return np.zeros((0, -(-brokers // 64)), dtype=np.uint64), np.zeros(0, dtype=np.int64)
    return _merged(np.concatenate([part for part, _ in parts]), np.concatenate([counts for _, counts in parts]))


def digit_planes(sets: Words, counts: Counts, brokers: int) -> tuple[Words, Counts]:
    """Return weighted bits by broker, and the weight of each word: how many notifications one of its bits stands for.

    A set that occurs n times has a bit for each binary digit of n. Shapes (brokers, words) and (words,).
    """
    words, weights = [np.zeros((brokers, 0), dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for digit in range(int(counts.max(initial=0)).bit_length()):
        having = sets[(counts >> digit) & 1 == 1]
        if len(having):
            words.append(by_broker(having, brokers))
            weights.append(np.full(words[-1].shape[1], 1 << digit))
    return np.concatenate(words, axis=1), np.concatenate(weights)


def by_broker(sets: Words, brokers: int) -> Words:
    """Return a row for each broker, with a bit for each set."""
    padded = _padded(sets)
    groups = _transposed(padded.reshape(-1, 64, sets.shape[1]).transpose(2, 1, 0))
    return groups.reshape(64 * len(groups), groups.shape[2])[:brokers]


def _by_notification(words: Words) -> Words:
    """Return a row for each notification that any broker wants, with a bit for each broker."""
    groups = _transposed(_padded(words).reshape(-1, 64, words.shape[1]))
    rows = groups.transpose(1, 2, 0).reshape(-1, len(groups))
    return rows[rows.any(axis=1)]


def _padded(words: Words) -> Words:
    """Return the rows, and empty ones up to the next multiple of 64."""
    padded = np.zeros((-(-len(words) // 64) * 64, words.shape[1]), dtype=words.dtype)
    padded[: len(words)] = words
    return padded


def _transposed(groups: Words) -> Words:
    """Transpose 64 x 64 bits along the middle axis: bit c of row r becomes bit r of row c. Shape (groups, 64, n)."""
    block = np.array(groups, order="C")
    half, mask = 32, np.uint64(0x0000_0000_FFFF_FFFF)
    while half:
        pairs = block.reshape(len(block), 32 // half, 2, half, -1)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        shift = np.uint64(half)
        swapped = low >> shift
        swapped ^= high
        swapped &= mask
        high ^= swapped
        swapped <<= shift
        low ^= swapped
        half //= 2
        mask ^= mask << np.uint64(half) if half else np.uint64(0)
    return block


def _merged(rows: Words, counts: Counts) -> tuple[Words, Counts]:
    """Merge equal rows, adding their counts; the order depends on the rows alone."""
    first, inverse = equal_rows(rows)
    return rows[first], np.bincount(inverse, weights=counts, minlength=len(first)).astype(np.int64)


def equal_rows(rows: Words) -> tuple[Places, Places]:
    """Return the first of each group of equal rows, and the group of each row; their order depends on rows alone."""
    _, first, inverse = np.unique(_keys(rows), return_index=True, return_inverse=True)
    if not np.array_equal(rows[first][inverse], rows):  # Two sets share a key: once in some billion runs.
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, inverse


def _keys(rows: Words) -> Words:
    """Return a key of each row.

    A product moves bits up only, so that of the high bits of a word hardly anything is left: they are folded into the
    low ones before it, and once more before words are added up.
    """
    keys = np.empty(len(rows), dtype=np.uint64)
    for at in range(0, len(rows), ROWS_AT_ONCE):
        mixed = rows[at : at + ROWS_AT_ONCE]
        mixed = mixed ^ (mixed >> np.uint64(32))
        mixed *= MIXERS[: rows.shape[1]]
        mixed ^= mixed >> np.uint64(29)
        mixed *= LAST_MIXER
        mixed.sum(axis=1, dtype=np.uint64, out=keys[at : at + ROWS_AT_ONCE])
    return keys ^ keys >> np.uint64(31)
