"""The interface of a broker's protocol core to its driver: the emulator, exhaustive tests or a node on a network.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. A core owns
no queue, no link and no clock. It requires that messages of one link arrive in the order they were sent, and that none
is lost. :mod:`producers.brokers.broker_cores` chooses the core for a kind of overlay.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from regraft.producers.brokers.broker_messages import ClientRequest, Effect, Message, Notification
from regraft.schemas.command import Command

# Why a notification is dropped.
HOLD_OVERFLOW = "hold_overflow"
EPOCH_UNKNOWN = "epoch_unknown"  # The notification's epoch is retired here, or was never known.
OUTSIDE = "outside"  # The broker is not part of the notification's overlay.
BROKER_DIED = "broker_died"  # The notification's path crosses a dead broker.
FROM_THE_DEAD = "from_the_dead"  # The sender's life in that epoch is over.


class ProtocolError(RuntimeError):
    """A message that the protocol rules out: links lost or reordered something, or a broker is faulty."""


class BrokerPhase(StrEnum):
    """A broker's phase in a transition."""

    STEADY = "steady"
    PREPARING = "preparing"
    PREPARED = "prepared"
    DRAINING = "draining"
    DRAINED = "drained"


class BrokerProtocol(Protocol):
    """The protocol state of one broker. Deterministic: equal inputs give equal effects in equal order.

    ``boot_ms`` is when it began, ``epoch`` the one it stamps. Counted since boot: ``control_messages_sent`` to
    neighbours, and ``held_count_max``, the most deliveries held back at one time.
    """

    boot_ms: int

    @property
    def broker(self) -> str:
        """The broker's name."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch that it stamps."""
        ...

    @property
    def control_messages_sent(self) -> int:
        """Number of messages sent to neighbours since boot, except notifications."""
        ...

    @property
    def held_count_max(self) -> int:
        """The most deliveries held back at one time since boot."""
        ...

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Accept the initial configuration as the one that a plan led to, in this or an earlier term.

        From then on the core answers for that plan as if it had executed it, and obeys no leader of a lower term.
        """
        ...

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Process one message and return the effects, in order. ``source`` is a neighbour, or None for a local sender.

        Raises ProtocolError if the message is impossible.
        """
        ...

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Note that a neighbour is gone for good, after everything it had sent; return the effects."""
        ...

    @property
    def phase(self) -> BrokerPhase:
        """The phase of this broker in a transition."""
        ...

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        ...

    @property
    def takes_clients(self) -> bool:
        """Whether clients may connect: the broker is in the overlay of every live epoch."""
        ...

    @property
    def held_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back for the plan under way."""
        ...

    @property
    def covered_forwards(self) -> int:
        """Number of subscriptions sent to a neighbour that already had a wider one from here."""
        ...

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but may still be owed something."""
        ...
