"""Write a recording: container files of bounded size and span, finished block by block.

In: Kafka messages. Out: ``rec.avro``, ``rec-00002.avro`` and so on. A block is written by one call at most ``FLUSH_S``
after its first message, so a kill loses no more, and synced to disk at most ``FLUSH_S`` later. A full disk ends the
recording with one sentence; what was written stays readable. Where messages come from does not belong here.
"""

from __future__ import annotations

import io
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import structlog
from fastavro import schemaless_reader

from regraft.infra.process.check_disk import DiskFullError, check_disk, is_disk_full
from regraft.infra.process.handle_each import count_logged
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.recording_files import PART_PATTERN, SUFFIX, following_parts
from regraft.producers.recordings.recording_format import (
    COMPRESS_LEVEL,
    FORMAT_VERSION,
    NULL_BRANCH,
    SYNC_BYTES,
    UNREAD_BRANCH,
    BlockBuilder,
    encode_header,
    recorded_names,
    varint,
)
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, accepted_ids, decode, encode
from regraft.schemas.registry import Schema, latest_schema
from regraft.schemas.topics import TOPICS

BLOCK_BYTES = 1 << 18  # Blocks beyond a core's cache take a tenth longer; smaller ones compress less.
FLUSH_S = 0.5
LEVEL_MIN, LEVEL_MAX = -50, 22
MB = 1_000_000

log = structlog.get_logger(__name__)


class RecordingFileError(StackError):
    """Reports why a recording cannot be written there, and what to do."""


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """How large a file of a recording may become, and how much it is compressed.

    ``rotate_mb``: size in MB at which the next file is begun. Default 512, which every tool can open.
    ``rotate_s``: seconds of real time after which the next file is begun. Default an hour.
    ``compress_level``: zstandard's level, -50 to 22. Default -1: about a third of the size at 450 MB/s per core.
    """

    rotate_mb: float = 512.0
    rotate_s: float = 3_600.0
    compress_level: int = COMPRESS_LEVEL

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = [
            f"{name.name} is {getattr(self, name.name):g}: must be above 0, because no file may be empty"
            for name in fields(self)[:2]
            if not getattr(self, name.name) > 0
        ]
        if not LEVEL_MIN <= self.compress_level <= LEVEL_MAX:
            errors.append(f"compress_level is {self.compress_level}: {LEVEL_MIN} to {LEVEL_MAX}")
        return errors


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What the files state about the recorded run; ``inventory`` is JSON, ``topics`` are suffixes."""

    namespace: str
    topics: tuple[str, ...]
    settings: Mapping[str, Any]
    inventory: str
    version: str
    commit: str


@dataclass(frozen=True, slots=True)
class _TopicForm:
    """How the values of a topic become bodies: values in the newest schema begin with one of ``framing``."""

    suffix: str
    framing: tuple[bytes, ...]
    branch: int
    newest: Schema
    record_type: type[msgspec.Struct]


@dataclass(slots=True)
class RecordingCounts:
    """What has been written: messages by topic, bytes, blocks and files; undecodable messages by topic.

    ``unchecked`` is how many messages of a backlog were accepted without a check; the recorder counts them.
    """

    messages: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    blocks: int = 0
    parts: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    unchecked: int = 0

    @property
    def records(self) -> int:
        """How many messages there are."""
        return sum(self.messages.values())


def check_out(out: Path) -> None:
    """Raise RecordingFileError if a recording cannot have this name, or is there; DiskFullError if the disk is full."""
    if out.suffix != SUFFIX or PART_PATTERN.match(out.stem):
        raise RecordingFileError(
            f"A recording cannot be named {out.name}: use a name such as rec{SUFFIX}; later files are numbered."
        )
    if out.exists() or (out.parent.is_dir() and following_parts(out)):
        raise RecordingFileError(f"{out} or a part of it already exists: choose another name, or delete it.")
    check_disk(out.parent)


class RecordingWriter:
    """Writes one recording; ``record_types`` are the records of the topics by their names (suffixes).

    Raises RecordingFileError if the name is invalid, in use or cannot be written, DiskFullError if the disk is full.
    """

    def __init__(
        self,
        out: Path,
        run: RecordedRun,
        record_types: Mapping[str, type[msgspec.Struct]],
        limits: RecordingLimits,
        now_ms: int,
    ) -> None:
        check_out(out)
        self.counts = RecordingCounts()
        self.is_checking = True
        self._out, self._run, self._limits = out, run, limits
        self._created_ms = now_ms
        self._recording = secrets.token_hex(8)
        self._sync = secrets.token_bytes(SYNC_BYTES)
        self._forms = _topic_forms(record_types)
        self._builder = BlockBuilder(self._sync, limits.compress_level)
        self._pending_since_s: float | None = None
        self._pending: Counter[str] = Counter()
        self._file: io.FileIO | None = None
        self._file_bytes = 0
        self._begun_s = 0.0
        self._is_synced = True
        self._synced_s = 0.0

    def write(
        self, topic: str, time_ms: int, partition: int, offset: int, key: bytes, value: bytes | None, now_s: float
    ) -> None:
        """Add a message, and write the block once it is large enough. ``now_s`` is a monotonic clock."""
        if value is None:
            branch, body = NULL_BRANCH, b""
        else:
            form = self._forms[topic]
            is_ours = value[:CONFLUENT_HEADER_BYTES] in form.framing and len(value) <= RECORD_BYTES_MAX
            if is_ours and (not self.is_checking or _is_whole(value, form.newest)):
                branch, body = form.branch, value[CONFLUENT_HEADER_BYTES:]
            else:
                branch, body = self._reencoded(form, value)
        self._builder.add(topic, time_ms, partition, offset, key, branch, body)
        self._pending[topic] += 1
        if self._pending_since_s is None:
            self._pending_since_s = now_s
        if self._builder.raw_bytes >= BLOCK_BYTES:
            self._write_block(now_s)

    def tick(self, now_s: float) -> None:
        """Write and sync what is due; call it often."""
        if self._pending_since_s is not None and now_s - self._pending_since_s >= FLUSH_S:
            self._write_block(now_s)
        if not self._is_synced and now_s - self._synced_s >= FLUSH_S:
            self._sync_file(now_s)

    def close(self) -> None:
        """Write what is left and end the file."""
        self._write_block(self._begun_s)
        self._end_file()

    @property
    def file_name(self) -> str:
        """The name of the file that is being written."""
        return self._part_path(max(self.counts.parts, 1)).name

    def _reencoded(self, form: _TopicForm, value: bytes) -> tuple[int, bytes]:
        """Return branch and body of a value in an older schema or another framing, or of an undecodable one."""
        try:
            return form.branch, encode(decode(value, form.record_type))[CONFLUENT_HEADER_BYTES:]
        except ValueError as reason:  # Undecodable, or what would not be decodable again.
            facts = {"topic": form.suffix, "reason": str(reason)}
            count_logged(self.counts.unread, form.suffix, log.warning, "record_kept_undecoded", **facts)
            kept = value[:RECORD_BYTES_MAX]  # Beyond that, the block could not be read.
            return UNREAD_BRANCH, varint(len(kept)) + kept

    def _write_block(self, now_s: float) -> None:
        block = self._builder.take()
        self._pending_since_s = None
        if not block:
            return
        if self._file is not None and self._is_full(len(block), now_s):
            self._end_file()
        if self._file is None:
            self.begin(now_s)
        self._append(block)
        self.counts.blocks += 1
        self.counts.messages += self._pending
        self._pending.clear()

    def _is_full(self, block_bytes: int, now_s: float) -> bool:
        is_old = now_s - self._begun_s >= self._limits.rotate_s
        return is_old or self._file_bytes + block_bytes > self._limits.rotate_mb * MB

    def _part_path(self, part: int) -> Path:
        return self._out if part == 1 else self._out.with_name(f"{self._out.stem}-{part:05d}{SUFFIX}")

    def begin(self, now_s: float) -> None:
        """Begin the next file; the first before there is anything to write, so that an unwritable one is reported.

        Raises RecordingFileError and DiskFullError.
        """
        part = self.counts.parts + 1
        run = self._run
        info = {
            "format": FORMAT_VERSION,
            "recording": self._recording,
            "namespace": run.namespace,
            "created_ms": self._created_ms,
            "version": run.version,
            "commit": run.commit,
            "topics": run.topics,
            "settings": run.settings,
            "part": part,
            "previous": "" if part == 1 else self._part_path(part - 1).name,
        }
        path = self._part_path(part)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = io.FileIO(path, "xb")
        except OSError as error:
            if is_disk_full(error):
                raise self._disk_full() from error
            raise RecordingFileError(
                f"{path} cannot be written ({error.strerror}): choose another name, or give this user write permission."
            ) from error
        self._file_bytes, self._begun_s, self._synced_s = 0, now_s, now_s
        self.counts.parts = part
        self._append(encode_header(info, run.inventory, self._sync))

    def _append(self, data: bytes) -> None:
        """Write all of the data or none: what a full disk has accepted of it is truncated again."""
        assert self._file is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._file.truncate(self._file_bytes)
            if not is_disk_full(error):
                raise
            raise self._disk_full() from error
        self._file_bytes += len(data)
        self.counts.bytes += len(data)
        self._is_synced = False

    def _sync_file(self, now_s: float) -> None:
        if self._file is None:
            return
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise self._disk_full() from error
        self._is_synced, self._synced_s = True, now_s

    def _end_file(self) -> None:
        if self._file is not None:
            self._sync_file(self._begun_s)
            self._file.close()
            self._file = None

    def _disk_full(self) -> DiskFullError:
        return DiskFullError(
            f"The disk of {self._out.parent} is full: the recording ends here; its {self.counts.records} records in "
            f"{self.counts.parts} files stay readable; free some space and record again."
        )


def _topic_forms(record_types: Mapping[str, type[msgspec.Struct]]) -> dict[str, _TopicForm]:
    names = recorded_names()
    suffixes = {topic.record: topic.suffix for topic in TOPICS}
    forms = {}
    for record_type in record_types.values():
        name = record_type.__name__
        newest = latest_schema(name)
        framing = tuple(b"\0" + schema_id.to_bytes(4, "big") for schema_id in accepted_ids(newest.schema_id))
        forms[suffixes[name]] = _TopicForm(suffixes[name], framing, names.index(name) + 2, newest, record_type)
    return forms


def _is_whole(value: bytes, schema: Schema) -> bool:
    """Return True if the body is exactly one record: anything else would make its block unreadable."""
    stream = io.BytesIO(value)
    stream.seek(CONFLUENT_HEADER_BYTES)
    try:
        schemaless_reader(stream, schema.parsed, None)
    except Exception:  # fastavro raises many types on bad bytes; decoding again shows why.
        return False
    return stream.tell() == len(value)
