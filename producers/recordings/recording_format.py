"""The format of a recording: an Avro object container file of Kafka messages, written and parsed without decoding them.

In: Kafka messages as they are. Out: bytes of a container file, and messages again. A container's block is a sequence of
bodies, and a value in Confluent framing with the newest schema is, after five bytes, the body of its branch of the
union: so header fields and body are concatenated as they are. Files and Kafka do not belong here.

Any Avro tool reads these files. Three things serve our readers: the field ``size`` before each value lets them skip
values; the metadata ``regraft.info`` describes what was recorded; and each block's compressed data ends with a
skippable zstandard frame, ignored by decoders, that holds the block's span of time.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, cast

from backports import zstd
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from regraft.producers.recordings.reading_bounds import DEFAULT_BOUNDS
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.parse_text import parse_json
from regraft.schemas.registry import Schema, latest_schema, schema_by_id
from regraft.schemas.topics import DEAD_LETTERS, TELEMETRY, TOPICS

FORMAT_VERSION = 1
MAGIC = b"Obj\x01"
SYNC_BYTES = 16
UNREAD = "UnreadRecord"
RECORDED_NAMESPACE = "regraft.recorded"
INFO_KEY, INVENTORY_KEY, SCHEMA_IDS_KEY = "regraft.info", "regraft.inventory", "regraft.schema_ids"
COMPRESS_LEVEL = -1  # Fastest: 1 saves a twentieth of the size in a seventh more time, 3 a tenth in twice.

NULL_BRANCH, UNREAD_BRANCH = 0, 1
SPAN = struct.Struct("<IIqqqqII")  # A skippable frame: magic, size, and the fields of BlockSpan.
SPAN_MAGIC, SPAN_PAYLOAD_BYTES = 0x184D2A5D, SPAN.size - 8
LOW_BITS = 14
RATIO_MAX, RATIO_FREE_BYTES = 200, 2 * RECORD_BYTES_MAX  # A record of zeros may shrink to almost nothing.
VARINT_BITS_MAX = 70
HEAD_BYTES = 32  # Approximate size of what precedes a value.
TELEMETRY_TOPIC = TELEMETRY.suffix
KEYS_REMEMBERED_MAX = 100_000

HEADER_SCHEMA = parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": SYNC_BYTES}},
        ],
    }
)


class FormError(ValueError):
    """The bytes are not valid at this place of a recording; the message says why."""


class BlockSpan(NamedTuple):
    """A block's statement about itself: least and greatest Kafka time of its messages and of its telemetry (0 if none).

    ``telemetry`` is the number of telemetry records, ``raw_bytes`` the size before compression.
    """

    first_ms: int
    last_ms: int
    telemetry_first_ms: int
    telemetry_last_ms: int
    telemetry: int
    raw_bytes: int


class RawRecord(NamedTuple):
    """One record of a block: its message's position in Kafka, and its value as branch of the union and body."""

    topic: str
    time_ms: int
    partition: int
    offset: int
    key: bytes
    branch: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Container:
    """A file's header: metadata, sync marker, and size in bytes."""

    meta: Mapping[str, bytes]
    sync: bytes
    header_bytes: int

    @property
    def schemas(self) -> tuple[Schema | None, ...]:
        """Return the schema of each branch of the union; None for null and for undecodable values.

        Raises FormError for a schema that this version does not know.
        """
        try:
            ids = parse_json(self.meta[SCHEMA_IDS_KEY])
            return (None, None, *(schema_by_id(int(schema_id)) for schema_id in ids))
        except KeyError as error:
            raise FormError(f"{error.args[0]}") from error


def recorded_names() -> tuple[str, ...]:
    """Return the records that a recording may hold, in the order of their branches."""
    return tuple(topic.record for topic in TOPICS if topic != DEAD_LETTERS)


@cache
def container_schema() -> dict[str, Any]:
    """Return the schema of the container, with each record's newest schema in a namespace of its own inside.

    Records share names of parts (a Plan and a Command both have a ClientMove), so each branch needs one.
    """
    unread = {
        "type": "record",
        "name": UNREAD,
        "doc": "A value that is no record of its topic, as it stood in Kafka.",
        "fields": [{"name": "value", "type": "bytes"}],
    }
    branches = [_in_namespace(json.loads(latest_schema(name).text), name) for name in recorded_names()]
    fields = [
        ("topic", "string", "The Kafka topic's name without its namespace."),
        ("time_ms", "long", "The message's time in Kafka."),
        ("partition", "int", "Where it stood."),
        ("offset", "long", "Where it stood."),
        ("key", "bytes", "The message's key."),
        ("size", "int", "Bytes of the value behind the number of its branch."),
        ("value", ["null", unread, *branches], "The record; null is a tombstone."),
    ]
    return {
        "type": "record",
        "name": "Recorded",
        "namespace": RECORDED_NAMESPACE,
        "doc": "One Kafka message as it was recorded.",
        "fields": [{"name": name, "type": kind, "doc": doc} for name, kind, doc in fields],
    }


def _in_namespace(document: dict[str, Any], name: str) -> dict[str, Any]:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    space = f"{RECORDED_NAMESPACE}.{snake}"
    before = f"{document['namespace']}."

    def moved(part: Any) -> Any:
        """Return a part of the schema with its references to named types moved to the new namespace."""
        if isinstance(part, list):
            return [moved(each) for each in part]
        if isinstance(part, dict):
            kept = {key: value for key, value in part.items() if key not in ("type", "items", "values", "fields")}
            return kept | {key: moved(value) for key, value in part.items() if key not in kept}
        return f"{space}.{part.removeprefix(before)}" if isinstance(part, str) and part.startswith(before) else part

    return {**moved(document), "namespace": space}


def encode_header(info: Mapping[str, Any], inventory: str, sync: bytes) -> bytes:
    """Return the first bytes of a file: magic, metadata and sync marker."""
    ids = [latest_schema(name).schema_id for name in recorded_names()]
    meta = {
        "avro.schema": json.dumps(container_schema()),
        "avro.codec": "zstandard",
        INFO_KEY: json.dumps(info),
        INVENTORY_KEY: inventory,
        SCHEMA_IDS_KEY: json.dumps(ids),
    }
    out = io.BytesIO()
    schemaless_writer(
        out, HEADER_SCHEMA, {"magic": MAGIC, "meta": {name: text.encode() for name, text in meta.items()}, "sync": sync}
    )
    return out.getvalue()


def decode_header(start: bytes) -> Container:
    """Decode the header in the first bytes of a file.

    Raises FormError if there is none, EOFError if it is truncated.
    """
    if not MAGIC.startswith(start[: len(MAGIC)]):
        raise FormError("it does not start like an Avro file")
    stream = io.BytesIO(start)
    try:
        header = cast(dict[str, Any], schemaless_reader(stream, HEADER_SCHEMA, None))
    except EOFError:
        raise
    except Exception as error:  # fastavro raises many types on bad bytes.
        if isinstance(error, IndexError) and stream.tell() == len(start):  # Its EOFError where a number is cut.
            raise EOFError from error
        raise FormError(f"its header does not decode ({type(error).__name__})") from error
    return Container(header["meta"], header["sync"], stream.tell())


def varint(number: int) -> bytes:
    """Return an Avro int or long."""
    return _unsigned((number << 1) ^ (number >> 63))


class Varints:
    """Encodes Avro longs that grow slowly, as times and offsets do: low 14 bits from a table, the rest cached."""

    def __init__(self) -> None:
        self._low = [bytes((rest & 0x7F | 0x80, rest >> 7 | 0x80)) for rest in range(1 << LOW_BITS)]
        self._high_of = -1
        self._high = b""

    def of(self, number: int) -> bytes:
        """Return a number in Avro's encoding."""
        rest = number << 1
        high = rest >> LOW_BITS
        if high <= 0:
            return varint(number)
        if high != self._high_of:
            self._high_of, self._high = high, _unsigned(high)
        return self._low[rest & ((1 << LOW_BITS) - 1)] + self._high


def _unsigned(rest: int) -> bytes:
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class BlockBuilder:
    """Assembles records into blocks of the container."""

    def __init__(self, sync: bytes, compress_level: int = COMPRESS_LEVEL) -> None:
        self._sync = sync
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: compress_level,
            zstd.CompressionParameter.checksum_flag: 1,  # So that damage is detected.
        }
        self._compressor = zstd.ZstdCompressor(options=options)  # Reused: creating one takes a tenth of a block's time.
        self._times, self._offsets = Varints(), Varints()
        self._topics: dict[str, bytes] = {}
        self._keys: dict[bytes, bytes] = {}
        self._sizes = [varint(size) for size in range(1 << 13)]
        self._branches = [varint(branch) for branch in range(len(recorded_names()) + 2)]
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._moments: list[int] = []
        self._telemetry_moments: list[int] = []
        self.raw_bytes = 0

    def add(self, topic: str, time_ms: int, partition: int, offset: int, key: bytes, branch: int, body: bytes) -> None:
        """Add a record; ``body`` is the value after the number of its branch in the union, ``topic`` the suffix."""
        head = self._topics.get(topic)
        if head is None:
            name = topic.encode()
            head = self._topics[topic] = varint(len(name)) + name
        stored = self._keys.get(key)
        if stored is None:
            if len(self._keys) >= KEYS_REMEMBERED_MAX:
                self._keys.clear()
            stored = self._keys[key] = varint(len(key)) + key
        size = len(body)
        self._parts += (
            head,
            self._times.of(time_ms),
            self._branches[partition] if 0 <= partition < len(self._branches) else varint(partition),
            self._offsets.of(offset),
            stored,
            self._sizes[size] if size < 8192 else varint(size),
            self._branches[branch],
            body,
        )
        self.raw_bytes += size + HEAD_BYTES
        self._moments.append(time_ms)
        if topic == TELEMETRY_TOPIC:
            self._telemetry_moments.append(time_ms)

    def take(self) -> bytes:
        """Return the block as it is written to the file, and begin the next; empty if there are no records."""
        if not self._parts:
            return b""
        raw = b"".join(self._parts)
        telemetry = self._telemetry_moments
        span = BlockSpan(
            min(self._moments),
            max(self._moments),
            min(telemetry, default=0),
            max(telemetry, default=0),
            len(telemetry),
            len(raw),
        )
        packed = self._compressor.compress(raw, mode=zstd.ZstdCompressor.FLUSH_FRAME)
        data = packed + SPAN.pack(SPAN_MAGIC, SPAN_PAYLOAD_BYTES, *span)
        block = varint(len(self._moments)) + varint(len(data)) + data + self._sync
        self._clear()
        return block


def decode_span(data: bytes) -> BlockSpan | None:
    """Return the span at the end of a block's compressed data; None if another tool wrote the block."""
    if len(data) < SPAN.size:
        return None
    magic, size, *figures = SPAN.unpack(data[-SPAN.size :])
    return BlockSpan(*figures) if (magic, size) == (SPAN_MAGIC, SPAN_PAYLOAD_BYTES) else None


def decompress_block(data: bytes, raw_bytes_max: int = DEFAULT_BOUNDS.block_bytes_max) -> bytes:
    """Return a block's records. Raises FormError if the data are damaged, or would become too large.

    Too large is more than ``raw_bytes_max``, or more than both RATIO_MAX times the block's size and RATIO_FREE_BYTES.
    """
    most = min(raw_bytes_max, max(len(data) * RATIO_MAX, RATIO_FREE_BYTES))
    parts, left = [], most
    try:
        while data:  # One frame holds the records, another the span.
            frame = zstd.ZstdDecompressor()
            parts.append(frame.decompress(data, max_length=left + 1))
            left -= len(parts[-1])
            if left < 0:
                raise FormError(
                    f"its {len(data)} bytes decompress to more than {most}, which no recorder writes: "
                    "check where the file comes from"
                )
            if not frame.eof:
                raise FormError("its compressed data are truncated")
            data = frame.unused_data
    except zstd.ZstdError as error:
        raise FormError(str(error)) from error
    return b"".join(parts)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and the place after it.

    Raises IndexError if it is truncated, FormError if it is longer than any long.
    """
    byte = data[at]
    at += 1
    rest = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift == VARINT_BITS_MAX:
            raise FormError("a number in it is longer than 64 bits")
        byte = data[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
    return (rest >> 1) ^ -(rest & 1), at


def schema_of(record: RawRecord, schemas: Sequence[Schema | None]) -> Schema | None:
    """Return the schema of a record's value. Raises FormError if the header does not list it."""
    if record.branch >= len(schemas):
        raise FormError(f"a value is of branch {record.branch} of {len(schemas)}")
    return schemas[record.branch]


def raw_records(data: bytes, count: int) -> Iterator[RawRecord]:
    """Yield the records of a decompressed block, skipping their values. Raises FormError if they are damaged."""
    at, names = 0, dict[bytes, str]()
    try:
        for _ in range(count):
            size = data[at] >> 1  # One byte: a topic's name is shorter than 64 bytes.
            at += 1 + size
            name = data[at - size : at]
            topic = names.get(name) or names.setdefault(name, name.decode())
            time_ms, at = read_varint(data, at)
            partition, at = read_varint(data, at)
            offset, at = read_varint(data, at)
            size, at = read_varint(data, at)
            if size < 0:
                raise FormError("a key in it has a negative length")
            key = data[at : at + size]
            size, at = read_varint(data, at + size)
            branch = data[at] >> 1  # One byte: there are fewer than 64.
            at += 1
            if not 0 <= size <= len(data) - at:
                raise FormError(f"a value in it of {size} bytes does not fit")
            yield RawRecord(topic, time_ms, partition, offset, key, branch, at, size)
            at += size
    except (IndexError, UnicodeDecodeError) as error:
        raise FormError("its records are truncated") from error
    if at != len(data):
        raise FormError(f"{len(data) - at} bytes follow its last record")
