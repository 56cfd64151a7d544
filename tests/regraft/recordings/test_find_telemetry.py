"""Finding telemetry by the bytes with which its records begin gives the same as reading record by record."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from regraft.producers.recordings.recording_format import (
    BlockBuilder,
    FormError,
    RawRecord,
    decompress_block,
    raw_records,
    read_varint,
)
from regraft.recordings.find_telemetry import find_telemetry

BRANCH = 2
Placed = tuple[str, int, bytes, bytes]  # Topic, time, key, body.


def block_of(records: Sequence[Placed]) -> bytes:
    """Return the decompressed bytes of a block with these records."""
    builder = BlockBuilder(b"s" * 16)
    for offset, (topic, time_ms, key, body) in enumerate(records):
        builder.add(topic, time_ms, offset % 4, offset, key, BRANCH, body)
    block = builder.take()
    _, at = read_varint(block, 0)
    size, at = read_varint(block, at)
    return decompress_block(block[at : at + size])


def walked(raw: bytes, count: int) -> tuple[list[tuple[int, int, int, int]], list[RawRecord]]:
    """Return batches and other records as the recording's own reader finds them."""
    records = list(raw_records(raw, count))
    batches = [(one.time_ms, one.branch, one.start, one.size) for one in records if one.topic == "telemetry"]
    return batches, [one for one in records if one.topic != "telemetry"]


def found(raw: bytes, count: int) -> tuple[list[tuple[int, int, int, int]], list[RawRecord]]:
    """Return the batches and other records found by their first bytes."""
    records = find_telemetry(raw, count)
    columns = (records.time_ms, records.branch, records.start, records.size)
    return list(zip(*(column.tolist() for column in columns), strict=True)), list(records.others)


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_what_the_reader_finds(seed: int) -> None:
    """Topics in any order, keys and bodies of any length, times that jump back."""
    rng = random.Random(seed)
    records = [
        (
            rng.choice(("telemetry", "telemetry", "clients", "plans")),
            1_700_000_000_000 + rng.randrange(-100_000, 100_000),
            rng.randbytes(rng.choice((0, 3, 70))),
            rng.randbytes(rng.choice((0, 10, 200, 9_000))),
        )
        for _ in range(rng.choice((0, 1, 60)))
    ]
    raw = block_of([("clients", 5, b"c", b"x"), *records])
    assert found(raw, len(records) + 1) == walked(raw, len(records) + 1)


@pytest.mark.parametrize("place", ["key", "body", "other"])
def test_a_record_that_contains_the_start_of_a_batch_is_not_mistaken(place: str) -> None:
    """Bytes like the beginning of a record inside another one are not taken for one."""
    trap = bytes([len("telemetry") << 1]) + b"telemetry" + bytes(30)
    records = [("telemetry", 7, b"b1", b"abc"), ("clients", 8, b"c1", b"xyz"), ("telemetry", 9, b"b2", b"def")]
    topic, time_ms, key, body = records[1] if place == "other" else records[0]
    records.insert(1, (topic, time_ms, trap if place == "key" else key, body if place == "key" else trap))
    raw = block_of(records)
    assert found(raw, len(records)) == walked(raw, len(records))


def test_an_inconsistent_block_is_refused() -> None:
    """One record more or fewer than the block declares, or a cut, is damage."""
    raw = block_of([("telemetry", 7, b"b1", b"abc"), ("telemetry", 9, b"b2", b"def")])
    for data, count in ((raw, 1), (raw, 3), (raw[:-1], 2)):
        with pytest.raises(FormError):
            find_telemetry(data, count)
