"""Messages between brokers, requests of clients to their home, and effects that a broker's core asks for.

Plain frozen values, none for Kafka. A control message carries the epoch whose tables it builds, an advertisement, known
in all epochs, that of the tree over which it is flooded. ``connection`` numbers the stays of a client: it may leave and
return under its name, at any broker, and each stay has a higher number than the previous ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from regraft.producers.brokers.match_content import Filter
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    RingMessage,
    UserEffect,
)
from regraft.schemas.command import CommandResult

UNSTAMPED_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Notification:
    """One published message; ``home`` is its publisher's, which stamps ``epoch`` (until then UNSTAMPED_EPOCH).

    On a ring, ``from_rendezvous`` marks a copy that goes down the topic's tree, not up to the root. On a structured
    cyclic overlay, ``vector`` holds the clusters that the receiver must serve, ``is_detour`` marks a non-static path.
    """

    publisher: str
    sequence: int
    publish_ms: float
    home: str
    epoch: int
    content: Mapping[str, float | str]
    size_bytes: int
    from_rendezvous: bool = False
    vector: int = 0
    is_detour: bool = False

    def routed(self, vector: int, *, is_detour: bool) -> Self:
        """Return the copy for a receiver that must serve these clusters."""
        return replace(self, vector=vector, is_detour=is_detour)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Install a subscription in the tables of ``epoch``; the path to its home leads over the sender.

    ``epoch_issued_max`` is the newest epoch in which its home issued it. Tables of later epochs are derived from this
    one; up to that epoch, each has its own messages.
    """

    epoch: int
    subscription: str
    home: str
    filter_: Filter
    epoch_issued_max: int


@dataclass(frozen=True, slots=True)
class SubscribeAck:
    """The subscription has reached every matching advertisement beyond the sender."""

    epoch: int
    subscription: str


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Stop forwarding to this subscription, in the tables of ``epoch``."""

    epoch: int
    subscription: str


@dataclass(frozen=True, slots=True)
class UnsubscribeAck:
    """Nothing more will come for the subscription from beyond the sender."""

    epoch: int
    subscription: str


@dataclass(frozen=True, slots=True)
class Advertise:
    """A publisher at ``home`` will publish what the filter describes; flooded over the tree of ``epoch``."""

    epoch: int
    publisher: str
    connection: int
    home: str
    filter_: Filter


@dataclass(frozen=True, slots=True)
class AdvertiseAck:
    """All brokers beyond the sender know the advertisement and have sent the subscriptions it attracts."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class Unadvertise:
    """The publisher's stay has ended; flooded over the tree of ``epoch``, behind its notifications."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class End:
    """No notification of ``epoch`` follows on this link: the marker of draining."""

    epoch: int


@dataclass(frozen=True, slots=True)
class VectorBit:
    """Whether the sender's cluster now wants what a publisher at the receiver publishes (CIB_SET)."""

    epoch: int
    publisher: str
    connection: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class VectorAck:
    """The bit is set as requested and applies to everything published from now on."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class PublisherComes:
    """A publisher's home will be ``home`` in ``epoch``; without a filter, it will not come or has ended.

    Sent from its home in the epoch before, hop by hop over the overlay of ``epoch_of_path``.
    """

    epoch: int
    publisher: str
    connection: int
    home: str
    filter_: Filter | None
    epoch_of_path: int


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """No notification of ``epoch`` with at most ``crossings`` crossings between clusters follows on this link."""

    epoch: int
    crossings: int


TreeMessage = Subscribe | SubscribeAck | Unsubscribe | UnsubscribeAck | Advertise | AdvertiseAck | Unadvertise | End
ScotMessage = VectorBit | VectorAck | PublisherComes | FlowEnd
ControlMessage = TreeMessage | RingMessage | ScotMessage


@dataclass(frozen=True, slots=True)
class Bundle:
    """Control messages that one step of a broker sends over one link, in order, as one message."""

    messages: tuple[ControlMessage, ...]


Message = Notification | ControlMessage | Bundle


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A local client subscribes to what the filter describes; the name ``subscription`` is never reused."""

    subscription: str
    client: str
    filter_: Filter
    connection: int = 0


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A local client has ended a subscription; it is still owed what was published before.

    Notifications published while the cancellation is on its way to the publishers may be handed over too: only
    comparing the clocks of two machines could distinguish them.
    """

    subscription: str


@dataclass(frozen=True, slots=True)
class AdvertiseRequest:
    """A local client will publish what the filter describes."""

    publisher: str
    filter_: Filter
    connection: int = 0


@dataclass(frozen=True, slots=True)
class UnadvertiseRequest:
    """A local publisher has stopped."""

    publisher: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A local publisher has handed this home its last notification: later ones go to its next home."""

    publisher: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ArriveRequest:
    """A subscription that a plan moves arrives at its next home, which issues it in the tables of ``epoch`` alone."""

    epoch: int
    subscription: str
    client: str
    filter_: Filter
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ReadyRequest:
    """The next home has issued the subscription in the tables of ``epoch``, on all brokers."""

    epoch: int
    subscription: str


def stay_of(request: AdvertiseRequest | UnadvertiseRequest) -> tuple[str, int]:
    """Return the stay that a request is about: the publisher and the number of its connection."""
    return request.publisher, request.connection


TreeRequest = (
    SubscribeRequest
    | CancelRequest
    | AdvertiseRequest
    | UnadvertiseRequest
    | LeaveRequest
    | ArriveRequest
    | ReadyRequest
)
ClientRequest = TreeRequest | AttachRequest | MoveAckRequest | DrainedRequest | GoneRequest


@dataclass(frozen=True, slots=True)
class Send:
    """Put the message on the link to ``peer``."""

    peer: str
    message: Message


def control_messages_in(message: object) -> int:
    """Return how many control messages one message contains; anything but a bundle counts as one."""
    return len(message.messages) if isinstance(message, Bundle) else 1


@dataclass(frozen=True, slots=True)
class Published:
    """The notification has been stamped at its publisher's home."""

    notification: Notification


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the notification to these local subscriptions, once each."""

    notification: Notification
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Send the result to the controller."""

    result: CommandResult


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The subscription has reached every matching publisher: notifications published from now on are owed to it."""

    subscription: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The subscription is gone from every broker."""

    subscription: str


@dataclass(frozen=True, slots=True)
class AdvertiseConfirmed:
    """All brokers know the publisher: it may publish."""

    publisher: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class PublisherLeaves:
    """The publisher must hand over nothing more here, confirm with a LeaveRequest, and continue at ``home_to``."""

    publisher: str
    home_to: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class PublisherTaken:
    """This broker is the publisher's home from now on: it may publish here as soon as it has left the old one."""

    publisher: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberMoves:
    """The client must bring the subscription to ``home_to`` too, for ``epoch``; until taken, it cancels at both."""

    subscription: str
    home_to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SubscriberAwaited:
    """This broker, the next home, has the subscription in ``epoch``'s tables; the client informs the old home."""

    subscription: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SubscriberTaken:
    """This broker is the home of the subscription for everything stamped ``epoch`` or later."""

    subscription: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ClientDropped:
    """This broker is not the client's home now; a stay that ``is_over`` has ended everywhere: others waited for it."""

    client: str
    connection: int
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The notification goes no further, for this reason."""

    notification: Notification
    reason: str


ClientEffect = Confirmed | Cancelled | AdvertiseConfirmed | PublisherLeaves | PublisherTaken | ClientDropped
SubscriberEffect = SubscriberMoves | SubscriberAwaited | SubscriberTaken
Effect = Send | Published | Deliver | Dropped | Answer | ClientEffect | SubscriberEffect | UserEffect
