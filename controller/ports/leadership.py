"""Leader election by Kafka alone: the leader is the member of one consumer group that holds the topic of terms.

In: membership of the group, what this controller decides on. Out: a term with the store that writes in it, or the
present leader. The order matters:
fence the earlier leader, then read the plans to their end, then write the next term, then act. Reading first would miss
what the earlier leader stored last. What a leader does belongs to the control loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from regraft.controller.control_ports import DeposedError
from regraft.controller.ports.leader_basis import LeaderBasis
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import TopicReader
from regraft.infra.kafka.decode_strictly import decode_strictly
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.process.stack_error import StackError
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.topics import LEADER, topic_name

log = structlog.get_logger(__name__)

HEARTBEATS = 8  # Heartbeats per session: some may be late without ending it.
YIELD_SESSIONS = 3  # Long enough for another candidate to be chosen; if there is none, this one leads again.
HANG_MS = 120_000  # A leader whose loop makes no step for this long loses the lead, alive or not.
RECORDS_PER_POLL_MAX = 100


class SessionRefusedError(StackError):
    """Kafka does not allow sessions of this length."""


@dataclass(frozen=True, slots=True)
class HeldTerm:
    """A term and the store that writes in it, until another controller takes over."""

    term: LeaderTerm
    plans: KafkaPlanStore


class Leadership:
    """One candidate. After ``session_ms`` without a sign of the leader, another may take over.

    ``name`` identifies the process to people, ``agent_of`` the agent of each broker, for the store. ``basis_of``
    returns what this controller decides on; while that differs from what the leader before decided on, it stays out of
    the group, so that another may lead, and ``objection`` says why. None adopts that of the leader before, with
    ``inventory`` instead of its inventory unless that is empty.
    """

    def __init__(
        self,
        kafka: KafkaAccess,
        namespace: str,
        name: str,
        session_ms: int,
        agent_of: Mapping[str, str] | None = None,
        basis_of: Callable[[], LeaderBasis] | None = None,
        inventory: str = "",
    ) -> None:
        self._kafka, self._namespace, self._name, self._session_ms = kafka, namespace, name, session_ms
        self._agent_of = agent_of
        self._topic = topic_name(LEADER, namespace)
        self._basis_of, self._inventory = basis_of, inventory
        self._known = LeaderBasis()  # That of the leader before.
        self._is_chosen = self._is_in_group = False
        self.objection = ""
        self._yields_until_s, self._yields_because = 0.0, ""
        self._store: KafkaPlanStore | None = None
        self._term_min = 1
        self._terms = TopicReader(kafka, {self._topic: LeaderTerm}, 0, _drop)
        self.newest = LeaderTerm(0, "", 0)  # Empty while no leader is known.
        self._consumer = open_consumer(
            kafka,
            {
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": session_ms // HEARTBEATS,
                "max.poll.interval.ms": max(HANG_MS, session_ms),
                "socket.timeout.ms": max(session_ms, 1_000),
                "partition.assignment.strategy": "cooperative-sticky",  # Joining does not take the lead away.
                "topic.metadata.refresh.interval.ms": 5_000,  # The topic may be created later.
            },
            group=self._topic,
        )

    def poll(self) -> None:
        """Learn who leads, and take part in the group unless there is an objection; does not wait.

        Raises SessionRefusedError.
        """
        for message in self._terms.messages(RECORDS_PER_POLL_MAX):
            term = self._terms.decoded(message)
            if term is not None and term.term >= self.newest.term:
                self._note(term, LeaderBasis.in_headers(message))
        if not self._is_chosen:
            self._enter_or_leave()
        try:
            messages = self._consumer.consume(RECORDS_PER_POLL_MAX, timeout=0)
        except KafkaException as failure:
            log.warning("leadership_unknown", reason=str(failure))
            return
        for message in messages:
            if (error := message.error()) is not None:
                self._report(error)

    def _note(self, term: LeaderTerm, basis: LeaderBasis) -> None:
        self.newest, self._known = term, basis

    def _enter_or_leave(self) -> None:
        """Be a member of the group if this candidate may lead, as far as the terms read show."""
        self.objection = self._basis.objection(self._known, self.newest.leader) if self._basis_of else ""
        if not self.objection and time.monotonic() < self._yields_until_s:
            self.objection = self._yields_because
        if self.objection and self._is_in_group:
            self._consumer.unsubscribe()
            self._is_in_group = self._is_chosen = False
        elif not self.objection and not self._is_in_group and self._terms.has_read_all():
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            self._is_in_group = True

    @property
    def _basis(self) -> LeaderBasis:
        """What this candidate will decide on."""
        if self._basis_of is not None:
            return self._basis_of()
        return replace(self._known, inventory=self._inventory or self._known.inventory)

    @property
    def is_chosen(self) -> bool:
        """Return True if the group has chosen this candidate, as far as it knows; after a suspension it learns late."""
        return self._is_chosen

    def check(self) -> None:
        """Raise DeposedError if the group has lost this candidate, or chosen another."""
        self.poll()
        if not self._is_chosen:
            raise DeposedError("the controller group has lost this member, or elected another")

    def take_over(self, now_ms: int) -> HeldTerm | None:
        """Begin the next term; return None if that must be tried again, as while Kafka is unavailable.

        Raises UnreadableRecordError if plans or terms cannot be read.
        """
        if not self._is_chosen or not self._is_member():
            return None
        if self._store is None:
            self._store = KafkaPlanStore(self._kafka, self._namespace, self._agent_of)
        store = self._store
        try:
            if not store.begin():
                return None
            number = self._next_number(store)
            if number is None:
                return None
            term = LeaderTerm(number, self._name, now_ms)
            self._store = None  # The term may or may not be written: use nothing of it.
            basis = self._basis
            if store.claim(term, self._consumer.consumer_group_metadata(), basis.headers):
                self._note(term, basis)
                return HeldTerm(term, store)
        except DeposedError as error:
            log.info("term_not_started", reason=str(error))
        self._store = None
        store.close()
        return None

    def yield_lead(self, because: str) -> None:
        """Stay out of the group for some sessions, so that another candidate may lead if there is one."""
        self._yields_until_s = time.monotonic() + YIELD_SESSIONS * self._session_ms / 1000
        self._yields_because = because
        self._is_chosen = False

    def note_term(self, term: int) -> None:
        """Note a term that brokers obey: even if its record was lost, the next one is higher."""
        self._term_min = max(self._term_min, term + 1)

    def close(self) -> None:
        """Leave the group, so that another one takes over at once."""
        if self._store is not None:
            self._store.close()
        self._terms.close()
        self._consumer.close()

    def _next_number(self, store: KafkaPlanStore) -> int | None:
        """Return a number above all earlier terms, including those of plans; None if they could not be read.

        None as well if they show that this candidate must not lead: then it leaves the group.
        """
        plans = store.read_ahead()
        try:
            messages = read_to_end(self._kafka, self._topic)
        except KafkaException as error:
            log.warning("terms_not_read", reason=str(error))
            return None
        if plans is None or messages is None:
            return None
        records = [(decode_strictly(message, LeaderTerm), LeaderBasis.in_headers(message)) for message in messages]
        terms = [(term, basis) for term, basis in records if term is not None]
        if terms:
            self._note(*max(terms, key=lambda one: one[0].term))
        self._enter_or_leave()
        if self.objection:
            return None
        return max([self._term_min, *(term.term + 1 for term, _ in terms), *(plan.term + 1 for plan in plans)])

    def _is_member(self) -> bool:
        """Ask the group itself: the state of this process may be from before it was suspended."""
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, 0)], asynchronous=False)
        except KafkaException as error:
            log.info("leadership_not_confirmed", reason=str(error))
            return False
        return True

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_chosen = self._is_chosen or bool(partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_chosen = self._is_chosen and not partitions

    def _report(self, error: KafkaError) -> None:
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            raise SessionRefusedError(
                f"Kafka does not allow a session of {self._session_ms} ms: set controller.session_ms between its "
                "group.min.session.timeout.ms (6000 unless set) and group.max.session.timeout.ms."
            )
        log.warning("leadership_unknown", reason=error.str())


def _drop(_: DeadLetter) -> None:
    """Drop the letter: taking over reads the terms strictly."""
