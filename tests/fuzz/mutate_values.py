"""Spoiled values for Kafka: bits, cuts, splices, lengths, ids, topics, and absurd numbers and names.

In: the corpus and a seed. Out: values in a fixed order, each with the name of what was done to it.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from fastavro import schemaless_writer

from regraft.producers.recordings.recording_format import varint
from regraft.schemas.codec import header
from regraft.schemas.registry import SCHEMAS, latest_schema
from regraft.schemas.topics import Topic
from tests.fuzz.valid_records import valid_records, valid_values

NUMBERS = (0, -1, 1, -(2**63), 2**63 - 1, 2**31 - 1, -(2**31), 2**53 + 1, 10**12, 253_402_300_800_000)
DOUBLES = (float("nan"), float("inf"), float("-inf"), -1e300, 1e300, 5e-324, -0.0, -1.0)
TEXTS = ("", "\x00", "b\n00", "\u202eb00", "b" * 5_000, "invented", "b00|b01", "../../etc", "é" * 300, "\U0001f980")
LENGTHS = (-1, 2**31 - 1, 2**33, 2**62, -(2**62), 100_000)
Mutation = Callable[[random.Random, Topic, bytes], bytes]


def spoiled(topic: Topic, rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield this many spoiled values for a topic, each with the name of what was done to it."""
    values = valid_values()[topic]
    names = sorted(MUTATIONS)
    for _ in range(count):
        name = rng.choice(names)
        yield name, MUTATIONS[name](rng, topic, rng.choice(values))


def _flip_bits(rng: random.Random, _: Topic, value: bytes) -> bytes:
    found = bytearray(value)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _cut(rng: random.Random, _: Topic, value: bytes) -> bytes:
    return value[: rng.randrange(len(value))]


def _cut_out(rng: random.Random, _: Topic, value: bytes) -> bytes:
    begin = rng.randrange(len(value))
    return value[:begin] + value[begin + rng.randrange(1, 12) :]


def _splice(rng: random.Random, _: Topic, value: bytes) -> bytes:
    other = rng.choice(rng.choice(sorted(valid_values().items(), key=lambda item: item[0].suffix))[1])
    return value[: rng.randrange(len(value))] + other[rng.randrange(len(other)) :]


def _append(rng: random.Random, _: Topic, value: bytes) -> bytes:
    return value + rng.randbytes(rng.choice((1, 7, 500)))


def _long_length(rng: random.Random, _: Topic, value: bytes) -> bytes:
    at = rng.randrange(5, len(value) + 1) if len(value) > 5 else len(value)
    return value[:at] + varint(rng.choice(LENGTHS)) + value[at + rng.choice((0, 1)) :]


def _wrong_id(rng: random.Random, _: Topic, value: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", rng.choice((*SCHEMAS, 0, 2**32 - 1, 103))) + value[5:]


def _other_topic(rng: random.Random, topic: Topic, _: bytes) -> bytes:
    others = sorted((each for each in valid_values() if each != topic), key=lambda each: each.suffix)
    return rng.choice(valid_values()[rng.choice(others)])


def _noise(rng: random.Random, _: Topic, __: bytes) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 4, 5, 40, 3_000)))


def _extreme(rng: random.Random, topic: Topic, _: bytes) -> bytes:
    """Encode a record again with extreme values in some of its fields: valid Avro with absurd content."""
    datum = msgspec.to_builtins(rng.choice(valid_records()[topic]), builtin_types=(bytes,))
    for _ in range(rng.choice((1, 1, 3))):
        leaves = list(_leaves(datum))
        holder, place = rng.choice(leaves)
        holder[place] = _extreme_of(rng, holder[place])
    schema, out = latest_schema(topic.record), io.BytesIO()
    out.write(header(schema.record))
    try:
        schemaless_writer(out, schema.parsed, datum)
    except (ValueError, TypeError, OverflowError, struct.error, KeyError):  # beyond what Avro itself can encode
        return out.getvalue()
    return out.getvalue()


def _leaves(datum: Any) -> Iterator[tuple[Any, Any]]:
    for place, value in datum.items() if isinstance(datum, dict) else enumerate(datum):
        if isinstance(value, tuple):
            value = datum[place] = list(value)
        if isinstance(value, dict | list):
            yield from _leaves(value)
        if not isinstance(value, dict) and value is not None:
            yield datum, place


def _extreme_of(rng: random.Random, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice(NUMBERS)
        case float():
            return rng.choice(DOUBLES)
        case str():
            return rng.choice(TEXTS)
        case bytes():
            return rng.randbytes(2_000)
        case list():
            return value * rng.choice((0, 2, 300))
        case _:
            return value


MUTATIONS: dict[str, Mutation] = {
    "flip_bits": _flip_bits,
    "cut": _cut,
    "cut_out": _cut_out,
    "splice": _splice,
    "append": _append,
    "long_length": _long_length,
    "wrong_id": _wrong_id,
    "other_topic": _other_topic,
    "noise": _noise,
    "extreme": _extreme,
}
