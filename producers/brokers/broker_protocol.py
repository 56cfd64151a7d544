"""What a broker's protocol core is to its driver: the emulator, tests that try every order, a node on a network.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. A core owns
no queue, no link and no clock. What it asks of its surroundings: messages of one link arrive in the order they were
sent, and nothing is lost. Which core a kind of overlay needs is in :mod:`producers.brokers.broker_cores`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from regraft.producers.brokers.broker_messages import ClientRequest, Effect, Message, Notification
from regraft.schemas.command import Command


class BrokerPhase(StrEnum):
    """Where a broker is in a transition."""

    STEADY = "steady"
    PREPARING = "preparing"
    PREPARED = "prepared"
    DRAINING = "draining"
    DRAINED = "drained"


class BrokerProtocol(Protocol):
    """The protocol state of one broker. Deterministic: equal inputs give equal effects in equal order.

    ``boot_ms`` is when it began. ``epoch`` is what it stamps. Since boot are counted ``control_messages_sent`` to
    neighbours and ``held_count_max``, how many deliveries were held back at a time.
    """

    broker: str
    boot_ms: int
    epoch: int
    control_messages_sent: int
    held_count_max: int

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Accept the configuration that it begins with as the one that a plan led to, in this or an earlier term.

        It then answers for that plan as if it had carried it out, and obeys no leader of a lower term.
        """
        ...

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Process one message and return what to do, in order. ``source`` is a neighbour or None for our own.

        Raises ProtocolError for a message that cannot be.
        """
        ...

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Note that a neighbour is gone for good, after all that it had sent; return what to do."""
        ...

    @property
    def phase(self) -> BrokerPhase:
        """Where this broker is in a transition."""
        ...

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        ...

    @property
    def takes_clients(self) -> bool:
        """May clients come: is this broker in the overlay of every live epoch?"""
        ...

    @property
    def held_notifications(self) -> list[Notification]:
        """What this broker holds back for the plan under way."""
        ...

    @property
    def covered_forwards(self) -> int:
        """How many subscriptions were sent to a neighbour that had a wider one from here."""
        ...

    @property
    def ended_count(self) -> int:
        """How many subscriptions have ended and may still be owed something."""
        ...
