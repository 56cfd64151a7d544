"""What a broker reports: its phase in a transition, why it drops a notification, that a message is impossible."""

from __future__ import annotations

from enum import StrEnum

NOT_ADVERTISED = "publisher_not_advertised"  # At this broker: the publisher or its home has ended its stay.
HOLD_OVERFLOW = "hold_overflow"
EPOCH_UNKNOWN = "epoch_unknown"  # The notification's epoch is retired here, or was never known.
OUTSIDE = "outside"  # The broker is not part of the notification's overlay.
BROKER_DIED = "broker_died"  # The notification's path crosses a dead broker.
AGENT_DIED = "agent_died"  # Its publisher or subscriber is beside an agent that died.
FROM_THE_DEAD = "from_the_dead"  # The sender's incarnation in that epoch is over.


class ProtocolError(RuntimeError):
    """A message that the protocol rules out: links lost or reordered something, or a broker is faulty."""


class BrokerPhase(StrEnum):
    """A broker's phase in a transition."""

    STEADY = "steady"
    PREPARING = "preparing"
    PREPARED = "prepared"
    DRAINING = "draining"
    DRAINED = "drained"
