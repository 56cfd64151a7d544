"""Read from Kafka which brokers are members, for brokers that wait to become one, and where nodes listen.

In: the compacted topic of members. Out: names and addresses. Brokers act on commands, not on the states in this topic.
"""

from __future__ import annotations

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.producers.emulator.tail_topic import TopicTail
from regraft.schemas.member import Member, MemberState
from regraft.schemas.topics import MEMBERS, topic_name

RECORDS_PER_POLL_MAX = 5_000


class MemberReader:
    """The topic of members from its beginning; a broker that has left is not a member."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self.tail = TopicTail(kafka, topic_name(MEMBERS, namespace), Member, RECORDS_PER_POLL_MAX)
        self._members: dict[str, str] = {}

    def poll(self) -> dict[str, str]:
        """Process new records without waiting; return the current members, with their addresses if known."""
        for broker, member in self.tail.poll():
            self._members.pop(broker, None)
            if member is not None and member.state is not MemberState.LEFT:
                self._members[member.broker] = "" if member.facts is None else member.facts.address
        return self._members

    def close(self) -> None:
        """Close the connection."""
        self.tail.close()
