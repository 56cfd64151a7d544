"""Pass on to clients what brokers hand over, report about plans that move them, and about stays that have ended.

Deliveries to subscribers that a plan has moved are reported separately from then on.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import (
    ClientDropped,
    Deliver,
    SubscriberAwaited,
    SubscriberEffect,
    SubscriberMoves,
    SubscriberTaken,
)
from regraft.producers.brokers.ring_messages import UserDrained, UserEffect, UserMoves, UserStays, UserTaken
from regraft.producers.emulator.emulated_broker import EmulatedBroker
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.publisher_clients import PublisherClients
from regraft.producers.emulator.subscriber_clients import HomesInTurn, SubscriberClients
from regraft.producers.emulator.user_clients import UserClients
from regraft.schemas.part_blocks import number_of_moved


def hand_over(delivery: Deliver, broker: EmulatedBroker, turns: HomesInTurn, ledger: Ledger, now_ms: float) -> None:
    """Hand a notification to the clients of its subscriptions, as far as they take anything from this broker."""
    broker.cells.note_delivered(delivery.notification, len(delivery.subscriptions))
    broker.cells.note_parts(delivery.notification, delivery.subscriptions)
    for subscription in delivery.subscriptions:
        if turns.takes(subscription, broker.name):
            ledger.deliver(delivery.notification, subscription, now_ms)


def drop_client(
    effect: ClientDropped,
    broker: EmulatedBroker,
    publishers: PublisherClients,
    subscribers: SubscriberClients,
    users: UserClients,
) -> bool:
    """Let the client at this broker that an effect concerns end its stay; return False if there is none."""
    broker.has_rejected = not broker.core.takes_clients
    client, connection, is_over, by = effect.client, effect.connection, effect.is_over, broker.name
    if publishers.drop(client, connection, may_return=not broker.has_rejected, by=by, is_over=is_over):
        return True
    return users.drop(client, connection, by, is_over=is_over) or subscribers.drop(client, by)


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
