"""Avro bodies -> Arrow columns, all records at once: for amounts of telemetry that are too slow record by record.

In: bytes that contain bodies of one schema, and where each begins and ends. Out: one Arrow struct array with a row for
each body that decodes, and which bodies these are. fastavro reads the same and explains why a body is invalid; a test
compares the two. The meaning of records does not belong here.

All records are walked side by side: each step reads the same field of every record, each at its own cursor. Unwanted
fields are skipped: an Avro long ends at its first byte below 128, so any number of longs in a row takes one look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs

LONG_BYTES_MAX = 10
LAST_SHIFT = 7 * (LONG_BYTES_MAX - 1)  # Shift of the bits in a long's last possible byte.
LONG_TEXT_BYTES = 32  # From this length on, a slice is faster than an index for each byte.
PADDING = bytes(16)  # Zeros end every long and every array that runs past the data.


class UnsupportedSchemaError(ValueError):
    """The schema has a type that cannot be read by columns; the message names it."""


@dataclass(frozen=True, eq=False, slots=True)
class DecodedColumns:
    """``rows`` has a row for each valid body, in order; ``places`` are the positions of these bodies."""

    rows: pa.StructArray
    places: Longs


def decode_columns(
    data: bytes, starts: Longs, ends: Longs, schema: Mapping[str, Any], wanted: Collection[str] | None = None
) -> DecodedColumns:
    """Return the bodies ``data[starts[i]:ends[i]]`` of a record schema as columns.

    ``wanted`` names the fields to return, None for all. A body is valid if it is a record of the schema from its first
    byte to its last; others are left out. The schema may have longs, doubles, texts, bytes, and arrays of these or of
    records of these. Raises UnsupportedSchemaError for any other schema.
    """
    names = [field["name"] for field in schema["fields"]]
    kept = set(names) if wanted is None else set(wanted)
    bodies = np.arange(starts.size, dtype=np.int64)
    while True:
        walk = ColumnWalk(data, starts[bodies], ends[bodies])
        rows = walk.record(schema, kept)
        if not walk.is_bad.any():
            return DecodedColumns(rows, bodies)
        bodies = bodies[~walk.is_bad]  # A bad body's arrays cannot be trusted: walk again without it.


class ColumnWalk:
    """One walk over many bodies side by side; ``at`` holds their cursors, ``is_bad`` marks those that cannot be read.

    ``rows`` in its methods are the positions of the bodies concerned.
    """

    def __init__(self, data: bytes, starts: Longs, ends: Longs) -> None:
        self._raw = data + PADDING
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._raw, dtype=np.uint8)
        self.at = starts.astype(np.int64, copy=True)
        self._ends = ends
        self.is_bad: NDArray[np.bool_] = np.zeros(starts.size, dtype=np.bool_)

    def record(self, schema: Mapping[str, Any], wanted: Collection[str]) -> pa.StructArray:
        """Return the wanted fields of all bodies, and move the cursors to their ends."""
        all_bodies = np.arange(self.at.size, dtype=np.int64)
        columns: dict[str, pa.Array] = {}
        for field in schema["fields"]:
            name, kind = field["name"], field["type"]
            is_wanted = name in wanted
            if isinstance(kind, Mapping) and kind["type"] == "array":
                column = self._array(kind["items"], is_wanted)
            else:
                values = self._plain(kind, all_bodies, is_wanted)
                column = self._arrow(kind, values, all_bodies) if is_wanted else None
            if column is not None:
                columns[name] = column
        self.is_bad |= self.at != self._ends
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))

    def _array(self, item: Any, is_wanted: bool) -> pa.ListArray | None:
        """Return the arrays at all cursors; reads the first items of all, then the second, and so on."""
        fields = _fields_of(item)
        owners: list[Longs] = []
        collected: list[list[_Values]] = []
        rows = np.arange(self.at.size, dtype=np.int64)
        while rows.size:  # An array is a sequence of counted blocks ending with an empty one.
            left = self._count(rows)
            rows, left = rows[left > 0], left[left > 0]
            owner = rows
            while owner.size:
                values = self._items(fields, owner, is_wanted)
                if is_wanted:
                    owners.append(owner)
                    collected.append(values)
                left = left - 1
                owner, left = owner[left > 0], left[left > 0]
        if not is_wanted:
            return None
        owner = np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64)
        order = np.argsort(owner, kind="stable")
        offsets = np.zeros(self.at.size + 1, dtype=np.int32)
        np.cumsum(np.bincount(owner, minlength=self.at.size), out=offsets[1:])
        columns = [
            self._arrow(kind, _joined([values[place] for values in collected], kind).taken(order), owner[order])
            for place, (_, kind) in enumerate(fields)
        ]
        is_record = not isinstance(item, str)
        items = pa.StructArray.from_arrays(columns, names=[name for name, _ in fields]) if is_record else columns[0]
        return pa.ListArray.from_arrays(pa.array(offsets), items)

    def _items(self, fields: Sequence[tuple[str, Any]], owner: Longs, is_wanted: bool) -> list[_Values]:
        if is_wanted:
            return [self._plain(kind, owner, is_wanted=True) for _, kind in fields]
        place = 0
        while place < len(fields):
            run = place
            while run < len(fields) and _is_long(fields[run][1]):
                run += 1
            if run > place:
                self.skip_longs(owner, run - place)
                place = run
            else:
                self._plain(fields[place][1], owner, is_wanted=False)
                place += 1
        return []

    def _count(self, rows: Longs) -> Longs:
        """Return how many items follow at the cursors of some bodies; a body with an impossible count is bad."""
        count = self.longs(rows)
        with_size = rows[count < 0]
        if with_size.size:
            self.skip_longs(with_size, 1)
            count = np.abs(count)
        impossible = (count < 0) | (count > self._ends[rows] - self.at[rows])  # abs of the least long is negative.
        self.is_bad[rows[impossible]] = True
        count[impossible] = 0
        return count

    def _plain(self, kind: Any, rows: Longs, is_wanted: bool) -> _Values:
        """Return a field that is not an array, for some bodies, and move past it."""
        if _is_long(kind):
            if is_wanted:
                return _Values(self.longs(rows))
            self.skip_longs(rows, 1)
        elif kind == "double":
            at = self.at[rows]
            self.at[rows] = np.minimum(at + 8, len(self._raw))
            if is_wanted:
                within = np.minimum(at, len(self._raw) - 8)
                eight = self._bytes[within[:, None] + np.arange(8)]
                return _Values(eight.view("<f8").reshape(-1))
        elif _is_bytes(kind):
            at, length = self.texts(rows)
            if is_wanted:
                return _Values(at, length)
        else:
            raise UnsupportedSchemaError(f"a field of type {kind} cannot be read by columns")
        return _Values(np.zeros(0, dtype=np.int64))

    def longs(self, rows: Longs) -> Longs:
        """Return the long at each cursor, and move past it."""
        at = np.minimum(self.at[rows], len(self._raw) - 1)
        byte = self._bytes[at]
        rest = (byte & 0x7F).astype(np.uint64)
        at += 1
        more = np.flatnonzero(byte > 0x7F)
        shift = 7
        while more.size and shift < LAST_SHIFT:
            byte = self._bytes[np.minimum(at[more], len(self._raw) - 1)]
            rest[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte > 0x7F]
            shift += 7
        if more.size:  # The tenth byte holds only one bit, and no byte may follow.
            byte = self._bytes[np.minimum(at[more], len(self._raw) - 1)]
            rest[more] |= (byte & 1).astype(np.uint64) << np.uint64(LAST_SHIFT)
            at[more] += 1
            self.is_bad[rows[more[byte > 1]]] = True
        self.at[rows] = at
        return (rest >> np.uint64(1)).view(np.int64) ^ -((rest & np.uint64(1)).view(np.int64))

    def texts(self, rows: Longs) -> tuple[Longs, Longs]:
        """Return begin and length of the text at each cursor, and move past it."""
        length = self.longs(rows)
        at = self.at[rows]
        impossible = (length < 0) | (length > self._ends[rows] - at)
        self.is_bad[rows[impossible]] = True
        length[impossible] = 0
        self.at[rows] = at + length
        return at, length

    def skip_longs(self, rows: Longs, count: int) -> None:
        """Move past ``count`` longs in a row."""
        at = np.minimum(self.at[rows], len(self._raw) - 1)
        first = self._ends_of_longs.before[at] - (self._bytes[at] < 0x80)
        places = self._ends_of_longs.places
        end = places[np.minimum(first + count - 1, places.size - 1)] + 1
        self._refuse_overlong(rows, at, end)
        self.at[rows] = end

    @cached_property
    def _ends_of_longs(self) -> _EndsOfLongs:
        """Return where longs would end; computed only if longs are skipped, because it scans every byte."""
        is_last = self._bytes < 0x80
        return _EndsOfLongs(np.flatnonzero(is_last), np.cumsum(is_last, dtype=np.int32))

    @cached_property
    def _overlong_before(self) -> NDArray[np.int32] | None:
        """Return how many bytes up to each would, as part of a long, make it exceed 64 bits; None if none would.

        Such a byte is at least the tenth of a number, all bytes before it announce another, and it uses more than the
        one bit that is left.
        """
        lasts_before = self._ends_of_longs.before
        before = lasts_before[LONG_BYTES_MAX - 2 : -1].copy()
        before[1:] -= lasts_before[: before.size - 1]
        overlong = np.zeros(self._bytes.size, dtype=np.bool_)
        overlong[LONG_BYTES_MAX - 1 :] = (before == 0) & (self._bytes[LONG_BYTES_MAX - 1 :] > 1)
        return np.cumsum(overlong, dtype=np.int32) if overlong.any() else None

    def _refuse_overlong(self, rows: Longs, begin: Longs, end: Longs) -> None:
        """Mark the bodies that have a number of more than 64 bits among the longs from ``begin`` to ``end``."""
        if self._overlong_before is None:
            return
        first = np.minimum(begin + LONG_BYTES_MAX - 2, end - 1)  # No earlier byte is a tenth of these.
        self.is_bad[rows[self._overlong_before[end - 1] > self._overlong_before[first]]] = True

    def _arrow(self, kind: Any, values: _Values, owner: Longs) -> pa.Array:
        """Return values as an array, texts dictionary-encoded; a body with a text that is not UTF-8 is bad."""
        if values.lengths is None:
            return pa.array(values.numbers, type=pa.int64() if _is_long(kind) else pa.float64())
        offsets = np.zeros(values.numbers.size + 1, dtype=np.int64)
        np.cumsum(values.lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._gathered(values.numbers, values.lengths, offsets))]
        array = pa.Array.from_buffers(pa.large_binary(), values.numbers.size, buffers)
        if kind == "bytes":
            return array
        coded = array.dictionary_encode()
        texts, wrong = [], []
        for place, raw in enumerate(coded.dictionary.to_pylist()):
            try:
                texts.append(raw.decode())
            except UnicodeDecodeError:
                texts.append("")
                wrong.append(place)
        if wrong:
            self.is_bad[owner[np.isin(coded.indices.to_numpy(), wrong)]] = True
        return pa.DictionaryArray.from_arrays(coded.indices, pa.array(texts, type=pa.string()))

    def _gathered(self, begins: Longs, lengths: Longs, offsets: Longs) -> bytes | NDArray[np.uint8]:
        """Return texts concatenated: short ones gathered by byte, all at once; long ones sliced one by one."""
        total = int(offsets[-1])
        if total > LONG_TEXT_BYTES * begins.size:
            cuts = zip(begins.tolist(), (begins + lengths).tolist(), strict=True)
            return b"".join([self._raw[begin:end] for begin, end in cuts])
        return self._bytes[np.repeat(begins - offsets[:-1], lengths) + np.arange(total)]


@dataclass(frozen=True, eq=False, slots=True)
class _EndsOfLongs:
    """Bytes that would end a long: their places, and how many there are up to each byte."""

    places: Longs
    before: NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class _Values:
    """One field of many records: numbers, or where texts begin and how long they are."""

    numbers: NDArray[Any]
    lengths: Longs | None = None

    def taken(self, order: Longs) -> _Values:
        return _Values(self.numbers[order], None if self.lengths is None else self.lengths[order])


def _is_long(kind: Any) -> bool:
    return kind in ("int", "long")


def _is_bytes(kind: Any) -> bool:
    return kind in ("string", "bytes")


def _joined(parts: Sequence[_Values], kind: Any) -> _Values:
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return _Values(none, none if _is_bytes(kind) else None)
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return _Values(np.concatenate([part.numbers for part in parts]), np.concatenate(lengths) if lengths else None)


def _fields_of(item: Any) -> list[tuple[str, Any]]:
    if isinstance(item, str):
        return [("item", item)]
    if item["type"] != "record":
        raise UnsupportedSchemaError(f"an array of {item['type']} cannot be read by columns")
    return [(field["name"], field["type"]) for field in item["fields"]]
