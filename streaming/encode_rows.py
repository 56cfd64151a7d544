"""Rows of a window -> Kafka messages: key and Avro bytes.

Delivery rows, nearly all rows of a window, are packed by columns: record by record, they would cost more than
everything that Spark does. The marker counts records, so it counts packed ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from regraft.schemas.codec import encode
from regraft.schemas.state import StateRow, WindowClosed
from regraft.streaming.build_rows import packed_row, state_key, window_key
from regraft.streaming.close_windows import ShardSummary, ShardWindow
from regraft.streaming.pack_deliveries import pack_deliveries

Message = dict[str, bytes]  # key and value, the form of confluent_kafka's produce_batch


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """The messages of one shard's rows of a window, in order, and the summary that counts them."""

    messages: list[Message]
    summary: ShardSummary


def encode_shard(shard: ShardWindow, number: int = 0, shards: int = 1) -> EncodedShard:
    """Return the messages of shard ``number`` of ``shards``, the same bytes for the same rows.

    The numbers of packed records are unique over all shards of a window, without communication.
    """
    bodies = pack_deliveries(shard.deliveries, shard.window.start_ms)
    packed = [packed_row(shard.window, place * shards + number, body) for place, body in enumerate(bodies)]
    counts = {kind: count for kind, count in shard.summary.row_counts.items() if kind != "delivery"}
    summary = msgspec.structs.replace(shard.summary, row_counts={"packed_deliveries": len(packed)} | counts)
    return EncodedShard(encode_rows([*packed, *shard.others]), summary)


def encode_rows(rows: Iterable[StateRow]) -> list[Message]:
    """Return a message for each row."""
    return [{"key": state_key(row.window_start_ms, row.kind, row.entity), "value": encode(row)} for row in rows]


def encode_marker(marker: WindowClosed) -> Message:
    """Return the message of a marker."""
    return {"key": window_key(marker.window_start_ms), "value": encode(marker)}
