"""Decoded batches -> their parts in each window, as the Spark query makes them, but in this process.

In: batches as columns (``decode_columns``), all cells unpacked (``unpack_cells``). Out: input for ``merge_parts``,
which with ``close_windows`` gives the rows of the Spark job. Finding records and using windows do not belong here.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.schemas.bounds import SECOND_MAX, FieldBound, field_bounds
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.units import SECOND_MS
from regraft.streaming.merge_parts import WindowParts, distinct
from regraft.streaming.streaming_settings import EventBounds
from regraft.streaming.unpack_cells import is_torn

# When Kafka received each batch, negative if that does not count, and whether its clock was too far from that.
Clocks = tuple[Longs, NDArray[np.bool_]]

FIELDS = ("broker", "boot", "sequence", "time_ms", "epoch", "deliveries")  # Required in every batch.
READ = (*FIELDS, "seconds")  # To be read from a recording for these, if they exist.

_OWN_LISTS = {
    "queues": pa.struct(
        {
            "peer": pa.string(),
            **dict.fromkeys(
                ("messages_in", "messages_out", "notifications_out", "bytes_in", "bytes_out", "busy_ms"), pa.int64()
            ),
            "queue_length": pa.int64(),
            "queue_length_max": pa.int64(),
            "wait_ms": pa.int64(),
        }
    ),
    "probes": pa.struct({"peer": pa.string(), "rtt_ms": pa.float64()}),
    "clients": pa.struct({"client": pa.string(), "sequence": pa.int64(), "change": pa.string()}),
}


def is_sane(batches: pa.StructArray, kafka_ms: Longs, bounds: EventBounds) -> NDArray[np.bool_]:
    """Mark the plausible batches whose clocks are near Kafka's."""
    return np.asarray(is_plausible(batches) & is_near(_longs(batches, "time_ms"), kafka_ms, bounds))


def is_plausible(batches: pa.StructArray) -> NDArray[np.bool_]:
    """Mark the batches whose present fields are all within their bounds."""
    sane = np.ones(len(batches), dtype=np.bool_)
    names = {field.name for field in batches.type}
    for bound in field_bounds(TelemetryBatch):
        if bound.path[0] in names:
            sane &= ~_beyond(batches, bound)
    if "seconds" in names:
        sane &= ~is_torn(batches)
    return sane


def is_of(batches: pa.StructArray, brokers: Collection[str]) -> NDArray[np.bool_]:
    """Mark the batches of these brokers. The Spark job also checks the neighbours that a batch names, by
    :func:`has_only_peers`.
    """
    encoded = batches.field("broker").dictionary_encode()
    is_listed = np.array([name in brokers for name in encoded.dictionary.to_pylist()], dtype=np.bool_)
    return np.asarray(is_listed[encoded.indices.to_numpy(zero_copy_only=False)])


def has_only_peers(batches: pa.StructArray, name: str, peers: Collection[str]) -> NDArray[np.bool_]:
    """Mark the batches whose records in a list have only these peers."""
    lists = batches.field(name)
    encoded = lists.flatten().field("peer").dictionary_encode()
    is_listed = np.array([peer in peers for peer in encoded.dictionary.to_pylist()], dtype=np.bool_)
    owner = np.repeat(np.arange(len(lists), dtype=np.int64), lists.value_lengths().to_numpy(zero_copy_only=False))
    only = np.ones(len(lists), dtype=np.bool_)
    if is_listed.size:
        only[owner[~is_listed[encoded.indices.to_numpy(zero_copy_only=False)]]] = False
    return only


def _beyond(batches: pa.StructArray, bound: FieldBound) -> NDArray[np.bool_]:
    """Mark the batches that break a bound in any of their rows."""
    column = batches.field(bound.path[0])
    if bound.is_list:
        return np.asarray(column.value_lengths().to_numpy(zero_copy_only=False) > bound.most)
    if len(bound.path) == 1:
        return _values_beyond(column, bound)
    owner = np.repeat(np.arange(len(column), dtype=np.int64), column.value_lengths().to_numpy(zero_copy_only=False))
    beyond = np.zeros(len(column), dtype=np.bool_)
    beyond[owner[_values_beyond(column.flatten().field(bound.path[1]), bound)]] = True
    return beyond


def _values_beyond(values: pa.Array, bound: FieldBound) -> NDArray[np.bool_]:
    if bound.is_text:
        encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        wrong = np.array([not bound.accepts_text(text) for text in texts], dtype=np.bool_)
        return wrong[encoded.indices.to_numpy(zero_copy_only=False)] if texts else np.zeros(len(values), dtype=np.bool_)
    numbers = values.to_numpy(zero_copy_only=False)
    return np.asarray(~((numbers >= bound.least) & (numbers <= bound.most)))  # NaN fails both.


def with_near_deliveries(batches: pa.StructArray, kafka_ms: Longs, bounds: EventBounds) -> pa.StructArray:
    """Return the batches without deliveries whose time, by another broker's clock, is far from Kafka's."""
    owner, cells = _cells(batches)
    near = is_near(_longs(cells, "second") * SECOND_MS, kafka_ms[owner], bounds)
    if near.all():
        return batches
    kept = _kept(owner, cells, near, len(batches))
    names = [field.name for field in batches.type]
    return pa.StructArray.from_arrays(
        [kept if name == "deliveries" else batches.field(name) for name in names], names=names
    )


def kafka_lag_ms(batches: pa.StructArray, kafka_ms: Longs) -> tuple[int, int]:
    """Return how far, at most, Kafka's time of a record is after its earliest event, and before its latest, in ms."""
    if not len(batches):
        return 0, 0
    time_ms = _longs(batches, "time_ms")
    earliest_ms, latest_ms = _delivery_span_ms(batches)
    after = kafka_ms - np.minimum(time_ms, earliest_ms)
    before = np.maximum(time_ms, latest_ms) - kafka_ms
    return max(int(after.max()), 0), max(int(before.max()), 0)


def tabulate_batches(batches: pa.StructArray, window_ms: int, first_ms: int, end_ms: int) -> WindowParts:
    """Return the parts in the windows that start from ``first_ms`` to before ``end_ms``.

    Queues, probes and clients may be missing in ``batches``; the windows then have none. Clocks are left out.
    """
    time_ms = _longs(batches, "time_ms")
    owner, cells = _cells(batches)
    own_ms = time_ms - time_ms % window_ms
    second_ms = _longs(cells, "second") * SECOND_MS
    window = np.concatenate([own_ms, second_ms - second_ms % window_ms])
    batch = np.concatenate([np.arange(time_ms.size, dtype=np.int64), owner])
    is_here = (window >= first_ms) & (window < end_ms)
    [part_window, part_batch], _ = distinct([window[is_here], batch[is_here]])
    return parts_in_windows(batches.take(pa.array(part_batch)), part_window, window_ms)


def parts_in_windows(
    batches: pa.StructArray, window_start_ms: Longs, window_ms: int, clocks: Clocks | None = None
) -> WindowParts:
    """Return each batch's part in one window; ``clocks`` is what is known of its clock, None for nothing.

    Queues, probes and clients may be missing in ``batches``; the parts then have none.
    """
    none = np.zeros(len(batches), dtype=np.int64)
    kafka_ms, is_off = (none - 1, none.astype(np.bool_)) if clocks is None else clocks
    time_ms = _longs(batches, "time_ms")
    is_own = (time_ms - time_ms % window_ms == window_start_ms) & ~is_off
    is_taken = (kafka_ms >= 0) & (kafka_ms - kafka_ms % window_ms == window_start_ms)
    owner, cells = _cells(batches)
    second_ms = _longs(cells, "second") * SECOND_MS
    is_here = (second_ms - second_ms % window_ms == window_start_ms[owner]) & ~is_off[owner]
    columns = {name: batches.field(name) for name in FIELDS if name != "deliveries"}
    columns |= {"own": pa.array(is_own.astype(np.int64)), "taken": pa.array(is_taken.astype(np.int64))}
    columns["delay_ms"] = pa.array(np.where(is_taken, kafka_ms - time_ms, 0))
    columns["is_off"] = pa.array(is_off.astype(np.int64))
    columns["deliveries"] = batches.field("deliveries") if is_here.all() else _kept(owner, cells, is_here, len(batches))
    names = {field.name for field in batches.type}
    for name, kind in _OWN_LISTS.items():
        lists = batches.field(name) if name in names else pa.nulls(len(batches), pa.list_(kind))
        columns[name] = lists if is_own.all() else lists.take(pa.array(np.arange(len(batches)), mask=~is_own))
    return WindowParts(window_start_ms, pa.StructArray.from_arrays(list(columns.values()), names=list(columns)))


def _kept(owner: Longs, cells: pa.StructArray, kept: NDArray[np.bool_], count: int) -> pa.ListArray:
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(owner[kept], minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), cells.filter(pa.array(kept)))


def is_near(time_ms: Longs, kafka_ms: Longs, bounds: EventBounds) -> NDArray[np.bool_]:
    """Mark the event times that are near enough to Kafka's."""
    near = np.ones(time_ms.size, dtype=np.bool_)
    if bounds.future_ms_max is not None:
        near &= time_ms - kafka_ms <= bounds.future_ms_max
    if bounds.past_ms_max is not None:
        near &= kafka_ms - time_ms <= bounds.past_ms_max
    return near


def _longs(rows: pa.StructArray, name: str) -> Longs:
    longs: Longs = rows.field(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return longs


def _cells(batches: pa.StructArray) -> tuple[Longs, pa.StructArray]:
    """Return the position of each delivery's batch, and all deliveries."""
    lists = batches.field("deliveries")
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths), lists.flatten()


def _delivery_span_ms(batches: pa.StructArray) -> tuple[Longs, Longs]:
    """Return the times of each batch's earliest and latest delivery; its own time if it has none."""
    owner, cells = _cells(batches)
    earliest_ms = _longs(batches, "time_ms").copy()
    latest_ms = earliest_ms.copy()
    if owner.size:
        at = np.flatnonzero(np.diff(owner, prepend=-1))
        seconds = np.clip(_longs(cells, "second"), -1, SECOND_MAX + 1) * SECOND_MS
        earliest_ms[owner[at]] = np.minimum.reduceat(seconds, at)
        latest_ms[owner[at]] = np.maximum.reduceat(seconds, at)
    return earliest_ms, latest_ms
