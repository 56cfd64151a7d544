"""Packed seconds of batches -> delivery cells as columns, as if they had been sent one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE
from regraft.schemas.packed_cells import COUNT_BYTES, MASK_BYTES, SEPARATOR

SECONDS, CELLS = "seconds", "deliveries"
WIDTHS = {"blocks": COUNT_BYTES, "masks": MASK_BYTES, "local_deliveries": COUNT_BYTES, "bytes": COUNT_BYTES}


def with_cells(batches: pa.StructArray) -> pa.StructArray:
    """Return the batches with all cells in ``deliveries``, single ones first, and without ``seconds``.

    No batch may be torn (``is_torn``). Cost O(cells), vectorised.
    """
    names = [field.name for field in batches.type]
    if SECONDS not in names:
        return batches
    seconds = batches.field(SECONDS)
    single = batches.field(CELLS)
    groups = seconds.flatten()
    cells_of = cell_counts(groups)
    packed = _unpacked(groups, cells_of)
    counts = _lengths(single)
    if packed is None:
        lists = single
    else:
        packed_counts = _added(cells_of, _owner(seconds), len(batches))
        cells = packed
        if counts.any():
            owner = np.concatenate([_owner(single), np.repeat(np.arange(len(batches)), packed_counts)])
            cells = pa.concat_arrays([single.flatten(), packed]).take(pa.array(np.argsort(owner, kind="stable")))
        offsets = np.zeros(len(batches) + 1, dtype=np.int32)
        np.cumsum(counts + packed_counts, out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets), cells)
    kept = [name for name in names if name != SECONDS]
    return pa.StructArray.from_arrays([lists if name == CELLS else batches.field(name) for name in kept], names=kept)


def is_torn(batches: pa.StructArray) -> NDArray[np.bool_]:
    """Mark the batches with a packed second that violates the layout."""
    torn = np.zeros(len(batches), dtype=np.bool_)
    seconds = batches.field(SECONDS)
    groups = seconds.flatten()
    if not len(groups):
        return torn
    count = cell_counts(groups)
    wrong = np.zeros(len(groups), dtype=np.bool_)
    for name, width in WIDTHS.items():
        wrong |= _sizes(groups.field(name)) != width * count
    published = _sizes(groups.field("published"))
    wrong |= (published != 0) & (published != MASK_BYTES * count)
    coded = groups.field("publishers")
    texts = np.array([_is_unclean(text) for text in coded.dictionary.to_pylist()], dtype=np.bool_)
    wrong |= texts[coded.indices.to_numpy(zero_copy_only=False)]
    torn[_owner(seconds)[wrong]] = True
    return torn


def _is_unclean(text: str) -> bool:
    lengths = [len(name) for name in text.split(SEPARATOR)]
    is_long = not 0 < min(lengths) <= max(lengths) <= NAME_LENGTH_MAX
    return is_long or UNCLEAN_ANYWHERE.search(text.replace(SEPARATOR, "")) is not None


def _unpacked(groups: pa.StructArray, counts: Longs) -> pa.StructArray | None:
    """Return the cells of all packed seconds, None if there are none."""
    if not len(groups):
        return None
    total = int(counts.sum())
    published = np.zeros(total, dtype=np.int64)
    has_published = np.repeat(_sizes(groups.field("published")) > 0, counts)
    published[has_published] = _raw(groups.field("published")).view("<i8")
    columns = {
        "publisher": _names(groups.field("publishers")),
        "block": _counts(groups.field("blocks")),
        "second": np.repeat(groups.field("second").to_numpy(zero_copy_only=False), counts),
        "mask": _raw(groups.field("masks")).view("<i8"),
        "local_deliveries": _counts(groups.field("local_deliveries")),
        "bytes": _counts(groups.field("bytes")),
        "published": published,
    }
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns.values()]
    return pa.StructArray.from_arrays(arrays, names=list(columns))


def _names(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the names of all lines; each distinct text is split once."""
    lists = pc.split_pattern(coded.dictionary, SEPARATOR)
    names = lists.flatten().dictionary_encode()
    codes = pa.ListArray.from_arrays(lists.offsets, names.indices).take(coded.indices).flatten()
    return pa.DictionaryArray.from_arrays(codes, names.dictionary)


def cell_counts(groups: pa.StructArray) -> Longs:
    """Return the number of cells in each packed second, counted by its names."""
    coded = groups.field("publishers")
    lines = pc.add(pc.count_substring(coded.dictionary, SEPARATOR), 1).to_numpy(zero_copy_only=False)
    counts: Longs = lines.astype(np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
    return counts


def _counts(column: pa.Array) -> Longs:
    raw = _raw(column)
    wide = np.zeros((raw.size // COUNT_BYTES, 8), dtype=np.uint8)
    wide[:, :COUNT_BYTES] = raw.reshape(-1, COUNT_BYTES)
    return wide.view("<i8").reshape(-1)


def _raw(column: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of all values, concatenated, so that they can be read as numbers."""
    _, _, data = column.buffers()
    offsets = _offsets(column)
    return np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].copy()


def _sizes(column: pa.Array) -> Longs:
    return np.diff(_offsets(column))


def _offsets(column: pa.Array) -> Longs:
    _, offsets, _ = column.buffers()
    return np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]


def _lengths(lists: pa.ListArray) -> Longs:
    lengths: Longs = pc.fill_null(lists.value_lengths(), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _owner(lists: pa.ListArray) -> Longs:
    return np.repeat(np.arange(len(lists), dtype=np.int64), _lengths(lists))


def _added(values: Longs, owner: Longs, count: int) -> Longs:
    return np.bincount(owner, weights=values, minlength=count).astype(np.int64)
