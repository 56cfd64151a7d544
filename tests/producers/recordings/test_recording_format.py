"""The format of recordings: readable by any Avro tool, and the parts that are encoded by hand."""

import io
import json
import random
import tracemalloc
from pathlib import Path

import fastavro
import msgspec
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.recordings.recording_format import (
    NULL_BRANCH,
    BlockBuilder,
    FormError,
    Varints,
    container_schema,
    decode_header,
    decode_span,
    decompress_block,
    encode_header,
    raw_records,
    read_varint,
    recorded_names,
    varint,
)
from regraft.producers.recordings.write_recording import RecordingLimits
from regraft.schemas.alert import Alert
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.client import Client, PredicateRecord, Role
from regraft.schemas.codec import decode
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.plan import ClientMove, Plan, PlanPhase
from regraft.schemas.topics import DEAD_LETTERS, TOPICS
from tests.controller.state.test_plan_log import plan_at
from tests.producers.recorded_messages import START_MS, Sent, sent, telemetry, write

LONGS = st.integers(-(2**63), 2**63 - 1)
SYNC = b"sixteen bytes ..."[:16]


def test_every_topic_but_the_dead_letters_can_be_recorded() -> None:
    """A new topic has a place in recordings, and the schema of all records together is valid."""
    assert set(recorded_names()) == {topic.record for topic in TOPICS if topic != DEAD_LETTERS}
    assert fastavro.parse_schema(json.loads(json.dumps(container_schema())))
    assert Alert.__name__ in recorded_names()


def test_any_avro_tool_reads_a_recording(tmp_path: Path) -> None:
    """fastavro, which knows nothing of recordings, reads every record as it was sent, including tombstones."""
    client = Client("p0", Role.PUBLISHER, "b0", (PredicateRecord("symbol", "eq", text="AMZN"),), 4.0, START_MS)
    command = Command("plan-1", CommandPhase.PREPARE, "b0", 0, 1, moves=(ClientMove("p0", "b0", "b1"),))
    messages: list[Sent] = [
        *telemetry(range(25)),
        sent(client, "clients", "p0"),
        Sent("clients", START_MS, 0, 1, b"p1", None),
        sent(command, "commands", "b0"),
        sent(plan_at(1, PlanPhase.COMPLETED), "plans", "plan-1"),
    ]
    write(tmp_path / "rec.avro", messages)
    with (tmp_path / "rec.avro").open("rb") as file:
        found = list(fastavro.reader(file))
    assert [(one["topic"], one["time_ms"], one["partition"], one["offset"], one["key"]) for one in found] == [
        (one.topic, one.time_ms, one.partition, one.offset, one.key) for one in messages
    ]
    types = {"telemetry": None, "clients": Client, "commands": Command, "plans": Plan}
    for read, one in zip(found, messages, strict=True):
        record_type = types[one.topic]
        if one.value is None:
            assert read["value"] is None
        elif record_type is not None:
            assert msgspec.convert(read["value"], record_type) == decode(one.value, record_type)
        else:
            assert read["value"]["broker"] == one.key.decode()


@given(LONGS)
def test_numbers_are_written_as_avro_writes_them(number: int) -> None:
    """Every long, encoded either way, is what fastavro writes, and is read back."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", number)  # type: ignore[arg-type]
    assert varint(number) == stream.getvalue()
    assert Varints().of(number) == stream.getvalue()
    assert read_varint(stream.getvalue(), 0) == (number, len(stream.getvalue()))


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["telemetry", "clients", "state"]),
        LONGS,
        st.integers(0, 2**31 - 1),
        LONGS,
        st.binary(max_size=300),
        st.binary(max_size=300),
    ),
    min_size=1,
    max_size=20,
)


@given(MESSAGES)
def test_records_are_stepped_over_whatever_their_content(
    messages: list[tuple[str, int, int, int, bytes, bytes]],
) -> None:
    """Any topic, time, place, key and body of a block is found again, and the block's span is known."""
    builder = BlockBuilder(SYNC)
    for topic, time_ms, partition, offset, key, body in messages:
        builder.add(topic, time_ms, partition, offset, key, 2, body)
    block = builder.take()
    count, at = read_varint(block, 0)
    size, at = read_varint(block, at)
    assert len(block) == at + size + len(SYNC)
    data = block[at : at + size]
    raw = decompress_block(data)
    found = [
        (one.topic, one.time_ms, one.partition, one.offset, one.key, raw[one.start : one.start + one.size])
        for one in raw_records(raw, count)
    ]
    assert found == messages
    span = decode_span(data)
    assert span is not None
    times = [message[1] for message in messages]
    assert (span.first_ms, span.last_ms, span.raw_bytes) == (min(times), max(times), len(raw))
    assert span.telemetry == sum(message[0] == "telemetry" for message in messages)


def test_a_block_written_by_another_tool_has_no_span() -> None:
    """Data without our frame at their end are recognised; decoders skip the frame."""
    assert decode_span(zstd.compress(b"x" * 100)) is None
    builder = BlockBuilder(SYNC)
    builder.add("clients", 1, 0, 0, b"k", NULL_BRANCH, b"")
    block = builder.take()
    size, at = read_varint(block, 1)
    assert zstd.decompress(block[at : at + size]) == decompress_block(block[at : at + size])
    assert builder.take() == b""


def test_a_header_survives_encoding() -> None:
    """The metadata and the sync marker come back, whatever follows."""
    head = encode_header({"format": 1, "wide": "é"}, "{}", SYNC)
    found = decode_header(head + b"blocks")
    assert (found.sync, found.header_bytes) == (SYNC, len(head))
    assert json.loads(found.meta["regraft.info"]) == {"format": 1, "wide": "é"}
    with pytest.raises(EOFError):
        decode_header(head[:-1])


def test_limits_of_a_recording_are_checked() -> None:
    """Impossible sizes, times and levels are reported with the value and the limit."""
    errors = RecordingLimits(rotate_mb=0, rotate_s=-1, compress_level=23).errors()
    assert [error.split()[0] for error in errors] == ["rotate_mb", "rotate_s", "compress_level"]
    assert RecordingLimits().errors() == []


def test_a_compressed_block_cannot_exceed_its_bound() -> None:
    """10 KB that would expand to 300 MB are refused at the bound, and so is a block of many frames."""
    bomb = zstd.compress(bytes(300 << 20))
    assert len(bomb) < 30_000
    tracemalloc.start()
    for data in (bomb, zstd.compress(bytes(900_000)) * 400):
        with pytest.raises(FormError, match="decompress to more than"):
            decompress_block(data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100 << 20
    with pytest.raises(FormError, match="decompress to more than 1000000"):
        decompress_block(zstd.compress(random.Random(1).randbytes(2_000_000)), raw_bytes_max=1_000_000)


def test_a_recorders_own_blocks_are_never_too_large() -> None:
    """A block of one repeated record, and one with a record of the maximum size, are read back."""
    for count, value in ((9_000, b"same" * 7), (1, bytes(RECORD_BYTES_MAX)), (1, random.Random(1).randbytes(1 << 20))):
        builder = BlockBuilder(SYNC)
        for number in range(count):
            builder.add("telemetry", START_MS, 0, number, b"b0", 1, varint(len(value)) + value)
        block = builder.take()
        found, at = read_varint(block, 0)
        size, at = read_varint(block, at)
        assert len(list(raw_records(decompress_block(block[at : at + size]), found))) == count


@pytest.mark.parametrize(
    "data", [b"\xff" * 100, b"\x02t\x02\x00\x02\x01" + bytes(20), b"\x02t\x02\x00\x02\x00\x01\x00" * 9]
)
def test_a_forged_block_ends_the_walk(data: bytes) -> None:
    """Endless numbers and negative sizes, which would lead back, end with a reason whatever the count says."""
    with pytest.raises(FormError):
        list(raw_records(data, 1 << 60))
