"""Prove that a consumer reads: ask Kafka where partitions end, and see whether the consumer gets there.

A consumer that gets nothing looks like one for which there is nothing, so commands could be lost in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import OnError, Option, consume, open_consumer, report_error

CALL_S = 2.0  # Longest wait for one answer from Kafka.
MISSES_MAX = 3  # Rounds: a backlog, or a transaction that is being aborted, is not a stall.
Place = tuple[str, int]


class ReadingProof:
    """Asks about one partition after another; each question waits at most ``answer_s_max``."""

    def __init__(self, consumer: Consumer, answer_s_max: float) -> None:
        self._consumer, self._answer_s_max = consumer, answer_s_max
        self._goals: dict[Place, int] = {}
        self._misses: Counter[Place] = Counter()
        self._stalled: set[Place] = set()
        self._asked = 0

    def ask(self, reached: Mapping[Place, int]) -> bool:
        """Ask where the next partition ends; return False if Kafka does not answer.

        ``reached`` has the next offset of each partition, after transaction markers as well.
        """
        places = sorted(reached)
        if not places:
            return False
        place = places[self._asked % len(places)]
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=self._answer_s_max)
        except KafkaException:
            return False
        self._asked += 1
        if reached[place] < min(self._goals.get(place, 0), end):  # A recreated topic ends before an earlier end.
            self._misses[place] += 1
            if self._misses[place] >= MISSES_MAX:
                self._stalled.add(place)
        else:
            self._misses[place], self._goals[place] = 0, end
            self._stalled.discard(place)
        return True

    def read_with(self, consumer: Consumer) -> None:
        """Ask for another consumer from now on; what stalled counts as stalled until this one has got there."""
        self._consumer = consumer
        self._misses.clear()

    @property
    def stalled(self) -> set[str]:
        """Return the topics in which an end that Kafka named was not reached in MISSES_MAX rounds, and is not yet."""
        return {topic for topic, _ in self._stalled}

    @property
    def needs_another_consumer(self) -> bool:
        """Return True if this consumer has had MISSES_MAX rounds without getting to an end."""
        return any(count >= MISSES_MAX for count in self._misses.values())


class ProvedReader:
    """Reads partitions, each from an offset on; ``options`` are further ones of the consumer."""

    def __init__(self, kafka: KafkaAccess, options: Mapping[str, Option], on_error: OnError | None = None) -> None:
        self._kafka, self._options, self._on_kafka_error = kafka, {"enable.partition.eof": True, **options}, on_error
        self._reached: dict[Place, int] = {}  # The next offset of each partition, after transaction markers as well.
        self._consumer = self._open()
        self._proof = ReadingProof(self._consumer, CALL_S)

    def _open(self) -> Consumer:
        return open_consumer(self._kafka, self._options, on_error=self._on_kafka_error)

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._reached.items()])

    def _arrived(self, count_max: int) -> Iterator[Message]:
        """Yield the messages that have arrived."""
        for message in consume(self._consumer, count_max, self._kafka.client_id):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                report_error(self._kafka.client_id, error)
                continue
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            self._reached[place] = max(offset + (error is None), self._reached.get(place, 0))
            if error is None:
                yield message

    def _is_answered(self) -> bool:
        return self._proof.ask({place: max(offset, 0) for place, offset in dict(self._reached).items()})

    def prove(self) -> bool:
        """Ask Kafka where the next partition ends; return False if records that it has do not arrive.

        A missing topic, or a Kafka that does not answer, shows nothing. Takes up to ``CALL_S``, so call it from another
        thread than the one that polls.
        """
        self._is_answered()
        return not self._proof.stalled

    @property
    def is_stalled(self) -> bool:
        """Return True if records that Kafka has have not arrived with this consumer for some questions."""
        return self._proof.needs_another_consumer

    def reopen(self) -> None:
        """Read on with another consumer, from where this one got to."""
        self._consumer.close()
        self._consumer = self._open()
        self._proof.read_with(self._consumer)
        self._assign()

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
