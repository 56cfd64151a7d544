"""Read what brokers that are not members announce about themselves, from the topics of all agents, known or not.

In: Kafka, and the plan store, which knows which agent speaks for which broker. Out: announcements. One in the name of
another agent becomes a dead letter.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from regraft.controller.ports.kafka_links import CALL_S, TopicReader
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import names_found
from regraft.schemas.announcement import Announcement, announcement_fault
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import ANNOUNCEMENTS

SEARCH_S = 10.0  # Between two searches for topics of new agents: each asks Kafka for all its topics.


class AnnouncementReader(TopicReader[Announcement]):
    """A reader of announcements that finds the topics itself, because new agents are not configured."""

    def __init__(
        self, kafka: KafkaAccess, plans: KafkaPlanStore, since_ms: int, on_letter: Callable[[DeadLetter], None]
    ) -> None:
        super().__init__(kafka, {}, since_ms, on_letter, self._fault)
        self._plans = plans
        self._search_at_s = 0.0

    def poll(self) -> list[Announcement]:
        """Return new announcements; an agent's topic is read as soon as it exists."""
        if time.monotonic() >= self._search_at_s:
            self._search_at_s = time.monotonic() + SEARCH_S
            self.add_topics(dict.fromkeys(self._names(), Announcement))
        return super().poll()

    def start_over(self) -> None:
        """Search for the topics again: that of a removed agent must not block reading the others."""
        super().start_over()
        self.record_types, self._search_at_s = {}, 0.0

    def _names(self) -> list[str]:
        try:
            return names_found(self._consumer, ANNOUNCEMENTS, self._plans.topics.namespace, CALL_S)
        except KafkaException as error:
            self._report_fault(str(error))
            return []

    def _fault(self, name: str, announcement: Announcement) -> str:
        topics = self._plans.topics
        return announcement_fault(topics.namespace, name, announcement, topics.agent_of.get(announcement.broker))
