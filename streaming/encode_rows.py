"""Rows of a window -> Kafka messages: key and Avro bytes.

Delivery rows, nearly all rows of a window, are packed by columns: record by record, they would cost more than
everything that Spark does. The marker counts records, so it counts packed ones.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import structlog

from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX
from regraft.schemas.codec import encode
from regraft.schemas.state import StateRow, WindowClosed
from regraft.streaming.build_rows import packed_row, state_key, window_key
from regraft.streaming.close_windows import ShardSummary, ShardWindow
from regraft.streaming.pack_deliveries import pack_deliveries

log = structlog.get_logger(__name__)

Message = dict[str, bytes]  # key and value, the form of confluent_kafka's produce_batch


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """The messages of one shard's rows of a window, in order, and the summary that counts them.

    ``rows_failed`` rows are in neither, because their readers or Kafka would refuse them.
    """

    messages: list[Message]
    summary: ShardSummary
    rows_failed: int = 0


def encode_shard(shard: ShardWindow, number: int = 0, shards: int = 1) -> EncodedShard:
    """Return the messages of shard ``number`` of ``shards``, the same bytes for the same rows.

    The numbers of packed records are unique over all shards of a window, without communication.
    """
    bodies = pack_deliveries(shard.deliveries, shard.window.start_ms)
    packed = [packed_row(shard.window, place * shards + number, body) for place, body in enumerate(bodies)]
    rows = [*packed, *shard.others]
    counts = {"packed_deliveries": len(packed)}
    counts |= {kind: count for kind, count in shard.summary.row_counts.items() if kind != "delivery"}
    failed = Counter[str]()
    messages = encode_rows(rows, failed)
    counts = {kind: count - failed[kind] for kind, count in counts.items()}
    return EncodedShard(messages, msgspec.structs.replace(shard.summary, row_counts=counts), failed.total())


def encode_rows(rows: Iterable[StateRow], failed: Counter[str]) -> list[Message]:
    """Return a message for each row; count in ``failed``, by kind, rows that cannot be encoded or are too long."""
    messages: list[Message] = []
    for row in rows:
        try:
            value = encode(row)
            if len(value) > SENT_BYTES_MAX:
                raise ValueError(f"it has {len(value)} bytes, but at most {SENT_BYTES_MAX} are sent")
        except ValueError as error:
            log.error("row_left_out", window_start_ms=row.window_start_ms, kind=row.kind, reason=str(error))
            failed[row.kind] += 1
            continue
        messages.append({"key": state_key(row.window_start_ms, row.kind, row.entity), "value": value})
    return messages


def encode_marker(marker: WindowClosed) -> Message:
    """Return the message of a marker."""
    return {"key": window_key(marker.window_start_ms), "value": encode(marker)}
