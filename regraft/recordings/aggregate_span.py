"""Aggregate one span of a recording into windows: one task of the aggregation.

In: a recording and a span of windows. Out: files with the windows, and with the clients and plans stored during the
span. Dividing a recording into spans belongs to ``aggregate_recording``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from regraft.infra.process.run_tasks import ReportWork
from regraft.producers.recordings.read_recording import Recording, RecordingBlock, open_recording
from regraft.producers.recordings.reading_bounds import DEFAULT_BOUNDS, ReadingBounds
from regraft.producers.recordings.recorded_members import added_members
from regraft.producers.recordings.recording_format import NULL_BRANCH, FormError
from regraft.recordings.find_telemetry import BlockRecords, find_telemetry
from regraft.run_records.replay_register import ClientChange
from regraft.schemas.arrays import Longs
from regraft.schemas.client import Client
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, UndecodableRecordError, decode, encode
from regraft.schemas.plan import Plan
from regraft.schemas.registry import latest_schema
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import CLIENTS, PLANS, TELEMETRY
from regraft.streaming.close_windows import WindowRows, close_windows
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.merge_parts import WindowParts, merge_parts
from regraft.streaming.streaming_settings import EventBounds
from regraft.streaming.tabulate_batches import (
    READ,
    is_of,
    is_sane,
    kafka_lag_ms,
    tabulate_batches,
    with_near_deliveries,
)
from regraft.streaming.unpack_cells import with_cells

READ_BYTES_MIN = 8 << 20  # Bytes of blocks that are decoded together.
WANTED = frozenset({*READ, "probes", "clients"})
KEPT_TOPICS = (CLIENTS.suffix, PLANS.suffix)
KINDS_KEPT = ("delivery", "rtt", "churn")


class RecordedWindow(msgspec.Struct, frozen=True, array_like=True):
    """Rows and marker of one window."""

    rows: tuple[StateRow, ...]
    marker: WindowClosed


class RecordedPlan(msgspec.Struct, frozen=True, array_like=True):
    """A version of a plan, and when it was stored."""

    time_ms: int
    plan: Plan


class SpanTask(msgspec.Struct, frozen=True):
    """The windows that start in [``first_ms``, ``end_ms``), and the clients and plans stored during the span.

    Telemetry is read from blocks between ``lead_ms`` before and ``lag_ms`` after the windows, because Kafka's time
    differs from the brokers'. Clients and plans are read from blocks that begin in [``kept_from_ms``, ``kept_end_ms``).
    """

    recording: str
    folder: str
    number: int
    first_ms: int
    end_ms: int
    kept_from_ms: int
    kept_end_ms: int
    window_ms: int
    lag_ms: int
    lead_ms: int
    future_ms_max: int | None
    past_ms_max: int | None
    work_count: int
    bounds: ReadingBounds

    @property
    def label(self) -> str:
        """The task's name."""
        return f"span-{self.number}"


class SpanResult(msgspec.Struct, frozen=True):
    """The outcome of a task; ``lag_ms`` and ``lead_ms`` are the largest seen."""

    windows: int
    records: int
    refused: int
    lag_ms: int
    lead_ms: int
    warnings: tuple[str, ...]


@lru_cache(maxsize=1)
def opened_recording(path: str, bounds: ReadingBounds = DEFAULT_BOUNDS) -> Recording:
    """Return the recording, opened once per process until the cache is cleared."""
    return open_recording(Path(path), bounds)


@lru_cache(maxsize=1)
def _added_brokers(recording: Recording) -> frozenset[str]:
    """Return the brokers that joined during the recording."""
    return frozenset(member.broker for member in added_members(recording))


class _Kept:
    """The clients and plans in the blocks of one span."""

    def __init__(self) -> None:
        self.changes: list[ClientChange] = []
        self.plans: list[RecordedPlan] = []
        self.errors: Counter[str] = Counter()

    def add(self, topic: str, time_ms: int, key: bytes, value: bytes | None) -> None:
        """Decode and keep a record; ``value`` is framed, None for a tombstone."""
        try:
            if topic == CLIENTS.suffix:
                client = None if value is None else decode(value, Client)
                name = key.decode(errors="replace")
                self.changes.append(ClientChange(time_ms if client is None else client.time_ms, name, client))
            elif value is not None:
                self.plans.append(RecordedPlan(time_ms, decode(value, Plan)))
        except UndecodableRecordError as error:
            self.errors[f"A record of {topic} was not read: {error}."] += 1


class _Telemetry:
    """Decodes telemetry and tabulates it into parts of windows."""

    def __init__(self, task: SpanTask) -> None:
        self._task = task
        self._bounds = EventBounds(task.future_ms_max, task.past_ms_max)
        self._recording = opened_recording(task.recording, task.bounds)
        self._brokers = frozenset(self._recording.info.inventory.brokers)
        self._schema = json.loads(latest_schema(TELEMETRY.record).text)
        self.parts: list[WindowParts] = []
        self.records = self.refused = 0
        self.lag_ms = self.lead_ms = 0

    def add(self, raw: bytes, starts: Longs, sizes: Longs, kafka_ms: Longs) -> None:
        """Add bodies of the newest schema in ``raw``, given the start, size and Kafka's time of each."""
        columns = decode_columns(raw, starts, starts + sizes, self._schema, WANTED)
        kafka_ms = kafka_ms[columns.places]
        is_member = is_of(columns.rows, self._brokers)
        if not is_member.all():
            self._brokers |= _added_brokers(self._recording)
            is_member = is_of(columns.rows, self._brokers)
        sane = is_sane(columns.rows, kafka_ms, self._bounds) & is_member
        rows = columns.rows if sane.all() else columns.rows.filter(pa.array(sane))
        kafka_ms = kafka_ms[sane]
        rows = with_near_deliveries(with_cells(rows), kafka_ms, self._bounds)
        lag_ms, lead_ms = kafka_lag_ms(rows, kafka_ms)
        self.lag_ms, self.lead_ms = max(self.lag_ms, lag_ms), max(self.lead_ms, lead_ms)
        self.records += starts.size
        self.refused += starts.size - len(rows)
        task = self._task
        self.parts.append(tabulate_batches(rows, task.window_ms, task.first_ms, task.end_ms))


def aggregate_span(task: SpanTask, report_work: ReportWork) -> SpanResult:
    """Write the windows of a span, and the clients and plans stored during it."""
    telemetry, kept = _Telemetry(task), _Kept()
    warnings: list[str] = []
    first_ms, end_ms = task.first_ms - task.lead_ms, task.end_ms + task.window_ms + task.lag_ms
    group: _BlockGroup | None = None
    for block in opened_recording(task.recording, task.bounds).blocks():
        is_mine = task.kept_from_ms <= block.span.first_ms < task.kept_end_ms
        is_counted = block.span.telemetry > 0 and block.span.last_ms >= first_ms and block.span.first_ms < end_ms
        if is_counted or (is_mine and block.count > block.span.telemetry):
            ids = tuple(None if schema is None else schema.schema_id for schema in block.schemas)
            new = _BlockGroup(telemetry if is_counted else None, kept if is_mine else None, ids)
            if group is None or not group.is_like(new):
                warnings += [] if group is None else group.take()
                group = new
            warnings += group.add(block)
        if is_mine:
            report_work(1)
    warnings += [] if group is None else group.take()
    folder = Path(task.folder)
    encoder = msgspec.msgpack.Encoder()
    (folder / f"clients-{task.number}").write_bytes(encoder.encode(kept.changes))
    (folder / f"plans-{task.number}").write_bytes(encoder.encode(kept.plans))
    parts = [each for each in telemetry.parts if len(each.parts)]
    windows = close_windows(merge_parts(WindowParts.joined(parts)), task.window_ms) if parts else []
    with (folder / f"windows-{task.number}").open("wb") as file:
        for window in windows:
            encoded = encoder.encode(_recorded(window))
            file.write(len(encoded).to_bytes(4, "little") + encoded)
    return SpanResult(
        len(windows),
        telemetry.records,
        telemetry.refused,
        telemetry.lag_ms,
        telemetry.lead_ms,
        (*warnings, *kept.errors),
    )


def _recorded(window: WindowRows) -> RecordedWindow:
    rows = [row for row in (*window.delivery_rows(), *window.shard.others) if row.kind in KINDS_KEPT]
    counts = {kind: count for kind, count in window.marker.row_counts.items() if kind in KINDS_KEPT}
    return RecordedWindow(tuple(rows), msgspec.structs.replace(window.marker, row_counts=counts))


class _BlockGroup:
    """Blocks that are decoded together, because a call is expensive and a record cheap.

    They share their schemas and readers. ``add`` and ``take`` return warnings.
    """

    def __init__(self, telemetry: _Telemetry | None, kept: _Kept | None, ids: tuple[int | None, ...]) -> None:
        self._telemetry, self._kept, self._ids = telemetry, kept, ids
        self._blocks: list[tuple[RecordingBlock, bytes]] = []
        self._size = 0

    def is_like(self, other: _BlockGroup) -> bool:
        """Return True if the other group's blocks could be in this one."""
        return (self._telemetry, self._kept, self._ids) == (other._telemetry, other._kept, other._ids)

    def add(self, block: RecordingBlock) -> list[str]:
        """Add a block, and read all pending ones once they exceed READ_BYTES_MIN."""
        try:
            raw = block.raw()
        except FormError as error:
            return [_damage_text(block, error)]
        self._blocks.append((block, raw))
        self._size += len(raw)
        return self.take() if self._size >= READ_BYTES_MIN else []

    def take(self) -> list[str]:
        """Read the pending blocks; an error in one block does not affect the others."""
        blocks, self._blocks, self._size = self._blocks, [], 0
        if not blocks:
            return []
        try:
            raw = b"".join(raw for _, raw in blocks)
            self._take(raw, find_telemetry(raw, sum(block.count for block, _ in blocks)))
            return []
        except FormError:
            pass
        warnings = []
        for block, raw in blocks:
            try:
                self._take(raw, find_telemetry(raw, block.count))
            except FormError as error:
                warnings.append(_damage_text(block, error))
        return warnings

    def _take(self, raw: bytes, records: BlockRecords) -> None:
        """Pass telemetry and other records to their readers."""
        if self._telemetry is not None and records.start.size:
            newest = self._ids.index(latest_schema(TELEMETRY.record).schema_id) if self._has_newest else -1
            is_newest = records.branch == newest
            starts, sizes = records.start[is_newest], records.size[is_newest]
            self._telemetry.add(raw, starts, sizes, records.time_ms[is_newest])
            if not is_newest.all():
                self._take_older(raw, records, np.flatnonzero(~is_newest))
        if self._kept is not None:
            for record in records.others:
                if record.topic in KEPT_TOPICS:
                    body = raw[record.start : record.start + record.size]
                    value = None if record.branch == NULL_BRANCH else _framed(body, self._ids, record.branch)
                    self._kept.add(record.topic, record.time_ms, record.key, value)

    @property
    def _has_newest(self) -> bool:
        return latest_schema(TELEMETRY.record).schema_id in self._ids

    def _take_older(self, raw: bytes, records: BlockRecords, places: Longs) -> None:
        """Convert telemetry of older schemas to the newest one, record by record, and add it."""
        assert self._telemetry is not None
        bodies = [
            _newest_body(raw[start : start + size], self._ids, branch)
            for start, size, branch in zip(
                records.start[places].tolist(),
                records.size[places].tolist(),
                records.branch[places].tolist(),
                strict=True,
            )
        ]
        sizes = np.array([len(body) for body in bodies], dtype=np.int64)
        self._telemetry.add(b"".join(bodies), np.cumsum(sizes) - sizes, sizes, records.time_ms[places])


def _damage_text(block: RecordingBlock, error: FormError) -> str:
    return f"The block at byte {block.at} of {block.path} is damaged ({error}): its {block.count} records are skipped."


def _framed(body: bytes, ids: Sequence[int | None], branch: int) -> bytes:
    """Return a value as it is in Kafka, schema id first; empty if the branch has no schema."""
    schema_id = ids[branch] if branch < len(ids) else None
    return b"" if schema_id is None else b"\x00" + schema_id.to_bytes(4, "big") + body


def _newest_body(body: bytes, ids: Sequence[int | None], branch: int) -> bytes:
    """Return the body converted to the newest schema; empty if it is not telemetry."""
    try:
        return encode(decode(_framed(body, ids, branch), TelemetryBatch))[CONFLUENT_HEADER_BYTES:]
    except UndecodableRecordError:
        return b""
