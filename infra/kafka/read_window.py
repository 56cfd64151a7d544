"""Read the marker of the newest closed window, for commands that want to know what was there last."""

from __future__ import annotations

from confluent_kafka import KafkaException

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_last
from regraft.infra.process.stack_error import StackError
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.state import WindowClosed
from regraft.schemas.topics import WINDOWS, topic_name

ANSWER_S_MAX = 5.0


def read_newest_window(kafka: KafkaAccess, namespace: str) -> WindowClosed | None:
    """Return the newest marker; None if there is none that can be read, or Kafka does not answer."""
    try:
        last = read_last(kafka, [topic_name(WINDOWS, namespace)], 1, ANSWER_S_MAX)
        return decode(last[-1].value(), WindowClosed) if last else None
    except (KafkaException, StackError, UndecodableRecordError):
        return None
