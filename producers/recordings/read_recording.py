"""Read recordings: one file, all parts of one recording, or a folder of them.

In: a path. Out: messages as they were in Kafka, in the order of their times, or telemetry batches as dicts. A truncated
file is read to its end, a damaged block is skipped; both are reported in ``warnings``. Nothing here writes.
"""

from __future__ import annotations

import heapq
import io
import mmap
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from fastavro import schemaless_reader, schemaless_writer

from regraft.producers.recordings.reading_bounds import DEFAULT_BOUNDS, ReadingBounds
from regraft.producers.recordings.recording_files import RecordingError as RecordingError
from regraft.producers.recordings.recording_files import RecordingInfo as RecordingInfo
from regraft.producers.recordings.recording_files import RecordingPart, files_of, open_part
from regraft.producers.recordings.recording_format import (
    NULL_BRANCH,
    SPAN,
    SYNC_BYTES,
    UNREAD_BRANCH,
    BlockSpan,
    FormError,
    RawRecord,
    decode_span,
    decompress_block,
    raw_records,
    read_varint,
    schema_of,
)
from regraft.schemas.codec import header
from regraft.schemas.registry import Schema, latest_schema
from regraft.schemas.topics import TELEMETRY

VARINTS_BYTES_MAX = 20
MESSAGE_BYTES = 300  # Memory for a message, besides its key and value.
TIME_MIN, TIME_MAX = -(1 << 63), 1 << 63  # All times that Kafka accepts from a sender.
BACK_MS_MIN = 1_000  # Messages of several producers may be out of order by less.
SPANS_KEPT_MAX = 1_000_000

Place = tuple[str, int]
Moment = tuple[int, int]  # offset, time


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One Kafka message as it was recorded; ``topic`` is the suffix, ``value`` framed with the newest schema's id.

    A value that was not a record of its topic is unchanged.
    """

    topic: str
    time_ms: int
    partition: int
    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RecordingBlock:
    """A block's file and position, its number of records, and the span that it states. Cheap to pass on."""

    path: Path
    at: int
    size: int
    count: int
    span: BlockSpan
    schemas: tuple[Schema | None, ...] = field(repr=False)
    raw_bytes_max: int = DEFAULT_BOUNDS.block_bytes_max

    def raw(self) -> bytes:
        """Return the block's records, decompressed. Raises FormError if they are damaged."""
        with self.path.open("rb") as file:
            file.seek(self.at)
            return decompress_block(file.read(self.size), self.raw_bytes_max)


def open_recording(path: Path, bounds: ReadingBounds = DEFAULT_BOUNDS) -> Recording:
    """Open a file with the parts that follow it, one part alone, or the recording in a folder. Raises RecordingError.

    The name of the first part (``rec.avro``) stands for all parts, that of a later one (``rec-00002.avro``) for that
    part alone. A block that exceeds ``bounds`` when decompressed counts as damaged.
    """
    files = files_of(path)
    parts = [open_part(file) for file in files]
    others = [part for part in parts if part.info.recording != parts[0].info.recording]
    if others:
        raise RecordingError(
            f"{path} holds parts of several recordings ({parts[0].path.name} and {others[0].path.name}): "
            "name the first file of one."
        )
    parts.sort(key=lambda part: part.info.part)
    return Recording(path, parts, bounds)


class Recording:
    """One recording, or the parts of it that exist.

    ``warnings`` lists what is wrong with it, one sentence each; reading may add more. ``bounds`` are those that it was
    opened with.
    """

    def __init__(self, path: Path, parts: Sequence[RecordingPart], bounds: ReadingBounds = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds
        self.path = path
        self.info = parts[0].info
        self.files = tuple(part.path for part in parts)
        self.warnings: list[str] = []
        self._parts = parts
        self._blocks: list[RecordingBlock] | None = None
        numbers = [part.info.part for part in parts]
        if numbers != list(range(1, len(parts) + 1)):
            named = ", ".join(str(number) for number in numbers)
            self.warnings.append(
                f"Only part {named} of the recording is here: earlier entries of the register of clients are unknown."
            )

    def blocks(self) -> list[RecordingBlock]:
        """Return all blocks in the order of the files, without reading their records."""
        if self._blocks is None:
            self._blocks = [block for part in self._parts for block in self._scan(part)]
        return self._blocks

    @property
    def first_ms(self) -> int | None:
        """The least time of any message; None if there is none."""
        return min((block.span.first_ms for block in self.blocks()), default=None)

    @property
    def last_ms(self) -> int | None:
        """The greatest time of any message; None if there is none."""
        return max((block.span.last_ms for block in self.blocks()), default=None)

    @property
    def telemetry_span_ms(self) -> tuple[int, int] | None:
        """The least and the greatest time of telemetry; None if there is none. Registers hold older messages."""
        spans = [block.span for block in self.blocks() if block.span.telemetry]
        if not spans:
            return None
        return min(span.telemetry_first_ms for span in spans), max(span.telemetry_last_ms for span in spans)

    @property
    def count(self) -> int:
        """How many messages all blocks claim to hold."""
        return sum(block.count for block in self.blocks())

    def messages(
        self, topics: Collection[str] | None = None, from_ms: int | None = None, to_ms: int | None = None
    ) -> Iterator[RecordedMessage]:
        """Yield the messages of these topics (suffixes; None for all) in the order of their times, ``to_ms`` excluded.

        Memory holds the blocks whose times overlap; raises RecordingError if they exceed the bounds. If a clock went
        back, the warnings report it afterwards.
        """
        first_ms, end_ms = _bounds(from_ms, to_ms)
        clocks = ClockWatch()
        waiting = deque(sorted(self._between(first_ms, end_ms), key=lambda block: block.span.first_ms))
        heap: list[tuple[int, int, RecordedMessage]] = []
        number = held_bytes = 0
        while waiting or heap:
            while waiting and (not heap or waiting[0].span.first_ms <= heap[0][0]):
                for message in self._messages_of(waiting.popleft(), topics, clocks):
                    if first_ms <= message.time_ms < end_ms:
                        heapq.heappush(heap, (message.time_ms, number, message))
                        number += 1
                        held_bytes += _held_bytes(message)
                if held_bytes > self.bounds.overlap_bytes_max:
                    raise RecordingError(
                        f"{self.path} has blocks of more than {self.bounds.overlap_mb_max} MB whose times overlap: no "
                        "recorder writes such files; check where it is from, or read a part of it."
                    )
            if heap:
                message = heapq.heappop(heap)[2]
                held_bytes -= _held_bytes(message)
                yield message
        self._warn(clocks.warning())

    def batches(self, from_ms: int | None = None, to_ms: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the telemetry as dicts, as fastavro reads them, block by block in the order of their times."""
        for block in sorted(self._between(*_bounds(from_ms, to_ms)), key=lambda block: block.span.first_ms):
            yield from block_batches(block, from_ms, to_ms, self._warn)

    def _between(self, first_ms: int, end_ms: int) -> list[RecordingBlock]:
        return [block for block in self.blocks() if block.span.last_ms >= first_ms and block.span.first_ms < end_ms]

    def _messages_of(
        self, block: RecordingBlock, topics: Collection[str] | None, clocks: ClockWatch
    ) -> Iterator[RecordedMessage]:
        try:
            raw = block.raw()
            for record in raw_records(raw, block.count):
                clocks.note(record.topic, record.partition, record.offset, record.time_ms)
                if topics is not None and record.topic not in topics:
                    continue
                value = _value_of(raw, record, block.schemas)
                yield RecordedMessage(record.topic, record.time_ms, record.partition, record.offset, record.key, value)
        except FormError as damage:
            self._warn(_damage(block, damage))
        clocks.end_block()

    def _warn(self, text: str) -> None:
        if text and text not in self.warnings:
            self.warnings.append(text)

    def _scan(self, part: RecordingPart) -> Iterator[RecordingBlock]:
        """Yield a file's blocks; warn where it is cut or damaged."""
        size = part.path.stat().st_size
        at, count = part.container.header_bytes, 0
        if size <= at:
            return
        with part.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            while at < size:
                block = _block_at(view, at, part, self.bounds.block_bytes_max)
                if block is not None:
                    count += block.count
                    at = block.at + block.size + SYNC_BYTES
                    yield block
                    continue
                following = view.find(part.container.sync, at)
                if following < 0:
                    self._warn(
                        f"{part.path} is cut: it was read to byte {at} of {size}, {count} records; "
                        "what was being written when recording ended is lost."
                    )
                    return
                self._warn(f"{part.path} is damaged from byte {at} to {following}: that part is skipped.")
                at = following + SYNC_BYTES


def block_batches(
    block: RecordingBlock,
    from_ms: int | None = None,
    to_ms: int | None = None,
    warn: Callable[[str], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the telemetry of one block as dicts; ``warn`` is called once for each kind of error."""
    first_ms, end_ms = _bounds(from_ms, to_ms)
    newest = latest_schema(TELEMETRY.record)
    errors: Counter[str] = Counter()
    try:
        raw = block.raw()
        stream = io.BytesIO(raw)
        for record in raw_records(raw, block.count):
            if record.topic != TELEMETRY.suffix or not first_ms <= record.time_ms < end_ms:
                continue
            written = schema_of(record, block.schemas)
            if written is None or written.record != TELEMETRY.record:
                errors["is not telemetry"] += 1
                continue
            stream.seek(record.start)
            try:
                batch = schemaless_reader(stream, written.parsed, None if written is newest else newest.parsed)
            except Exception as error:  # fastavro raises many types on bad bytes.
                errors[f"does not decode ({type(error).__name__})"] += 1
                continue
            if stream.tell() != record.start + record.size:
                errors["does not decode (its size is wrong)"] += 1
                continue
            yield cast(dict[str, Any], batch)
    except FormError as damage:
        if warn is not None:
            warn(_damage(block, damage))
    if errors and warn is not None:
        for why, count in errors.items():
            warn(f"{count} records of telemetry in the block at byte {block.at} of {block.path.name}: each {why}.")


def _held_bytes(message: RecordedMessage) -> int:
    return MESSAGE_BYTES + len(message.key) + len(message.value or b"")


def _value_of(raw: bytes, record: RawRecord, schemas: Sequence[Schema | None]) -> bytes | None:
    if record.branch == NULL_BRANCH:
        return None
    body = raw[record.start : record.start + record.size]
    if record.branch == UNREAD_BRANCH:
        try:
            _, start = read_varint(body, 0)
        except IndexError as error:
            raise FormError("a value that was kept undecoded is truncated") from error
        return body[start:]
    written = schema_of(record, schemas)
    assert written is not None
    newest = latest_schema(written.record)
    if written.schema_id == newest.schema_id:
        return header(written.record) + body
    out = io.BytesIO()
    try:
        datum = schemaless_reader(io.BytesIO(body), written.parsed, newest.parsed)
        schemaless_writer(out, newest.parsed, cast(Any, datum))
    except Exception:  # fastavro raises many types on bad bytes; decoding the value later shows why.
        return b"\0" + written.schema_id.to_bytes(4, "big") + body
    return header(written.record) + out.getvalue()


def _block_at(view: mmap.mmap, at: int, part: RecordingPart, raw_bytes_max: int) -> RecordingBlock | None:
    """Return the block that begins at ``at``, None if no complete one does."""
    start = view[at : at + VARINTS_BYTES_MAX]
    try:
        count, used = read_varint(start, 0)
        size, used = read_varint(start, used)
    except (IndexError, FormError):
        return None
    begin, end = at + used, at + used + size
    if count < 1 or size < 1 or view[end : end + SYNC_BYTES] != part.container.sync:
        return None
    span = decode_span(view[max(end - SPAN.size, begin) : end])
    try:
        span = span or _walked_span(view[begin:end], count, raw_bytes_max)
    except FormError:
        return None
    return RecordingBlock(part.path, begin, size, count, span, part.schemas, raw_bytes_max)


def _walked_span(data: bytes, count: int, raw_bytes_max: int) -> BlockSpan:
    """Return the span of a block that does not state one, because another tool wrote it. Raises FormError."""
    raw = decompress_block(data, raw_bytes_max)
    seen = [(record.time_ms, record.topic) for record in raw_records(raw, count)]
    times = [time_ms for time_ms, _ in seen]
    telemetry = [time_ms for time_ms, topic in seen if topic == TELEMETRY.suffix]
    return BlockSpan(
        min(times), max(times), min(telemetry, default=0), max(telemetry, default=0), len(telemetry), len(raw)
    )


def _damage(block: RecordingBlock, damage: FormError) -> str:
    return (
        f"The block at byte {block.at} of {block.path} is damaged ({damage}): "
        f"the rest of its {block.count} records is skipped."
    )


def _bounds(from_ms: int | None, to_ms: int | None) -> tuple[int, int]:
    return (TIME_MIN if from_ms is None else from_ms), (TIME_MAX if to_ms is None else to_ms)


class ClockWatch:
    """Watches the messages of several partitions, block by block, for clocks that went back.

    A message of a partition then has an earlier time than the one before it. Memory grows with the number of blocks
    only.
    """

    def __init__(self) -> None:
        self._in_block: dict[Place, tuple[Moment, Moment]] = {}  # The first and the last message.
        self._spans: dict[Place, list[tuple[Moment, Moment]]] = defaultdict(list)
        self._kept = 0
        self._jumps = 0
        self._back_ms_max = 0
        self._topic = ""

    def note(self, topic: str, partition: int, offset: int, time_ms: int) -> None:
        """Note a message."""
        place = (topic, partition)
        moment = (offset, time_ms)
        first, last = self._in_block.get(place, (moment, moment))
        if last[1] - time_ms >= BACK_MS_MIN:
            self._note_jump(topic, last[1] - time_ms)
        self._in_block[place] = (first, moment)

    def end_block(self) -> None:
        """Note that the block has ended."""
        for place, span in self._in_block.items():
            if self._kept < SPANS_KEPT_MAX:
                self._spans[place].append(span)
                self._kept += 1
        self._in_block.clear()

    def warning(self) -> str:
        """Describe how often a clock went back and how far; empty if it never did."""
        self.end_block()
        for (topic, _), spans in self._spans.items():
            spans.sort()
            for (_, last), (first, _) in pairwise(spans):
                if last[1] - first[1] >= BACK_MS_MIN:
                    self._note_jump(topic, last[1] - first[1])
        self._spans.clear()
        if not self._jumps:
            return ""
        return (
            f"Time jumps back {self._jumps} times in {self._topic}, by at most {self._back_ms_max / 1000:.1f} s: "
            "the messages are read in the order of their times."
        )

    def _note_jump(self, topic: str, back_ms: int) -> None:
        self._jumps += 1
        if back_ms > self._back_ms_max:
            self._back_ms_max, self._topic = back_ms, topic
