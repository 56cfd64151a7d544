"""Reading recordings: complete, cut and damaged ones, and files that are none."""

import io
import json
import random
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from regraft.producers.recordings.read_recording import Recording, RecordingError, block_batches, open_recording
from regraft.producers.recordings.reading_bounds import ReadingBounds
from regraft.producers.recordings.recording_format import (
    COMPRESS_LEVEL,
    INFO_KEY,
    SCHEMA_IDS_KEY,
    BlockBuilder,
    decode_header,
    encode_header,
    recorded_names,
)
from regraft.producers.recordings.write_recording import RecordingLimits
from regraft.schemas.codec import decode, encode
from regraft.schemas.registry import latest_schema
from regraft.schemas.telemetry import TelemetryBatch
from tests.producers.recorded_messages import START_MS, Sent, batch_of, recorded_run, telemetry, write
from tests.schemas.old_versions import encode_as


def as_sent(recording: Recording, **span: Any) -> list[Sent]:
    return [Sent(**{name: getattr(one, name) for name in Sent.__annotations__}) for one in recording.messages(**span)]


def as_batches(found: Iterable[dict[str, Any]]) -> list[TelemetryBatch]:
    return [msgspec.convert(batch, TelemetryBatch) for batch in found]


def rewritten_header(file: Path, change: Any) -> None:
    """Change the metadata in the header."""
    data = file.read_bytes()
    container = decode_header(data)
    meta = change({name: value.decode() for name, value in container.meta.items()})
    out = io.BytesIO()
    schema: Any = {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
    encoded = {name: value.encode() for name, value in meta.items()}
    fastavro.schemaless_writer(out, schema, {"magic": b"Obj\x01", "meta": encoded, "sync": container.sync})
    file.write_bytes(out.getvalue() + data[container.header_bytes :])


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    """Messages come back byte for byte, in order of time, with the description of the run."""
    messages = telemetry(range(100))
    write(tmp_path / "rec.avro", messages)
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == messages
    assert recording.warnings == []
    assert (recording.count, len(recording.blocks())) == (100, 10)
    assert recording.telemetry_span_ms == (messages[0].time_ms, messages[-1].time_ms)
    assert recording.info.namespace == "live"
    assert recording.info.inventory.to_json() == recorded_run().inventory
    assert recording.info.settings["run"]["seed"] == 3


def test_a_span_of_time_is_read(tmp_path: Path) -> None:
    """The beginning is included, the end is not, and batches are those of the same span."""
    messages = telemetry(range(100))
    write(tmp_path / "rec.avro", messages)
    recording = open_recording(tmp_path / "rec.avro")
    first_ms, end_ms = messages[33].time_ms, messages[71].time_ms
    assert as_sent(recording, from_ms=first_ms, to_ms=end_ms) == messages[33:71]
    assert as_batches(recording.batches(first_ms, end_ms)) == [batch_of(one) for one in range(33, 71)]
    assert as_sent(recording, topics=["clients"]) == []
    parts = [batch for block in recording.blocks() for batch in block_batches(block)]
    assert as_batches(parts) == [batch_of(one) for one in range(100)]


def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path: Path) -> None:
    """Complete blocks before the cut are read, none is made up, and the warning names the byte and what was read."""
    messages = telemetry(range(30))
    write(tmp_path / "whole.avro", messages)
    data = (tmp_path / "whole.avro").read_bytes()
    whole = open_recording(tmp_path / "whole.avro")
    ends = [block.at + block.size + 16 for block in whole.blocks()]
    begin = decode_header(data).header_bytes
    cut = tmp_path / "cut.avro"
    for length in [*range(0, begin, 13), *range(begin, len(data))]:
        cut.write_bytes(data[:length])
        if length < begin:
            with pytest.raises(RecordingError, match="ends within its header"):
                open_recording(cut)
            continue
        recording = open_recording(cut)
        found = as_sent(recording)
        assert found == messages[: 10 * sum(end <= length for end in ends)]
        if length in (begin, *ends):
            assert recording.warnings == []
        else:
            last = max((end for end in ends if end <= length), default=begin)
            (warning,) = recording.warnings
            assert f"is cut: it was read to byte {last} of {length}, {len(found)} records" in warning


def test_a_damaged_block_is_skipped(tmp_path: Path) -> None:
    """A changed byte costs only its own block, and the warning names the missing records."""
    messages = telemetry(range(30))
    write(tmp_path / "rec.avro", messages)
    data = bytearray((tmp_path / "rec.avro").read_bytes())
    block = open_recording(tmp_path / "rec.avro").blocks()[1]
    data[block.at + block.size // 2] ^= 0xFF
    (tmp_path / "rec.avro").write_bytes(data)
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == messages[:10] + messages[20:]
    assert "the rest of its 10 records is skipped" in recording.warnings[0]
    data[block.at - 1] ^= 0xFF  # Its size is wrong now: reading continues behind the next sync marker.
    (tmp_path / "rec.avro").write_bytes(data)
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == messages[:10] + messages[20:]
    assert "is damaged from byte" in recording.warnings[0]


def test_time_that_jumps_back_is_reported_and_sorted(tmp_path: Path) -> None:
    """If a clock was set back, within a block or between two, messages come by time with one warning."""
    messages = telemetry(range(40))
    back = [at_time(one, one.time_ms - (3_600_000 if number >= 25 else 0)) for number, one in enumerate(messages)]
    write(tmp_path / "rec.avro", back)
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == sorted(back, key=lambda one: one.time_ms)
    (warning,) = recording.warnings
    assert warning.startswith("Time jumps back 4 times in telemetry, by at most 3599.")


def at_time(one: Sent, time_ms: int) -> Sent:
    return Sent(one.topic, time_ms, one.partition, one.offset, one.key, one.value)


def test_partitions_that_were_read_in_turn_are_sorted(tmp_path: Path) -> None:
    """A backlog is recorded partition by partition; that is not a clock that jumped back."""
    messages = telemetry(range(80))
    write(tmp_path / "rec.avro", sorted(messages, key=lambda one: (one.partition, one.offset)), per_block=7)
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == messages
    assert recording.warnings == []


def test_parts_are_one_recording(tmp_path: Path) -> None:
    """The first file stands for all of them, a later one for itself, a folder for its files."""
    messages = telemetry(range(100))
    writer = write(tmp_path / "rec.avro", messages, limits=RecordingLimits(rotate_s=2.5))
    assert writer.counts.parts > 2
    for name in ("rec.avro", "."):
        recording = open_recording(tmp_path / name)
        assert as_sent(recording) == messages
        assert recording.warnings == []
    second = open_recording(tmp_path / "rec-00002.avro")
    assert second.info.previous == "rec.avro"
    assert set(as_sent(second)) < set(messages)
    assert "Only part 2 of the recording is here" in second.warnings[0]
    write(tmp_path / "other.avro", messages)
    with pytest.raises(RecordingError, match="parts of several recordings"):
        open_recording(tmp_path)
    assert as_sent(open_recording(tmp_path / "other.avro")) == messages


def test_a_file_that_is_no_recording_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A missing file, one of another kind and another Avro file each have their own message."""
    with pytest.raises(RecordingError, match="does not exist"):
        open_recording(tmp_path / "rec.avro")
    with pytest.raises(RecordingError, match=r"no file there ends in \.avro"):
        open_recording(tmp_path)
    (tmp_path / "text.avro").write_text("telemetry")
    with pytest.raises(RecordingError, match="does not start like an Avro file"):
        open_recording(tmp_path / "text.avro")
    (tmp_path / "noise.avro").write_bytes(b"Obj\x01" + bytes(range(255, 0, -1)) * 10)
    with pytest.raises(RecordingError, match=r"is not a recording|within its header"):
        open_recording(tmp_path / "noise.avro")
    with (tmp_path / "theirs.avro").open("wb") as file:
        fastavro.writer(file, "long", [1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(RecordingError, match="is an Avro file but not a recording of Regraft"):
        open_recording(tmp_path / "theirs.avro")


def test_a_newer_or_damaged_header_is_refused(tmp_path: Path) -> None:
    """A later version is not guessed at; an inconsistent header is reported as damaged."""
    write(tmp_path / "rec.avro", telemetry(range(10)))

    def newer(meta: dict[str, str]) -> dict[str, str]:
        return meta | {"regraft.info": json.dumps(json.loads(meta["regraft.info"]) | {"format": 2, "version": "9.0"})}

    def schema_of_tomorrow(meta: dict[str, str]) -> dict[str, str]:
        return meta | {SCHEMA_IDS_KEY: json.dumps([4_711])}

    def nonsense(meta: dict[str, str]) -> dict[str, str]:
        return meta | {"regraft.inventory": "{}"}

    def from_before_releases(meta: dict[str, str]) -> dict[str, str]:
        return meta | {SCHEMA_IDS_KEY: json.dumps([101])}

    for change, reason in (
        (
            newer,
            r"was written by a newer version of Regraft \(9\.0\): its format is 2, and this version reads formats "
            r"up to 1",
        ),
        (schema_of_tomorrow, "schema id 4711 is unknown"),
        (from_before_releases, r"TelemetryBatch version 1 was written by a version of Regraft before 0\.2\.0"),
        (nonsense, "is damaged: its description cannot be read"),
    ):
        shutil.copy(tmp_path / "rec.avro", tmp_path / "changed.avro")
        rewritten_header(tmp_path / "changed.avro", change)
        with pytest.raises(RecordingError, match=reason):
            open_recording(tmp_path / "changed.avro")


@pytest.mark.parametrize(
    "changes",
    [{"settings": {"controller": 5}}, {"topics": 5}, {"part": None}],
    ids=str,
)
def test_a_description_that_no_recorder_writes_is_damage(tmp_path: Path, changes: dict[str, Any]) -> None:
    """What reads its settings finds tables."""
    file = tmp_path / "rec.avro"
    write(file, telemetry(range(10)))
    rewritten_header(file, lambda meta: meta | {INFO_KEY: json.dumps(json.loads(meta[INFO_KEY]) | changes)})
    with pytest.raises(RecordingError, match="is damaged: its description cannot be read"):
        open_recording(file)


def test_values_of_schemas_that_the_header_does_not_list_are_damage(tmp_path: Path) -> None:
    """Each value names its schema by place in that list."""
    file = tmp_path / "rec.avro"
    write(file, telemetry(range(10)))
    rewritten_header(file, lambda meta: meta | {SCHEMA_IDS_KEY: "[]"})
    recording = open_recording(file)
    assert list(recording.batches()) == list(recording.messages()) == []
    assert "is damaged" in recording.warnings[0]


def test_a_recording_of_an_older_schema_is_read_as_the_newest(tmp_path: Path) -> None:
    """A file with version 2 of TelemetryBatch gives batches of the newest version, as dicts and as messages."""
    ids = [102 if name == "TelemetryBatch" else latest_schema(name).schema_id for name in recorded_names()]
    metadata = {
        "format": 1,
        "recording": "old",
        "namespace": "live",
        "created_ms": 0,
        "version": "0.0.9",
        "commit": "none",
        "topics": ["telemetry"],
        "settings": {},
        "part": 1,
        "previous": "",
    }
    builder = BlockBuilder(b"s" * 16, COMPRESS_LEVEL)
    branch = recorded_names().index("TelemetryBatch") + 2
    for number in range(20):
        batch = batch_of(number)
        body = encode_as(batch, 102)[5:]
        builder.add("telemetry", batch.time_ms, 0, number, batch.broker.encode(), branch, body)
    head = encode_header(metadata, recorded_run().inventory, b"s" * 16)
    (tmp_path / "old.avro").write_bytes(head + builder.take())
    rewritten_header(tmp_path / "old.avro", lambda meta: meta | {SCHEMA_IDS_KEY: json.dumps(ids)})
    recording = open_recording(tmp_path / "old.avro")
    wanted = [decode(encode_as(batch_of(number), 102), TelemetryBatch) for number in range(20)]
    assert [one.value for one in recording.messages()] == [encode(batch) for batch in wanted]
    assert as_batches(recording.batches()) == wanted


def test_undecodable_telemetry_is_counted(tmp_path: Path) -> None:
    """It is kept unchanged, and left out of the batches with a warning."""
    bad = [b"rubbish", struct.pack(">BI", 0, 102) + b"\xff" * 4, b""]
    messages = telemetry(range(8))
    messages += [Sent("telemetry", START_MS + 5_000, 0, 90 + place, b"b0", value) for place, value in enumerate(bad)]
    writer = write(tmp_path / "rec.avro", messages, per_block=100)
    assert writer.counts.unread == {"telemetry": 3}
    recording = open_recording(tmp_path / "rec.avro")
    assert as_sent(recording) == messages
    assert len(list(recording.batches())) == 8
    assert "3 records of telemetry in the block" in recording.warnings[0]


def test_the_bounds_limit_memory(tmp_path: Path) -> None:
    """A larger block is skipped with a warning; blocks that overlap by more end reading with an error."""
    large = Sent("telemetry", START_MS + 2_000, 0, 50, b"b0", random.Random(1).randbytes(2 << 20))
    write(tmp_path / "rec.avro", [*telemetry(range(4)), large], per_block=100)
    assert len(list(open_recording(tmp_path / "rec.avro", ReadingBounds(block_mb_max=3)).messages())) == 5
    small = open_recording(tmp_path / "rec.avro", ReadingBounds(block_mb_max=1))
    assert list(small.messages()) == []
    assert "check where the file comes from" in small.warnings[0]
    narrow = open_recording(tmp_path / "rec.avro", ReadingBounds(block_mb_max=3, overlap_mb_max=1))
    with pytest.raises(RecordingError, match=r"more than 1 MB whose times overlap.*read a part of it"):
        list(narrow.messages())
