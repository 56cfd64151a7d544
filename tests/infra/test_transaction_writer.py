"""The writer of transactions where Kafka is slow to answer: it always finds out, and never waits in vain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from regraft.infra.kafka import transaction_writer
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.transaction_writer import TransactionWriter, WriterLostError

SLOW = KafkaError(KafkaError._TIMED_OUT, "retry call to resume", retriable=True)
BROKEN = KafkaError(KafkaError.INVALID_TXN_STATE, "the transaction is lost", txn_requires_abort=True)
CONFLICT = KafkaError(KafkaError._CONFLICT, "abort_transaction is in progress", retriable=True)


class SlowProducer:
    """A producer whose calls fail as planned; like librdkafka, it refuses a commit while an abort is under way."""

    def __init__(self, commits: list[KafkaError | None], aborts: list[KafkaError | None]) -> None:
        self._plans = {"commit": commits, "abort": aborts}
        self._is_aborting = False
        self.calls: list[str] = []

    def init_transactions(self, _s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def commit_transaction(self, _s: float) -> None:
        if self._is_aborting:
            raise KafkaException(CONFLICT)
        self._next("commit")

    def abort_transaction(self, _s: float) -> None:
        self._is_aborting = True
        self._next("abort")
        self._is_aborting = False

    def _next(self, call: str) -> None:
        self.calls.append(call)
        plan = self._plans[call]
        if plan and (error := plan.pop(0)) is not None:
            raise KafkaException(error)


def writer_of(monkeypatch: pytest.MonkeyPatch, producer: SlowProducer) -> TransactionWriter:
    monkeypatch.setattr(transaction_writer, "open_transactional_producer", lambda *_: producer)
    writer = TransactionWriter(KafkaAccess("127.0.0.1:1"), "writer")
    assert writer.begin()
    return writer


def commit_until_stored(writer: TransactionWriter) -> int:
    """Return how many calls it took; fail beyond a few."""
    filled: list[Any] = []
    for count in range(1, 20):
        if writer.commit(filled.append):
            return count
    pytest.fail("never stored")


def test_an_abort_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit tried meanwhile would be refused until the end of time, and the leader with it."""
    producer = SlowProducer(commits=[SLOW, BROKEN], aborts=[SLOW, SLOW])
    assert commit_until_stored(writer_of(monkeypatch, producer)) == 5
    assert producer.calls == ["begin", "commit", "commit", "abort", "abort", "abort", "begin", "commit"]


def test_a_writer_that_cannot_abort_for_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage in which its abort had no answer, librdkafka may hang in the next transaction forever."""
    clock_s = [0.0]
    monkeypatch.setattr(transaction_writer, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    writer = writer_of(monkeypatch, SlowProducer(commits=[BROKEN], aborts=[SLOW, SLOW, SLOW]))
    clock_s[0] = 1_000.0  # How long ago it last wrote is no matter.
    assert not writer.commit(lambda _: None)
    assert not writer.commit(lambda _: None)
    clock_s[0] += transaction_writer.TRANSACTION_MS / 1_000 - 0.1
    assert not writer.commit(lambda _: None)
    clock_s[0] += 0.2
    with pytest.raises(WriterLostError) as lost:
        writer.commit(lambda _: None)
    assert not lost.value.is_taken_over


def test_a_commit_that_takes_long_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same transaction: it is not filled again."""
    producer = SlowProducer(commits=[SLOW, SLOW], aborts=[])
    assert commit_until_stored(writer_of(monkeypatch, producer)) == 3
    assert producer.calls == ["begin", "commit", "commit", "commit"]
