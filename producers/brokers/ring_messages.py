"""Messages between brokers of a Chord ring, requests of users to their homes there, and effects for users.

Plain frozen values; nothing here travels over Kafka. All belong to an epoch. Messages with a ``target`` are routed to
that broker by greedy lookup; the others go to a neighbour in a topic's tree.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Join:
    """Child to parent: forward the topic's notifications to me.

    ``issued_max`` is the newest epoch that the child knew. In later epochs its place is derived from this one if its
    path from the rendezvous is the same; up to that epoch the child sends its own messages.
    """

    epoch: int
    topic: str
    issued_max: int


@dataclass(frozen=True, slots=True)
class JoinAck:
    """Parent to child: the path from the rendezvous to you is complete, also in epochs that derive it from this."""

    epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Child to parent: stop forwarding the topic's notifications to me; ``issued_max`` as in :class:`Join`."""

    epoch: int
    topic: str
    issued_max: int


@dataclass(frozen=True, slots=True)
class EndTopic:
    """Down the tree: no notification of the topic follows in this epoch."""

    epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class Register:
    """To the rendezvous: a publisher at ``home`` publishes on the topic."""

    epoch: int
    target: str
    topic: str
    publisher: str
    connection: int
    home: str


@dataclass(frozen=True, slots=True)
class RegisterAck:
    """To a publisher's home: its rendezvous knows it."""

    epoch: int
    target: str
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class Unregister:
    """To the rendezvous, behind the publisher's last notification of this epoch: it has left.

    ``issued_max`` is the newest epoch that its home knew. Up to it the home sends one message in each epoch, behind
    what was published there; a later epoch derives the end from this one.
    """

    epoch: int
    target: str
    topic: str
    publisher: str
    connection: int
    issued_max: int


@dataclass(frozen=True, slots=True)
class EndPublisher:
    """To the rendezvous, behind the publisher's last notification of this epoch."""

    epoch: int
    target: str
    topic: str
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class AskEndTopic:
    """Child to parent, in the tree of the epoch before: notify me when no notification of the topic follows there."""

    epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class AskEndPublisher:
    """From the rendezvous to a publisher's home: notify me when the publisher sends no more in the epoch before."""

    epoch: int
    target: str
    topic: str
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class HandedOver:
    """From the old home of a user that has moved: the user has got all that this home had for it."""

    epoch: int
    target: str
    user: str


@dataclass(frozen=True, slots=True)
class AskFlush:
    """To the rendezvous: notify me when everything published on the topic so far has reached me."""

    epoch: int
    target: str
    topic: str
    asker: str


@dataclass(frozen=True, slots=True)
class Probe:
    """From the rendezvous to a publisher's home: answer behind all that the publisher has published."""

    epoch: int
    target: str
    topic: str
    publisher: str
    asker: str


@dataclass(frozen=True, slots=True)
class ProbeBack:
    """Back to the rendezvous, behind the publisher's notifications."""

    epoch: int
    target: str
    topic: str
    publisher: str
    asker: str


@dataclass(frozen=True, slots=True)
class GrantFlush:
    """From the rendezvous down to the broker that asked, behind the topic's notifications: all of them have come."""

    epoch: int
    target: str
    topic: str


@dataclass(frozen=True, slots=True)
class NotComing:
    """From the old home of a user that was to move: it is not here (any more), do not wait for it."""

    epoch: int
    target: str
    user: str


@dataclass(frozen=True, slots=True)
class EndBehind:
    """Along the paths that led over a dead broker: nothing more that has crossed it follows in this epoch."""

    epoch: int
    lost: str


@dataclass(frozen=True, slots=True)
class UserMoves:
    """The user must attach to ``home_to`` as well, for ``epoch``, and send requests to both until it is taken there."""

    user: str
    connection: int
    home_to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class UserStays:
    """The move was aborted: this broker remains the user's home."""

    user: str
    connection: int


@dataclass(frozen=True, slots=True)
class UserTaken:
    """This broker is the user's home from now on; it waits for the user to acknowledge that."""

    user: str


@dataclass(frozen=True, slots=True)
class UserDrained:
    """Nothing more will come here for a subscription that moved: the user may report that to its new home."""

    user: str
    subscription: str
    home_to: str


TopicMessage = Join | JoinAck | Leave | EndTopic | AskEndTopic | EndBehind
PublisherMessage = Register | RegisterAck | Unregister | EndPublisher | AskEndPublisher
FlushMessage = AskFlush | Probe | ProbeBack | GrantFlush
RoutedMessage = PublisherMessage | FlushMessage | NotComing | HandedOver
RingMessage = TopicMessage | RoutedMessage


@dataclass(frozen=True, slots=True)
class MovedSubscription:
    """One subscription that a user also has at its old home."""

    subscription: str
    topic: str


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """A user to be moved attaches to its next home for ``epoch``, with its subscriptions, then with each new one."""

    epoch: int
    user: str
    connection: int
    subscriptions: tuple[MovedSubscription, ...]


@dataclass(frozen=True, slots=True)
class MoveAckRequest:
    """A user acknowledges that it is to move, or, at its next home, that it has moved; so it is alive.

    Once it has moved, its requests go to the next home alone.
    """

    user: str
    connection: int


@dataclass(frozen=True, slots=True)
class DrainedRequest:
    """A user that has moved: its old home has handed over all of this subscription."""

    subscription: str


@dataclass(frozen=True, slots=True)
class GoneRequest:
    """A user has disconnected, from both homes if it has two; its subscriptions have been cancelled one by one."""

    user: str
    connection: int


UserEffect = UserMoves | UserStays | UserTaken | UserDrained
