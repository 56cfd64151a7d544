"""Hand to the clients what brokers say of plans that move them.

In: one effect of a broker's core. Out: a call of the subscribers of a tree or the users of a ring.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import (
    SubscriberAwaited,
    SubscriberEffect,
    SubscriberMoves,
    SubscriberTaken,
    UserDrained,
    UserEffect,
    UserMoves,
    UserStays,
    UserTaken,
)
from regraft.producers.emulator.subscriber_clients import SubscriberClients
from regraft.producers.emulator.user_clients import UserClients


def tell_move(
    effect: SubscriberEffect | UserEffect, broker: str, subscribers: SubscriberClients, users: UserClients
) -> None:
    """Tell the client that an effect of a broker is about."""
    match effect:
        case SubscriberMoves(subscription, home_to, epoch):
            subscribers.move(subscription, home_to, epoch)
        case SubscriberAwaited(subscription, epoch):
            subscribers.expect(subscription, epoch)
        case SubscriberTaken(subscription, epoch):
            subscribers.take(subscription, broker, epoch)
        case UserMoves(user, connection, home_to, epoch):
            users.move(user, connection, home_to, epoch)
        case UserStays(user, connection):
            users.stay(user, connection)
        case UserTaken(user):
            users.take(user, broker)
        case UserDrained(user, subscription, home_to):
            users.drain(user, subscription, home_to)
