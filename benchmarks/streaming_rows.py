"""Read back and compare the rows that the programs of bench_streaming wrote."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from confluent_kafka import TopicPartition
from fastavro import schemaless_reader

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, decode, encode
from regraft.schemas.registry import latest_schema
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import STATE, WINDOWS, topic_name
from regraft.schemas.unpack_state import PACKED, UNPACKED, unpack_window
from regraft.streaming.build_rows import state_key

EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of one program: a digest of each row by key, and the sum of all local deliveries.

    ``announced``: the number of rows according to the markers. Both are None without markers: then only rows are
    compared.
    """

    digests: Mapping[bytes, bytes]
    local_deliveries: int | None
    announced: int | None
    late_rows: int = 0

    def deliveries(self) -> dict[bytes, bytes]:
        """Return the digests of delivery rows only."""
        return {key: digest for key, digest in self.digests.items() if key.split(b"/")[1] == UNPACKED.encode()}


def read_outcome(bootstrap: str, namespace: str, *, has_markers: bool = True) -> Outcome:
    """Read back what a program wrote; the newest value of a key counts."""
    newest = dict(_read(bootstrap, topic_name(STATE, namespace)))
    markers = dict(_read(bootstrap, topic_name(WINDOWS, namespace))) if has_markers else {}
    return outcome_of(newest, [decode(value, WindowClosed) for value in markers.values()], has_markers=has_markers)


def outcome_of(rows: Mapping[bytes, bytes], markers: list[WindowClosed], *, has_markers: bool) -> Outcome:
    """Return the outcome of rows by key and of markers, one for each window."""
    digests: dict[bytes, bytes] = {}
    packed: dict[int, list[StateRow]] = {}
    handed_over = 0
    for key, value in rows.items():
        kind = key.split(b"/")[1].decode()
        if kind == PACKED:
            row = decode(value, StateRow)
            packed.setdefault(row.window_start_ms, []).append(row)
            continue
        digests[key] = _digest(value)
        handed_over += _local_deliveries(value) if has_markers and kind == UNPACKED else 0
    announced = 0
    for marker in markers:
        single, counted = unpack_window(packed.get(marker.window_start_ms, ()), marker)
        announced += sum(counted.row_counts.values())
        for row in single:
            digests[state_key(row.window_start_ms, row.kind, row.entity)] = _digest(encode(row))
            handed_over += row.delivery.local_deliveries if row.delivery else 0
    late_rows = sum(marker.late_rows for marker in markers)
    if not has_markers:
        return Outcome(digests, None, None, late_rows)
    return Outcome(digests, handed_over, announced, late_rows)


def differences(first: Mapping[bytes, bytes], second: Mapping[bytes, bytes]) -> list[str]:
    """Return how the rows of two programs differ, one sentence each."""
    texts = []
    for finding, keys in (
        ("only the first has", first.keys() - second.keys()),
        ("only the second has", second.keys() - first.keys()),
        ("they disagree on", {key for key in first.keys() & second.keys() if first[key] != second[key]}),
    ):
        if keys:
            examples = ", ".join(key.decode() for key in sorted(keys)[:EXAMPLES_MAX])
            texts.append(f"{finding} {len(keys)} rows, for example {examples}")
    return texts


def _local_deliveries(value: bytes) -> int:
    """Return the local deliveries of an encoded delivery row; unchecked, because there are very many rows."""
    row: Any = schemaless_reader(io.BytesIO(value[CONFLUENT_HEADER_BYTES:]), latest_schema("StateRow").parsed)
    return int(row["delivery"]["local_deliveries"])


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=12).digest()


def _read(bootstrap: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    consumer, place = open_consumer(KafkaAccess(bootstrap)), TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, timeout=10)
    at = 0
    while at < end:
        messages = consumer.consume(5_000, timeout=10.0)
        if not messages:
            raise RuntimeError(f"{topic} has {end} records, {at} could be read within 10 s")
        for message in messages:
            key, value, offset = message.key(), message.value(), message.offset()
            if message.error() or key is None or value is None or offset is None:
                raise RuntimeError(f"reading {topic} failed: {message.error()}")
            at = offset + 1
            yield key if isinstance(key, bytes) else key.encode(), value
    consumer.close()
