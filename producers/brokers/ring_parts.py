"""What the parts of a ring broker ask of the parts above them.

Trees know nothing of publishers, publishers nothing of END, END nothing of users that move; each gets what it needs
through this protocol. :class:`producers.brokers.ring_routing.RingRouting` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from regraft.producers.brokers.broker_messages import Effect, Notification, SubscribeRequest
from regraft.producers.brokers.ring_messages import Register, RoutedMessage
from regraft.producers.brokers.ring_tables import RingPlanUnderWay, RingTables, TopicEntry, TopicSubscription
from regraft.producers.brokers.two_epochs import TwoEpochBroker

RingBroker = TwoEpochBroker[RingTables, RingPlanUnderWay]


class RingParts(Protocol):
    """The whole broker as its parts see it."""

    # --- messages on their way ---------------------------------------------------------------------------------------

    def route_onward(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, or accept it if this broker is the target."""
        ...

    def arrive(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Accept a message that has reached its target."""
        ...

    def pass_down(self, tables: RingTables, notification: Notification) -> list[Effect]:
        """Pass on a notification that has come to the rendezvous of its topic, or down from it."""
        ...

    # --- how the plan under way reacts --------------------------------------------------------------------------------

    def epochs_for(self, request: SubscribeRequest) -> tuple[int, list[RingTables]]:
        """Return the last epoch in which a new subscription is served here, and the epochs in which it is issued."""
        ...

    def on_issued(self, tables: RingTables, local: TopicSubscription) -> list[Effect]:
        """React to a subscription that has entered an epoch's tree."""
        ...

    def on_flushed(self, tables: RingTables, names: Iterable[str]) -> list[Effect]:
        """React to subscriptions that have received everything owed to them in an epoch."""
        ...

    def on_joined(self, tables: RingTables, topic: str, source: str) -> list[Effect]:
        """React to a child that has joined a topic's tree."""
        ...

    def passes_end(self, tables: RingTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if this broker passes END of a topic on to a child in this epoch."""
        ...

    def on_registered(self, tables: RingTables, message: Register) -> list[Effect]:
        """React to a publisher that has registered at its rendezvous."""
        ...

    def retire(self, gone: RingTables) -> None:
        """Note that an epoch is retired here, though messages of it may still be in transit."""
        ...
