"""Prove that a consumer reads: ask Kafka where partitions end, and see whether the consumer gets there.

A consumer that gets nothing looks like one for which there is nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

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
