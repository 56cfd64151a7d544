"""Read the answers of all brokers from the topics of all agents, including those that appear while the controller runs.

In: Kafka, and the plan store, which knows which agent speaks for which broker. Out: answers. One in the name of another
agent's broker becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable

from regraft.controller.ports.kafka_links import TopicReader
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.schemas.command import CommandResult
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import RESULTS


class ResultReader(TopicReader[CommandResult]):
    """A reader of answers that follows the members."""

    def __init__(
        self, kafka: KafkaAccess, plans: KafkaPlanStore, since_ms: int, on_letter: Callable[[DeadLetter], None]
    ) -> None:
        super().__init__(
            kafka,
            dict.fromkeys(plans.topics.names(RESULTS), CommandResult),
            since_ms,
            on_letter,
            lambda name, result: plans.topics.fault(name, result.broker),
        )
        self._plans = plans

    def poll(self) -> list[CommandResult]:
        """Return new answers; an agent's topic is read as soon as it exists."""
        self.add_topics(dict.fromkeys(self._plans.topics.names(RESULTS), CommandResult))
        return super().poll()
