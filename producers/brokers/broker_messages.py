"""What brokers send each other, what clients ask of their home, and what a broker's core wants done.

Plain frozen values; nothing here travels over Kafka. Control messages carry the epoch whose tables they build.
Advertisements are known in all epochs; theirs says over which tree they are flooded.

``connection`` numbers the stays of a client: it may leave and come again under its name, at any broker, and each stay
has a higher number than those before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regraft.producers.brokers.chord_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    RingMessage,
)
from regraft.producers.brokers.match_content import Filter
from regraft.producers.brokers.scot_messages import ScotMessage
from regraft.schemas.command import CommandResult

UNSTAMPED_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Notification:
    """One published message; ``home`` is its publisher's, which stamps ``epoch`` (until then UNSTAMPED_EPOCH).

    On a ring ``from_rendezvous`` marks a copy on its way down the topic's tree, not up to the root. On a structured
    cyclic one ``vector`` has the clusters that the receiver must serve, ``is_detour`` a way other than the static.
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


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Install a subscription in the tables of ``epoch``, with the sender as the way to its home.

    ``epoch_issued_max`` is the newest epoch in which its home issued it; tables of later epochs are derived from this
    one, those up to it are built by their own messages.
    """

    epoch: int
    subscription: str
    home: str
    filter_: Filter
    epoch_issued_max: int


@dataclass(frozen=True, slots=True)
class SubscribeAck:
    """The subscription has reached every advertisement it meets beyond the sender."""

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
    """The publisher is gone; flooded over the tree of ``epoch``, behind its notifications."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class End:
    """No notification of ``epoch`` follows on this link: the marker of draining."""

    epoch: int


TreeMessage = Subscribe | SubscribeAck | Unsubscribe | UnsubscribeAck | Advertise | AdvertiseAck | Unadvertise | End
ControlMessage = TreeMessage | RingMessage | ScotMessage


@dataclass(frozen=True, slots=True)
class Bundle:
    """Control messages that one step of a broker sends over one link, in their order, as one message."""

    messages: tuple[ControlMessage, ...]


Message = Notification | ControlMessage | Bundle


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A local client wants what the filter describes; ``subscription`` is never used again."""

    subscription: str
    client: str
    filter_: Filter
    connection: int = 0


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A local client has ended a subscription: what was published before is still owed.

    Only a comparison of two machines' clocks could separate that from what is published while the end is on its way to
    the publishers; so that may be handed over, too.
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
    """A local publisher has handed this home all that it will: what follows goes to its next home."""

    publisher: str
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ArriveRequest:
    """A subscription that a plan moves comes to its next home, which issues it in the tables of ``epoch`` alone."""

    epoch: int
    subscription: str
    client: str
    filter_: Filter
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ReadyRequest:
    """The next home of a subscription has it in the tables of ``epoch``, on all brokers."""

    epoch: int
    subscription: str


def stay_of(request: AdvertiseRequest | UnadvertiseRequest) -> tuple[str, int]:
    """Return the stay and the publisher that a request is about."""
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
    """Return how many control messages there are in one message; what is not a bundle counts as one."""
    return len(message.messages) if isinstance(message, Bundle) else 1


def bundled(effects: list[Effect]) -> list[Effect]:
    """Return the effects with the control messages for each neighbour put together, as far as their order allows.

    Notifications stay as they are, and nothing overtakes another message of its link.
    """
    sends = [effect for effect in effects if isinstance(effect, Send)]
    if len(sends) == len({effect.peer for effect in sends}):
        return effects
    found: list[Effect | tuple[str, list[ControlMessage]]] = []
    growing: dict[str, list[ControlMessage]] = {}
    for effect in effects:
        if not isinstance(effect, Send) or isinstance(effect.message, Bundle):
            found.append(effect)
        elif isinstance(effect.message, Notification):
            growing.pop(effect.peer, None)
            found.append(effect)
        elif effect.peer in growing:
            growing[effect.peer].append(effect.message)
        else:
            growing[effect.peer] = [effect.message]
            found.append((effect.peer, growing[effect.peer]))
    return [_as_one(*each) if isinstance(each, tuple) else each for each in found]


def _as_one(peer: str, messages: list[ControlMessage]) -> Send:
    return Send(peer, messages[0] if len(messages) == 1 else Bundle(tuple(messages)))


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
    """The subscription has reached every publisher it meets: notifications published from now on are owed to it."""

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
    """The publisher must hand over nothing more here, confirm by a LeaveRequest, and continue at ``home_to``."""

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
    """The subscription is to come to ``home_to``, too, for ``epoch``, and to end at both until it is taken there."""

    subscription: str
    home_to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SubscriberAwaited:
    """This broker, the next home of the subscription, has it in the tables of ``epoch``: the old home is to know."""

    subscription: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SubscriberTaken:
    """This broker is the home of the subscription for all that is stamped ``epoch`` or later."""

    subscription: str
    epoch: int


@dataclass(frozen=True, slots=True)
class UserMoves:
    """The user is to attach to ``home_to``, too, for ``epoch``, and to ask and end at both until it is taken there."""

    user: str
    connection: int
    home_to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class UserStays:
    """The move was called off: the user's home is this broker as before."""

    user: str
    connection: int


@dataclass(frozen=True, slots=True)
class UserTaken:
    """This broker is the user's home from now on; it waits until the user says that it has heard so."""

    user: str


@dataclass(frozen=True, slots=True)
class UserDrained:
    """Nothing more will come here for a subscription that moved: the user may say so at its new home."""

    user: str
    subscription: str
    home_to: str


@dataclass(frozen=True, slots=True)
class ClientDropped:
    """A client's home has ended its stay: it was silent while others waited for it, or the broker is not a home now."""

    client: str
    connection: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The notification goes no further here, and why."""

    notification: Notification
    reason: str


ClientEffect = Confirmed | Cancelled | AdvertiseConfirmed | PublisherLeaves | PublisherTaken | ClientDropped
SubscriberEffect = SubscriberMoves | SubscriberAwaited | SubscriberTaken
UserEffect = UserMoves | UserStays | UserTaken | UserDrained
Effect = Send | Published | Deliver | Dropped | Answer | ClientEffect | SubscriberEffect | UserEffect
