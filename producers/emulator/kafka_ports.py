"""The emulator's ports on Kafka: telemetry, results and clients out, commands and plans in.

While Kafka is unavailable, output waits in librdkafka's bounded buffer and input in its topic; both resume by
themselves afterwards. The producers are idempotent, so that waiting neither repeats nor reorders.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Generic

import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message

from regraft.infra.kafka.decode_strictly import read_newest
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.prove_reading import ProvedReader
from regraft.infra.kafka.read_messages import read_messages
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.process.handle_each import is_logged
from regraft.infra.process.stack_error import StackError
from regraft.producers.emulator.read_commands import RETRY_S, CommandReader, KafkaUnreachableError, topics_text
from regraft.producers.emulator.starting_point import is_undecided
from regraft.schemas.announcement import Announcement
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.client import Client
from regraft.schemas.codec import Record, UndecodableRecordError, decode
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import ANNOUNCEMENTS, CLIENTS, MEMBERS, PLANS, RESULTS, SAMPLING, TELEMETRY, topic_name

TOMBSTONES_AT_ONCE_MAX = 500  # Below the least permitted buffer size, so that none is dropped for lack of room.

log = structlog.get_logger(__name__)


RECORDS_PER_POLL_MAX = 5_000
REQUESTS_PER_POLL_MAX = 100


class TopicTail(ProvedReader, Generic[Record]):
    """A compacted topic of one partition, from its beginning; ``records_per_poll_max`` bounds one :meth:`poll`."""

    def __init__(self, kafka: KafkaAccess, name: str, record_type: type[Record], records_per_poll_max: int) -> None:
        super().__init__(kafka, {})
        self._record_type, self._records_max = record_type, records_per_poll_max
        self._reached = {(name, 0): OFFSET_BEGINNING}
        self._assign()

    def poll(self) -> Iterator[tuple[str, Record | None]]:
        """Yield keys and records that have arrived since; None means deleted, or unreadable, which is logged."""
        for message in self._arrived(self._records_max):
            try:
                record = None if message.value() is None else decode(message.value(), self._record_type)
            except UndecodableRecordError as refusal:
                log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(refusal))
                record = None
            yield (message.key() or b"").decode(errors="replace"), record


class SampleReader:
    """What share of deliveries the controller asks brokers to report in full; they apply it themselves.

    It reads the topic of sampling from its beginning; a request of an earlier term is ignored.
    """

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self.tail = TopicTail(kafka, topic_name(SAMPLING, namespace), SampleRequest, REQUESTS_PER_POLL_MAX)
        self._newest: SampleRequest | None = None

    def poll(self) -> SampleRequest | None:
        """Read new records without waiting; return the newest request, or None if there is none."""
        for _, request in self.tail.poll():
            if request is not None and (self._newest is None or request.term >= self._newest.term):
                self._newest = request
        return self._newest


class MemberReader:
    """The topic of members from its beginning; a broker that has left is not a member."""

    def __init__(self, kafka: KafkaAccess, namespace: str) -> None:
        self.tail = TopicTail(kafka, topic_name(MEMBERS, namespace), Member, RECORDS_PER_POLL_MAX)
        self._members: dict[str, str] = {}
        self.left: set[str] = set()  # Brokers whose newest record says that they have left.

    def poll(self) -> dict[str, str]:
        """Process new records without waiting; return the current members, with their addresses if known."""
        for broker, member in self.tail.poll():
            self._members.pop(broker, None)
            self.left.discard(broker)
            if member is not None and member.state is MemberState.LEFT:
                self.left.add(member.broker)
            elif member is not None:
                self._members[member.broker] = "" if member.facts is None else member.facts.address
        return self._members


class KafkaPorts:
    """All ports of one emulator, or of an agent, which speaks only for the brokers of ``topics``.

    Telemetry has its own producer, so that its buffer never blocks results.
    """

    def __init__(
        self, kafka: KafkaAccess, topics: BrokerTopics, *, outage_s_max: float, buffer_records_max: int
    ) -> None:
        limits = {"outage_s_max": outage_s_max, "buffer_records_max": buffer_records_max}
        self.telemetry = RecordWriter(kafka, linger_ms=20, **limits)  # type: ignore[arg-type]
        self.answers = RecordWriter(kafka, linger_ms=2, **limits)  # type: ignore[arg-type]
        self._kafka = kafka
        self._commands = CommandReader(kafka, topics, self.answers)
        self._members: MemberReader | None = None
        self._requests: SampleReader | None = None
        self._topics = topics
        self._register = topic_name(CLIENTS, topics.namespace)
        self.on_wait: Callable[[str], None] = lambda _what: None  # Gets what a call waits for, repeatedly.

    def connect(self, wait_s_max: float) -> None:
        """Find the end of the commands topic, from which commands are obeyed.

        Raises KafkaUnreachableError if that takes longer than ``wait_s_max``.
        """
        self._commands.connect(wait_s_max, self.on_wait)

    def withdraw_clients(self, brokers: Container[str], wait_s_max: float) -> int:
        """Remove the clients of these brokers from the register, and return how many there were.

        Call it before any client connects: the register's entries are from an earlier run that was cut short. Raises
        KafkaUnreachableError if register or tombstones take longer than ``wait_s_max``.
        """
        deadline_s = time.monotonic() + wait_s_max
        register = self._register
        try:
            earlier = clients_at(brokers, read_messages(self._kafka, [register], wait_s_max))
        except (StackError, KafkaException) as error:
            raise KafkaUnreachableError(f"cannot read {register} to withdraw earlier clients: {error}") from error
        for number, client in enumerate(earlier, start=1):
            self.remove_client(client)
            if number % TOMBSTONES_AT_ONCE_MAX == 0 or number == len(earlier):
                unsent = self.answers.flush(max(deadline_s - time.monotonic(), 0.0))
                if unsent:
                    raise KafkaUnreachableError(
                        f"{unsent} of {len(earlier)} earlier clients were not withdrawn from {register} within "
                        f"{wait_s_max:g} s: check that Kafka is healthy"
                    )
        return len(earlier)

    def read_plans(self, wait_s_max: float, undecided_s_max: float) -> list[Plan]:
        """Return the newest version of each plan; wait while a plan is still undecided.

        Answers of earlier brokers may still commit such a plan, and brokers that began at the overlay before it would
        not be prepared for it. After ``undecided_s_max`` that can no longer happen. Call it after :meth:`connect`, so
        that no command falls between. Raises KafkaUnreachableError if the plans cannot be read in ``wait_s_max``, and
        UnreadableRecordError if one does not decode.
        """
        topic, reason = topic_name(PLANS, self._topics.namespace), "its end was not reached"
        deadline_s = time.monotonic() + wait_s_max
        undecided_until_s = deadline_s + undecided_s_max
        while True:
            plans = None
            try:
                plans = read_newest(self._kafka, topic, Plan)
            except KafkaException as error:
                reason = error.args[0].str()
                self.on_wait(f"{topics_text([topic])} at {self._kafka.bootstrap} ({reason})")
            now_s = time.monotonic()
            if plans is not None:
                if now_s > undecided_until_s or not any(is_undecided(plan) for plan in plans):
                    return plans
                deadline_s = undecided_until_s
                undecided = ", ".join(plan.plan for plan in plans if is_undecided(plan))
                self.on_wait(f"the end of {undecided}, which is being prepared: a running controller decides it")
            elif now_s > deadline_s:
                raise KafkaUnreachableError(
                    f"{topic} at {self._kafka.bootstrap} could not be read within {wait_s_max:g} s ({reason}): brokers "
                    "begin at the overlay of the last plan in it, so check that Kafka runs and that its topics exist"
                )
            time.sleep(RETRY_S)

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Send a batch, keyed by its broker."""
        if self._topics.represents(batch.broker):
            self.telemetry.write(self._topics.name(TELEMETRY, batch.broker), batch.broker, batch.packed())

    def send_result(self, result: CommandResult) -> None:
        """Send a result, keyed by its broker."""
        if self._topics.represents(result.broker):
            self.answers.write(self._topics.name(RESULTS, result.broker), result.broker, result)

    def put_client(self, client: Client) -> None:
        """Write the client into the compacted register."""
        self.answers.write(self._register, client.client, client)

    def remove_client(self, client: str) -> None:
        """Write a tombstone into the compacted register."""
        self.answers.write(self._register, client, None)

    def announce(self, announcement: Announcement) -> None:
        """Report that a broker asks to join, on the topic of its agent."""
        if self._topics.represents(announcement.broker):
            name = self._topics.name(ANNOUNCEMENTS, announcement.broker)
            self.answers.write(name, announcement.broker, announcement)

    def is_member(self, broker: str) -> bool:
        """Return True if a broker is a member, as far as records have arrived; the first call only starts reading."""
        return broker in self.member_addresses()

    def member_addresses(self) -> dict[str, str]:
        """Return the members with their known addresses, as far as records have arrived."""
        if self._members is None:
            self._members = MemberReader(self._kafka, self._topics.namespace)
        return self._members.poll()

    def has_left(self, broker: str) -> bool:
        """Return True if a broker was a member and has left, as far as records have arrived."""
        self.member_addresses()
        return self._members is not None and broker in self._members.left

    def requested_share(self) -> SampleRequest | None:
        """Return the controller's request for what to report in full; the first call only starts reading."""
        if self._requests is None:
            self._requests = SampleReader(self._kafka, self._topics.namespace)
        return self._requests.poll()

    def poll(self) -> list[Command]:
        """Return the commands that have arrived, and process acknowledgements."""
        self.telemetry.serve()
        self.answers.serve()
        return self._commands.poll()

    def prove_reading(self) -> bool:
        """Return True if all that Kafka has arrives; call it from another thread than the one that polls."""
        answers = [reader.prove() for reader in self._readers()]  # Each asks, whatever another one finds.
        return all(answers)

    @property
    def is_reading_stalled(self) -> bool:
        """Return True if Kafka answers, but commands, members or requests that it has do not arrive."""
        return any(reader.is_stalled for reader in self._readers())

    def reopen_stalled(self) -> None:
        """Read what does not arrive with another consumer, from where the present one got to."""
        for reader in self._readers():
            if reader.is_stalled:
                reader.reopen()

    def _readers(self) -> list[ProvedReader]:
        tails = [one.tail for one in (self._members, self._requests) if one is not None]
        return [self._commands, *tails]

    def flush(self, wait_s_max: float) -> int:
        """Wait up to ``wait_s_max`` for pending records; return how many are still unsent."""
        deadline_s = time.monotonic() + wait_s_max
        unsent = self.answers.flush(wait_s_max)
        return unsent + self.telemetry.flush(max(deadline_s - time.monotonic(), 0.0))

    def close(self) -> None:
        """Stop reading, and give up unsent records."""
        for reader in self._readers():
            reader.close()
        self.answers.close()
        self.telemetry.close()


def clients_at(brokers: Container[str], messages: Iterable[Message]) -> list[str]:
    """Return the clients that the register has at these brokers; skip and log records that do not decode.

    Memory grows with these alone, as other agents write any number of others.
    """
    clients: dict[str, None] = {}
    errors = 0
    for message in messages:
        name = (message.key() or b"").decode(errors="replace")
        clients.pop(name, None)
        if message.value() is None:
            continue
        try:
            if decode(message.value(), Client).home in brokers:
                clients[name] = None
        except UndecodableRecordError as error:
            errors += 1
            if is_logged(errors):
                log.warning(
                    "record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error), count=errors
                )
    return list(clients)
