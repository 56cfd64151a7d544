"""Pass on to clients what brokers report about plans that move them.

In: one effect of a broker's core. Out: a call of the subscribers of a tree or the users of a ring. Deliveries to
subscribers that a plan has moved are reported separately from then on.
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
from regraft.producers.emulator.emulated_parts import EmulatedBroker
from regraft.producers.emulator.subscriber_clients import SubscriberClients
from regraft.producers.emulator.user_clients import UserClients
from regraft.schemas.part_blocks import number_of_moved


def notify_mover(
    effect: SubscriberEffect | UserEffect,
    broker: EmulatedBroker,
    subscribers: SubscriberClients,
    users: UserClients,
    now_ms: float,
) -> None:
    """Notify the client that an effect of a broker concerns."""
    match effect:
        case SubscriberMoves(subscription, home_to, epoch):
            subscribers.move(subscription, home_to, epoch)
        case SubscriberAwaited(subscription, epoch):
            subscribers.expect(subscription, epoch)
        case SubscriberTaken(subscription, epoch):
            home_from = subscribers.take(subscription, broker.name, epoch)
            if home_from:
                broker.cells.report_separately(subscription, number_of_moved(epoch, home_from), now_ms)
        case UserMoves(user, connection, home_to, epoch):
            users.move(user, connection, home_to, epoch)
        case UserStays(user, connection):
            users.stay(user, connection)
        case UserTaken(user):
            users.take(user, broker.name)
        case UserDrained(user, subscription, home_to):
            users.drain(user, subscription, home_to)
