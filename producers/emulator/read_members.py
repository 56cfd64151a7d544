"""Read from Kafka which brokers are members, for those that wait to be one, and where nodes listen.

In: the compacted topic of members. Out: names and addresses. What a state means to a broker in the overlay its commands
say.
"""

from __future__ import annotations

import structlog
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_clients import open_consumer, report_error
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.member import Member, MemberState
from regraft.schemas.topics import MEMBERS, topic_name

RECORDS_PER_POLL_MAX = 5_000

log = structlog.get_logger(__name__)


class MemberReader:
    """The topic of members from its beginning on; one that has left is none."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self._client_id = kafka.client_id
        self._consumer = open_consumer(kafka)
        self._consumer.assign([TopicPartition(topic_name(MEMBERS, namespace), 0, OFFSET_BEGINNING)])
        self._members: dict[str, str] = {}

    def poll(self) -> dict[str, str]:
        """Take in what has come since, without waiting; return who is a member now, with its address if one is told."""
        for message in self._consumer.consume(RECORDS_PER_POLL_MAX, timeout=0):
            if (error := message.error()) is not None:
                report_error(self._client_id, error)
                continue
            self._members.pop((message.key() or b"").decode(errors="replace"), None)
            try:
                member = None if message.value() is None else decode(message.value(), Member)
            except UndecodableRecordError as fault:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(fault))
                continue
            if member is not None and member.state is not MemberState.LEFT:
                self._members[member.broker] = "" if member.facts is None else member.facts.address
        return self._members

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
