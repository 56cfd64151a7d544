"""Writing recordings: records kept as they are or encoded again, file rotation, and full disks."""

import io
import struct
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

import regraft.producers.recordings.write_recording
from regraft.infra.process.check_disk import DiskFullError
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.write_recording import FLUSH_S, RecordingFileError, RecordingLimits, RecordingWriter
from regraft.schemas.codec import decode, encode, use_wire_ids
from regraft.schemas.registry import latest_schema
from regraft.schemas.telemetry import TelemetryBatch
from tests.full_disk import small_disk
from tests.producers.recorded_messages import (
    RECORD_TYPES_BY_SUFFIX,
    START_MS,
    Sent,
    batch_of,
    recorded_run,
    telemetry,
    write,
)
from tests.schemas.old_versions import encode_as


def values_of(file: Path) -> list[bytes | None]:
    return [message.value for message in open_recording(file).messages()]


def new_writer(out: Path, **limits: Any) -> RecordingWriter:
    return RecordingWriter(out, recorded_run(), RECORD_TYPES_BY_SUFFIX, RecordingLimits(**limits), START_MS)


def test_older_versions_and_other_framings_become_the_newest(tmp_path: Path) -> None:
    """A batch of version 2, and one in single-object encoding, are written in the newest one; none counts as unread."""
    batch = batch_of(3)
    single = b"\xc3\x01" + latest_schema("TelemetryBatch").fingerprint + encode(batch)[5:]
    old = encode_as(batch, 102)
    messages = [Sent("telemetry", START_MS, 0, place, b"b3", value) for place, value in enumerate((old, single))]
    writer = write(tmp_path / "rec.avro", messages)
    assert values_of(tmp_path / "rec.avro") == [encode(decode(old, TelemetryBatch)), encode(batch)]
    assert not writer.counts.unread


def test_registry_ids_are_replaced_by_fixed_ones(tmp_path: Path) -> None:
    """Recorded with a registry's ids and read without one, a batch has the fixed id and the same body."""
    batch = batch_of(1)
    use_wire_ids({103: 7, 102: 6})
    try:
        write(tmp_path / "rec.avro", [Sent("telemetry", START_MS, 0, 0, b"b1", encode(batch))])
    finally:
        use_wire_ids({})
    assert values_of(tmp_path / "rec.avro") == [encode(batch)]


def test_a_value_that_only_begins_like_a_record_does_not_spoil_its_block(tmp_path: Path) -> None:
    """A value with the newest schema's id and a broken body is kept separately, so any Avro tool reads the rest."""
    good = encode(batch_of(6))
    bad = [good[:-3], good + b"x", struct.pack(">BI", 0, 102)]
    messages = [Sent("telemetry", START_MS, 0, place, b"b2", value) for place, value in enumerate([good, *bad, good])]
    writer = write(tmp_path / "rec.avro", messages)
    assert writer.counts.unread == {"telemetry": 3}
    with (tmp_path / "rec.avro").open("rb") as file:
        read = [one["value"] for one in fastavro.reader(file)]
    assert read[1:4] == [{"value": value} for value in bad]
    assert msgspec.convert(read[4], TelemetryBatch) == batch_of(6)
    assert values_of(tmp_path / "rec.avro") == [good, *bad, good]


def test_values_are_not_checked_under_time_pressure(tmp_path: Path) -> None:
    """An invalid value that was written unchecked is found on reading, and only that value is lost."""
    writer = new_writer(tmp_path / "rec.avro")
    writer.is_checking = False
    good = encode(batch_of(6))
    for place, value in enumerate([good, good[:-3], good]):
        writer.write("telemetry", START_MS + place, 0, place, b"b2", value, 0.0)
    writer.close()
    recording = open_recording(tmp_path / "rec.avro")
    assert [message.value for message in recording.messages()] == [good, good[:-3], good]
    assert len(list(recording.batches())) == 2
    assert "does not decode" in recording.warnings[0]


def test_files_rotate_by_size_and_age(tmp_path: Path) -> None:
    """No file exceeds its limit by more than a block, and all of them together hold everything."""
    messages = telemetry(range(4_000))
    writer = write(tmp_path / "rec.avro", messages, per_block=50, limits=RecordingLimits(rotate_mb=0.06))
    recording = open_recording(tmp_path / "rec.avro")
    assert len(recording.files) == writer.counts.parts > 2
    assert [file.name for file in recording.files[:2]] == ["rec.avro", "rec-00002.avro"]
    assert all(file.stat().st_size < 70_000 for file in recording.files)
    assert sum(file.stat().st_size for file in recording.files) == writer.counts.bytes
    assert recording.count == 4_000


def test_what_was_written_survives_the_death_of_the_recorder(tmp_path: Path) -> None:
    """Without a proper end, a file holds every message older than the flush interval."""
    writer = new_writer(tmp_path / "rec.avro")
    messages = telemetry(range(20))
    for place, one in enumerate(messages):
        now_s = place * FLUSH_S / 10
        writer.write(one.topic, one.time_ms, one.partition, one.offset, one.key, one.value, now_s)
        writer.tick(now_s)
    recording = open_recording(tmp_path / "rec.avro")
    assert recording.warnings == []
    assert recording.count >= 10
    assert values_of(tmp_path / "rec.avro") == [one.value for one in messages[: recording.count]]


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    """An existing file or part is not touched; names that parts use are refused."""
    write(tmp_path / "rec.avro", telemetry(range(3)))
    before = (tmp_path / "rec.avro").read_bytes()
    with pytest.raises(RecordingFileError, match="already exists: choose another name"):
        new_writer(tmp_path / "rec.avro")
    assert (tmp_path / "rec.avro").read_bytes() == before
    (tmp_path / "rec.avro").rename(tmp_path / "other-00002.avro")
    with pytest.raises(RecordingFileError, match="already exists"):
        new_writer(tmp_path / "other.avro")
    writer = new_writer(tmp_path / "other-00002.avro" / "rec.avro")
    with pytest.raises(RecordingFileError, match="cannot be written"):
        writer.begin(0.0)
    for name in ("rec.json", "rec-00003.avro"):
        with pytest.raises(RecordingFileError, match=r"use a name such as rec\.avro"):
            new_writer(tmp_path / name)


def test_a_full_disk_ends_a_recording_that_stays_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error gives the free space; the file ends with its last complete block."""
    monkeypatch.setattr(regraft.producers.recordings.write_recording, "check_disk", lambda directory: None)
    with small_disk(tmp_path / "disk") as disk:
        writer = new_writer(disk.directory / "rec.avro")
        messages = telemetry(range(400))
        with pytest.raises(DiskFullError) as caught:  # noqa: PT012
            for place, one in enumerate(messages):
                writer.write(one.topic, one.time_ms, one.partition, one.offset, one.key, one.value, place)
                if place == 200:
                    disk.fill()
                writer.tick(place)
        found = open_recording(disk.directory / "rec.avro")
        assert found.warnings == []
        assert f"its {found.count} records in 1 files stay readable" in str(caught.value)
        assert 150 <= found.count < 400
        assert [one.value for one in found.messages()] == [one.value for one in messages[: found.count]]


def test_a_disk_without_room_is_reported_at_once(tmp_path: Path) -> None:
    """A recording does not begin without room to continue."""
    with small_disk(tmp_path / "disk") as disk, pytest.raises(DiskFullError, match="MB are free for"):
        new_writer(disk.directory / "rec.avro")


def test_fastavro_reads_header_and_blocks(tmp_path: Path) -> None:
    """The counts of the blocks are those of any reader of blocks."""
    write(tmp_path / "rec.avro", telemetry(range(35)))
    data = io.BytesIO((tmp_path / "rec.avro").read_bytes())
    assert [block.num_records for block in fastavro.block_reader(data)] == [10, 10, 10, 5]
