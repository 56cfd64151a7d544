"""Rows of a window -> Kafka messages: key and Avro bytes.

Delivery rows, nearly all rows of a window, go packed by columns: record by record they would cost more than everything
Spark does. The marker counts records, so its count of them is of packed ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from regraft.schemas.codec import encode
from regraft.schemas.state import StateRow
from regraft.streaming.build_rows import packed_row, state_key, window_key
from regraft.streaming.close_windows import WindowRows
from regraft.streaming.pack_deliveries import pack_deliveries

Message = dict[str, bytes]  # key and value, the form of confluent_kafka's produce_batch


@dataclass(frozen=True, slots=True)
class EncodedWindow:
    """The messages of all rows of a window, in order, and that of the marker that follows them."""

    rows: list[Message]
    marker: Message


def encode_window(window: WindowRows) -> EncodedWindow:
    """Return the messages of a window, the same bytes for the same rows."""
    bodies = pack_deliveries(window.deliveries, window.window.start_ms)
    packed = [packed_row(window.window, number, body) for number, body in enumerate(bodies)]
    counts = {"packed_deliveries" if kind == "delivery" else kind: n for kind, n in window.marker.row_counts.items()}
    marker = msgspec.structs.replace(window.marker, row_counts=counts | {"packed_deliveries": len(packed)})
    return EncodedWindow(
        [*_messages(window.interest), *_messages(packed), *_messages(window.others)],
        {"key": window_key(window.window.start_ms), "value": encode(marker)},
    )


def _messages(rows: Iterable[StateRow]) -> list[Message]:
    return [{"key": state_key(row.window_start_ms, row.kind, row.entity), "value": encode(row)} for row in rows]
