"""What the parts of a broker of a ring ask of those above them.

Trees know nothing of publishers, publishers nothing of END, END nothing of users that move; each gets what it needs
through this protocol. :class:`producers.brokers.chord_routing.RingRouting` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from regraft.producers.brokers.broker_messages import Effect, Notification, SubscribeRequest
from regraft.producers.brokers.chord_messages import Register, RoutedMessage
from regraft.producers.brokers.chord_tables import ChordTables, RingPlanUnderWay, TopicEntry, TopicSubscription
from regraft.producers.brokers.two_epochs import TwoEpochBroker

RingBroker = TwoEpochBroker[ChordTables, RingPlanUnderWay]


class RingParts(Protocol):
    """The whole broker as its parts see it."""

    # --- messages on their way ---------------------------------------------------------------------------------------

    def route_on(self, tables: ChordTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, or take it when this broker is it."""
        ...

    def arrive(self, tables: ChordTables, message: RoutedMessage) -> list[Effect]:
        """Take a message that has come to its target."""
        ...

    def pass_down(self, tables: ChordTables, notification: Notification) -> list[Effect]:
        """Pass on a notification that has come to the rendezvous of its topic, or down from it."""
        ...

    # --- what the plan under way makes of what happens ---------------------------------------------------------------

    def epochs_for(self, request: SubscribeRequest) -> tuple[int, list[ChordTables]]:
        """Return the last epoch in which a new subscription is served here, and the epochs in which it is issued."""
        ...

    def issued(self, tables: ChordTables, local: TopicSubscription) -> list[Effect]:
        """A subscription is in an epoch's tree."""
        ...

    def flushed(self, tables: ChordTables, names: Iterable[str]) -> list[Effect]:
        """All that these subscriptions were owed in an epoch has come."""
        ...

    def joined(self, tables: ChordTables, topic: str, source: str) -> list[Effect]:
        """A child has joined a topic's tree."""
        ...

    def passes_end(self, tables: ChordTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if a child is notified that a topic has ended in this epoch."""
        ...

    def registered(self, tables: ChordTables, message: Register) -> list[Effect]:
        """A publisher has come to its rendezvous."""
        ...

    def retire(self, gone: ChordTables) -> None:
        """An epoch is over here; something of it may still be under way."""
        ...
