"""Store plans, their commands, events and the audit of orders on Kafka, in transactions of one term.

In: plans, commands, events, audit entries. Out: all of a phase stored, or nothing. The controllers of a namespace share
one transactional id: a new store fences the earlier one, even if that still believes it leads. Who may begin belongs to
:mod:`controller.ports.leadership`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from regraft.controller.control_ports import DeposedError
from regraft.infra.kafka.decode_strictly import Record, read_newest
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.transaction_writer import CALL_S, TransactionWriter, WriterLostError
from regraft.schemas.audit import AuditEntry
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.codec import UnencodableRecordError, encode
from regraft.schemas.command import Command
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.member import Member
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SAMPLING_KEY, SampleRequest
from regraft.schemas.topics import AUDIT, COMMANDS, EVENTS, LEADER, MEMBERS, PLANS, SAMPLING, Topic, topic_name

log = structlog.get_logger(__name__)

REPORTS_WAITING_MAX = 20_000  # Of each topic: events or audit entries while Kafka is unavailable, hours of them.
LEADER_KEY = b"leader"  # One key: the compacted topic keeps the newest term forever.

NAMED = (PLANS, MEMBERS, EVENTS, AUDIT, LEADER, SAMPLING)
Batch = tuple[Plan | None, tuple[Command, ...], tuple[Member, ...]]
NOTHING: Batch = (None, (), ())
TOPIC_MISSING = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
)


class KafkaPlanStore:
    """One writer of plans, commands and events; ``lost`` counts by topic what did not fit while Kafka
    was unavailable, and what readers would refuse.

    ``agent_of`` names the agent of each broker of the inventory, to whose topic its commands go. Members that are
    loaded or stored may have others: ``topics`` are those of all.
    """

    def __init__(self, kafka: KafkaAccess, namespace: str, agent_of: Mapping[str, str] | None = None) -> None:
        self._kafka = kafka
        self._names = {topic: topic_name(topic, namespace) for topic in NAMED}
        self.topics = BrokerTopics(namespace, agent_of or {})
        self._writer = TransactionWriter(kafka, writer_id(namespace))
        self._under_way: Batch | None = None
        self._reports: list[tuple[str, str, bytes]] = []  # Events and the audit: topic, key, encoded record.
        self._waiting: Counter[str] = Counter()  # The same, by topic: a flood of orders must not displace events.
        self._forgotten: list[str] = []
        self._filled = (0, 0)  # The number of reports and forgotten plans in the transaction under way.
        self._read_ahead: list[Plan] | None = None
        self._can_ask = True
        self.lost: Counter[str] = Counter()

    @property
    def waiting_count(self) -> int:
        """The number of records that Kafka has not accepted yet."""
        plan, commands, members = self._under_way or NOTHING
        return (plan is not None) + len(commands) + len(members) + len(self._reports) + len(self._forgotten)

    def begin(self) -> bool:
        """Fence an earlier store and abort what it left open; return False while Kafka does not answer.

        Raises DeposedError if another store does the same at this moment.
        """
        try:
            return self._writer.begin()
        except WriterLostError as error:
            raise DeposedError(str(error)) from error

    def claim(self, term: LeaderTerm, group: Any, headers: Sequence[tuple[str, bytes]] = ()) -> bool:
        """Write the term if the member of the consumer group still is one; return False if it was not written.

        ``group`` is the consumer's group metadata: Kafka refuses a transaction of a former member.
        """

        def fill(producer: Producer) -> None:
            producer.produce(self._names[LEADER], key=LEADER_KEY, value=encode(term), headers=list(headers))
            producer.send_offsets_to_transaction([TopicPartition(self._names[LEADER], 0, 0)], group, CALL_S)

        try:
            return self._writer.commit(fill)
        except WriterLostError as error:
            raise DeposedError(str(error)) from error

    def read_ahead(self) -> list[Plan] | None:
        """Load the plans and keep them for the next :meth:`load`: only the controller that began its term writes."""
        self._read_ahead = None
        self._read_ahead = self.load()
        return self._read_ahead

    def load(self) -> list[Plan] | None:
        """Return the newest version of each plan from the whole topic; None if it cannot be read to its end.

        Raises UnreadableRecordError for a record that is not a plan: its epoch would be used again.
        """
        if self._read_ahead is not None:
            found_ahead, self._read_ahead = self._read_ahead, None
            return found_ahead
        return self._read(PLANS, Plan)

    def load_members(self) -> list[Member] | None:
        """Return the newest record of each member; None and errors as for :meth:`load`."""
        members = self._read(MEMBERS, Member)
        self.topics = self.topics.with_members(members or ())
        return members

    def load_sample(self) -> list[SampleRequest] | None:
        """Return the newest request; None and errors as for :meth:`load`.

        Without the topic, which clusters set up by an earlier version lack, requests are impossible: a transaction with
        a record for it would never end.
        """
        try:
            requests = read_newest(self._kafka, self._names[SAMPLING], SampleRequest)
        except KafkaException as error:
            self._can_ask = error.args[0].code() not in TOPIC_MISSING
            if self._can_ask:
                log.warning("topic_not_read", topic=self._names[SAMPLING], reason=str(error))
                return None
            log.warning("sampling_off", topic=self._names[SAMPLING], reason=str(error), to_do="regraft topics --create")
            return []
        return requests

    def ask_sample(self, request: SampleRequest) -> None:
        """Send a request with the next transaction."""
        if self._can_ask:
            self._report(self._names[SAMPLING], SAMPLING_KEY, request)

    def _read(self, topic: Topic, record_type: type[Record]) -> list[Record] | None:
        try:
            return read_newest(self._kafka, self._names[topic], record_type)
        except KafkaException as error:
            log.warning("topic_not_read", topic=self._names[topic], reason=str(error))
            return None

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store a plan's phase with its commands, and members, waiting about CALL_S; return True once it is done.

        Called again with the same arguments, it continues the transaction under way; with others it finishes that
        first. So nothing is stored twice or out of order. Raises DeposedError.
        """
        asked = (plan, tuple(commands), tuple(members))
        earlier = self._under_way
        if earlier is not None and earlier != asked and not self._write(earlier):
            return False
        return self._write(asked)

    def emit(self, event: AdaptationEvent) -> None:
        """Send an event with the next transaction."""
        self._report(self._names[EVENTS], event.subject, event)

    def keep(self, entry: AuditEntry) -> None:
        """Send the outcome of an order with the next transaction."""
        self._report(self._names[AUDIT], entry.subject, entry)

    def forget(self, plan: str) -> None:
        """Write the plan's tombstone with the next transaction."""
        self._forgotten.append(plan)

    def flush(self) -> None:
        """Send waiting events, entries and tombstones, unless a plan waits: its transaction will include them.

        Raises DeposedError.
        """
        if self._under_way in (None, NOTHING) and (self._reports or self._forgotten):
            self._write(NOTHING)

    def close(self) -> None:
        """Send what can be sent at once, and close; the next controller finds what was stored."""
        try:
            self.flush()
        except DeposedError as error:
            log.debug("events_not_sent", reason=str(error))
        self._writer.close()

    def _report(self, name: str, key: str, record: msgspec.Struct) -> None:
        """Queue a report; one that readers would refuse is lost alone, or it would stop all that is stored with it."""
        try:
            value = encode(record)
        except UnencodableRecordError as error:
            log.error("record_not_sent", topic=name, key=key, reason=str(error))
            self.lost[name] += 1
            return
        if self._waiting[name] < REPORTS_WAITING_MAX:
            self._waiting[name] += 1
            self._reports.append((name, key, value))
        else:
            self.lost[name] += 1

    def _write(self, batch: Batch) -> bool:
        self._under_way, self._read_ahead = batch, None
        try:
            is_written = self._writer.commit(partial(self._fill, batch))
        except WriterLostError as error:
            raise DeposedError(str(error)) from error
        if is_written:
            self._under_way = None
            reports, forgotten = self._filled
            self._waiting.subtract(name for name, _, _ in self._reports[:reports])
            del self._reports[:reports], self._forgotten[:forgotten]
        return is_written

    def _fill(self, batch: Batch, producer: Producer) -> None:
        def produce(name: str, key: str, record: msgspec.Struct | None) -> None:
            producer.produce(name, key=key.encode(), value=None if record is None else encode(record))

        plan, commands, members = batch
        self.topics = self.topics.with_members(members)
        for forgotten in self._forgotten:
            produce(self._names[PLANS], forgotten, None)
        if plan is not None:
            produce(self._names[PLANS], plan.plan, plan)
        for member in members:
            produce(self._names[MEMBERS], member.broker, member)
        for command in commands:
            produce(self.topics.name(COMMANDS, command.broker), command.broker, command)
        for name, key, value in self._reports:
            producer.produce(name, key=key.encode(), value=value)
        self._filled = (len(self._reports), len(self._forgotten))


def writer_id(namespace: str) -> str:
    """Return the transactional id that the controllers of a namespace share."""
    return f"{namespace}.controller"
