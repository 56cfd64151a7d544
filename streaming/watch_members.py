"""Watch the topic of members for added brokers, and store them where each start of the query looks.

In: the topic of members. Out: a file next to the checkpoint with the agent of each broker that has its own facts,
whether it has changed, and whether all that Kafka has arrives. Refusing telemetry belongs to
:mod:`streaming.refuse_batches`.
"""

from __future__ import annotations

import json
import time

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from regraft.infra.kafka.kafka_clients import consume, leave_to_caller, open_consumer
from regraft.infra.kafka.prove_reading import ReadingProof
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.member import Member
from regraft.schemas.status_file import replace_file
from regraft.schemas.topics import MEMBERS, TELEMETRY, topic_name
from regraft.streaming.source_topics import added_brokers
from regraft.streaming.streaming_settings import StreamingSettings

READ_S_MAX = 10.0  # At the start; brokers added later are found while the query runs.
CHECK_S = 5.0  # Between checks for topics that do not exist yet.
CALL_S = 1.0
RECORDS_PER_POLL_MAX = 1_000
PROVE_S = 5.0  # Between questions to Kafka where the topic ends.

log = structlog.get_logger(__name__)


class MemberWatcher:
    """Knows which brokers were added. Without an inventory, any broker's telemetry is accepted, and nothing is watched.

    ``agent_of`` names the agent of each broker that has facts. A broker whose agent has no topic of telemetry yet is
    left out until it has one: otherwise the query would fail.

    A consumer that gets nothing looks like one for which there is nothing, so Kafka is asked where the topic ends:
    ``is_proved`` once that was reached, ``error`` says why an added broker may be unknown. If records that Kafka has do
    not arrive, another consumer reads on.
    """

    def __init__(self, settings: StreamingSettings) -> None:
        self._settings = settings
        self._topic = topic_name(MEMBERS, settings.namespace)
        self._is_watching = settings.inventory_path is not None
        self._consumer = self._open() if self._is_watching else None
        self._proof = None if self._consumer is None else ReadingProof(self._consumer, CALL_S)
        self._is_assigned = self._is_at_end = False
        self._is_unsaved = False  # A record arrived before the end of the topic, and nothing is stored until then.
        self._reached = 0  # The next offset, after transaction markers as well.
        self._check_at_s = self._prove_at_s = 0.0
        self.error, self.is_proved = "", False
        self.agent_of: dict[str, str] = {}
        self._waiting: set[str] = set()  # Agents without a topic.

    def _open(self) -> Consumer:
        return open_consumer(self._settings.kafka, {"enable.partition.eof": True}, on_error=leave_to_caller)

    def read_all(self, wait_s_max: float = READ_S_MAX) -> None:
        """Read the whole topic; if that takes longer than ``wait_s_max``, keep the brokers known before."""
        deadline_s = time.monotonic() + wait_s_max
        while not self._is_at_end and time.monotonic() < deadline_s and (self._is_assigned or self._assign()):
            self._take(0.1)
        if self._is_watching and not self._is_at_end:
            log.warning("members_not_read", topic=self._topic, waited_s=wait_s_max, known=len(self._stored()))
        self._store()

    def poll(self) -> bool:
        """Process new records without waiting; return True if the known brokers have changed."""
        if not self._is_watching:
            return False
        self._is_unsaved |= self._take(0)
        if self._is_assigned and time.monotonic() >= self._prove_at_s:
            self._prove_at_s = time.monotonic() + PROVE_S
            self._prove()
        is_due = bool(self._waiting) and time.monotonic() >= self._check_at_s
        return (self._is_unsaved or is_due) and self._store()

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def _prove(self) -> None:
        """Ask Kafka where the topic ends; if what is there does not arrive, read on with another consumer."""
        self.is_proved = False
        proof, consumer = self._proof, self._consumer
        assert proof is not None
        assert consumer is not None
        if not proof.ask({(self._topic, 0): self._reached}):
            self.error = f"Kafka does not say where {self._topic} ends"
            return
        self.error = f"records of {self._topic} are not arriving, although Kafka has them" if proof.stalled else ""
        self.is_proved = not proof.stalled
        if proof.needs_another_consumer:
            log.error("members_stalled", topic=self._topic, next_offset=self._reached)
            consumer.close()
            self._consumer = self._open()
            proof.read_with(self._consumer)
            self._consumer.assign([TopicPartition(self._topic, 0, self._reached)])

    def _take(self, wait_s: float) -> bool:
        """Process available records; return True if one changed ``agent_of``."""
        if self._consumer is None or not (self._is_assigned or self._assign()):
            return False
        messages = consume(self._consumer, RECORDS_PER_POLL_MAX, self._settings.kafka.client_id, wait_s)
        for message in messages:
            is_end = (error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF
            self._is_at_end |= is_end
            if is_end or error is None:
                self._reached = max((message.offset() or 0) + (error is None), self._reached)
        return sum(self.take_one(message) for message in messages if message.error() is None) > 0

    def take_one(self, message: Message) -> bool:
        """Process one record of the topic; return True if it changes ``agent_of``. Log one that is not a member."""
        try:
            member = decode(message.value(), Member)
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=self._topic, offset=message.offset(), reason=str(error))
            return False
        if member.facts is None:
            return self.agent_of.pop(member.broker, None) is not None
        is_new = self.agent_of.get(member.broker) != member.facts.agent
        self.agent_of[member.broker] = member.facts.agent
        return is_new

    def _assign(self) -> bool:
        if not self._is_watching or time.monotonic() < self._check_at_s:
            return False
        self._check_at_s = time.monotonic() + CHECK_S
        if self._has_topic(self._topic):
            assert self._consumer is not None
            self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            self._is_assigned = True
        return self._is_assigned

    def _has_topic(self, name: str) -> bool:
        assert self._consumer is not None
        try:
            return self._consumer.list_topics(name, timeout=CALL_S).topics[name].error is None
        except KafkaException as error:
            log.warning("topic_not_found", topic=name, reason=error.args[0].str())
            return False

    def _store(self) -> bool:
        """Store the known brokers next to the checkpoint; return True if they have changed."""
        before = self._stored()
        if not self._is_at_end:  # Not all is read yet: forget no broker.
            return False
        self._is_unsaved = False
        self._check_at_s = time.monotonic() + CHECK_S
        namespace = self._settings.namespace
        agents = set() if self._settings.telemetry_topic else {*self.agent_of.values()} - {*before.values()}
        waiting = {agent for agent in agents if not self._has_topic(topic_name(TELEMETRY, namespace, agent))}
        if waiting != self._waiting and waiting:
            log.warning("agents_without_topic", agents=sorted(waiting), to_do="regraft topics --create")
        self._waiting = waiting
        members = {broker: agent for broker, agent in sorted(self.agent_of.items()) if agent not in waiting}
        if members != before or not self._settings.members_file.exists():  # Stored even if empty.
            if (copy := self._settings.members_copy) is not None:  # First: the next start reads this one.
                replace_file(copy, json.dumps(members) + "\n")
            replace_file(self._settings.members_file, json.dumps(members) + "\n")
        if members == before:
            return False
        log.info(
            "members_changed",
            added=sorted(members.keys() - before.keys()),
            removed=sorted(before.keys() - members.keys()),
        )
        return True

    def _stored(self) -> dict[str, str]:
        return added_brokers(self._settings)
