"""Show records of a Kafka topic as plain values, with packed values unpacked.

The columns of packed records belong to :mod:`schemas.packed_cells` and :mod:`schemas.packed_deliveries`; the meaning of
records, to the stages that read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.state import StateRow
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.texts import iso_text
from regraft.schemas.topics import DEAD_LETTERS, Topic
from regraft.schemas.unpack_state import single_deliveries

if TYPE_CHECKING:
    from confluent_kafka import Message

SHOWN_TYPES: Mapping[str, type[msgspec.Struct]] = {
    topic.suffix: record for topic, record in (RECORD_TYPES | {DEAD_LETTERS: DeadLetter}).items()
}


def shown_message(message: Message, topic: Topic) -> dict[str, Any]:
    """Return a message's place, time, key and record, or why it does not decode.

    The record of a tombstone is None; bytes are base64.
    """
    key, (_, time_ms) = message.key(), message.timestamp()
    head: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "time": iso_text(time_ms),
        "key": key.decode(errors="replace") if isinstance(key, bytes) else key,
    }
    value = message.value()
    if value is None:
        return head | {"record": None}
    try:
        return head | {"record": shown_record(decode(value, SHOWN_TYPES[topic.suffix]))}
    except UndecodableRecordError as error:
        return head | {"error": str(error), "bytes": len(value)}


def shown_record(record: msgspec.Struct) -> Any:
    """Return a record as plain values, without empty ones; packed telemetry cells and state rows become lists."""
    if isinstance(record, TelemetryBatch):
        record = msgspec.structs.replace(record, deliveries=record.cells(), seconds=())
    plain = msgspec.to_builtins(record)
    if isinstance(record, StateRow) and record.packed_deliveries is not None:
        columns = record.packed_deliveries.columns()
        plain["packed_deliveries"] = msgspec.to_builtins(list(single_deliveries(columns)))
    return {name: value for name, value in plain.items() if value is not None and value not in ("", [], ())}
