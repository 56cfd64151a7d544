"""Decoding bodies by columns gives what fastavro reads; bodies that fastavro cannot read are left out."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, UndecodableRecordError, decode, encode
from regraft.schemas.registry import schema_by_id
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.decode_columns import DecodedColumns, UnsupportedSchemaError, decode_columns
from tests.streaming.random_telemetry import as_dicts, random_telemetry

NEWEST, FIRST = 103, 102


def decoded(bodies: Sequence[bytes], schema_id: int = NEWEST, wanted: Sequence[str] | None = None) -> DecodedColumns:
    """Return the bodies by columns, with other bytes before, between and after them."""
    data, starts, ends = b"\xff\x80", [], []
    for body in bodies:
        starts.append(len(data))
        data += body
        ends.append(len(data))
        data += b"\x81\x00"
    schema = json.loads(schema_by_id(schema_id).text)
    return decode_columns(data, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), schema, wanted)


def read_one(body: bytes, schema_id: int = NEWEST) -> dict[str, Any] | None:
    """Return what fastavro reads, or None if it does not read all bytes as one record."""
    stream = io.BytesIO(body)
    try:
        found: dict[str, Any] = schemaless_reader(stream, schema_by_id(schema_id).parsed, None)  # type: ignore[assignment]
    except Exception:
        return None
    return found if stream.tell() == len(body) else None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_columns_are_what_fastavro_reads(seed: int) -> None:
    """This holds for any telemetry, including negative masks and long numbers."""
    batches = random_telemetry(random.Random(seed))
    bodies = [encode(batch)[CONFLUENT_HEADER_BYTES:] for batch in batches]
    found = decoded(bodies)
    assert found.rows.to_pylist() == [read_one(body) for body in bodies]
    assert found.places.tolist() == list(range(len(batches)))


@pytest.mark.parametrize("wanted", [None, ("broker",)])
def test_numbers_of_more_than_64_bits_are_refused(wanted: Sequence[str] | None) -> None:
    """In any field: one bit too many, or more than ten bytes; the codec agrees. 64 bits are read."""
    batch = random_telemetry(random.Random(7))[0]
    body, many = encode(batch)[CONFLUENT_HEADER_BYTES:], b"\x80" * 8
    place = len(batch.broker.encode()) + 1  # The boot's.
    while body[place] > 0x7F:
        place += 1
    for end in (b"\x80\x02", b"\x80\x7f", b"\x80\x80\x00", b"\xff\xff\x80\x01"):
        overlong = body[: len(batch.broker.encode()) + 1] + many + end + body[place + 1 :]
        assert decoded([body, overlong, body], wanted=wanted).places.tolist() == [0, 2]
        with pytest.raises(UndecodableRecordError):
            decode(encode(batch)[:CONFLUENT_HEADER_BYTES] + overlong, TelemetryBatch)
    zero = body[: len(batch.broker.encode()) + 1] + many + b"\x80\x00" + body[place + 1 :]
    assert decoded([zero], wanted=wanted).places.tolist() == [0]
    assert decode(encode(batch)[:CONFLUENT_HEADER_BYTES] + zero, TelemetryBatch).boot == 0


def test_unwanted_fields_are_skipped() -> None:
    """The wanted fields are the same as with the others."""
    batches = random_telemetry(random.Random(4))
    wanted = ("broker", "epoch", "clients")
    bodies = [encode(batch)[CONFLUENT_HEADER_BYTES:] for batch in batches]
    everything = decoded(bodies).rows.to_pylist()
    assert decoded(bodies, wanted=wanted).rows.to_pylist() == [
        {name: batch[name] for name in wanted} for batch in everything
    ]


def test_an_older_schema_is_read_with_its_own_fields() -> None:
    """Telemetry of version 2 gives the fields of version 2."""
    batches = as_dicts(random_telemetry(random.Random(5)))
    bodies = []
    for batch in batches:
        out = io.BytesIO()
        schemaless_writer(out, schema_by_id(FIRST).parsed, batch)
        bodies.append(out.getvalue())
    assert decoded(bodies, FIRST).rows.to_pylist() == [read_one(body, FIRST) for body in bodies]


def test_arrays_may_be_divided_into_sized_blocks() -> None:
    """Avro allows writers to divide an array and to give the bytes of each part; both are read."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    two_parts = bytes([2, 14, 3, 4, 16, 18, 0])  # [7], then two of two bytes: [8, 9].
    starts, ends = np.array([0]), np.array([len(two_parts)])
    assert schemaless_reader(io.BytesIO(two_parts), parse_schema(schema), None) == {"a": [7, 8, 9]}
    assert decode_columns(two_parts, starts, ends, schema).rows.to_pylist() == [{"a": [7, 8, 9]}]


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_body_is_left_out_without_affecting_others(seed: int) -> None:
    """Bodies with bytes changed, cut or added are in the columns exactly if fastavro can read them."""
    rng = random.Random(seed)
    bodies = [encode(batch)[CONFLUENT_HEADER_BYTES:] for batch in random_telemetry(rng)]
    for place in rng.sample(range(len(bodies)), len(bodies) // 2):
        damaged = bytearray(bodies[place])
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        bodies[place] = bytes(damaged[: rng.randrange(len(damaged))]) if rng.random() < 0.3 else bytes(damaged)
    bodies[0], bodies[1] = b"", bodies[1] + b"\x00"
    found = decoded(bodies)
    expected = {place: read_one(body) for place, body in enumerate(bodies)}
    good = [place for place, record in expected.items() if record is not None]
    assert found.places.tolist() == good
    assert found.rows.to_pylist() == [expected[place] for place in good]


def test_no_body_gives_columns_without_rows() -> None:
    """A missing body is not an error."""
    assert decoded([]).rows.to_pylist() == []


def test_a_schema_that_cannot_be_read_by_columns_is_refused() -> None:
    """A union is named, not misread."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    with pytest.raises(UnsupportedSchemaError, match="null"):
        decode_columns(b"\x00", np.array([0]), np.array([1]), schema)


def test_an_array_with_the_least_long_as_its_length_is_refused() -> None:
    """-2^63 has no negative: read as the end of the array, it would shift everything after it."""
    least = bytes.fromhex("ffffffffffffffffff01")
    body = b"\x02b\x02\x02\x02\x02" + least + bytes(4)
    assert read_one(body) is None
    assert decoded([body]).places.size == 0
