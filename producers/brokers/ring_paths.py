"""Paths of topics on a Chord ring: which of them a plan changes, and so what may still come in the old epoch.

Queries only, over the state of one broker; each end of a path derives the answers by itself, from the rings of the live
epochs. :mod:`producers.brokers.ring_endings` sends END where a path changes.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import Deliver, Effect, Notification, Send
from regraft.producers.brokers.ring_messages import RoutedMessage
from regraft.producers.brokers.ring_tables import (
    FromPublisher,
    Registration,
    RetiredRing,
    RingPlanUnderWay,
    RingState,
    RingTables,
    TopicEntry,
)


class TopicPaths:
    """The paths of all topics in the live epochs of one broker, and in those retired lately."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self.broker = state.broker

    # --- which paths change ------------------------------------------------------------------------------------------

    def changes_rendezvous(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic has another rendezvous in the new epoch."""
        if under_way.is_ring_kept:
            return False
        old, new = self._state.tables[under_way.epoch_from], self._state.tables[under_way.epoch_to]
        root = old.rendezvous(topic)
        return root != new.rendezvous(topic) or root in new.lost

    def end_goes_to_all(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if END of a topic goes to its whole tree: most brokers need it, and asking doubles the cost."""
        if under_way.is_ring_kept:
            return False
        old, new = self._state.tables[under_way.epoch_from], self._state.tables[under_way.epoch_to]
        return self.changes_rendezvous(under_way, topic) or new.changes_most(old, old.rendezvous(topic))

    def is_rerouted(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic's notifications reach this broker over another path in the new epoch."""
        old, new = self._state.tables[under_way.epoch_from], self._state.tables[under_way.epoch_to]
        return not new.same_path(old, topic, self.broker)

    def is_publisher_rerouted(self, under_way: RingPlanUnderWay, topic: str, home: str) -> bool:
        """Return True if notifications published at ``home`` take another path to the rendezvous in the new epoch."""
        old, new = self._state.tables[under_way.epoch_from], self._state.tables[under_way.epoch_to]
        return self.changes_rendezvous(under_way, topic) or not new.same_route(old, home, old.rendezvous(topic))

    # --- what may still come in the old epoch ------------------------------------------------------------------------

    def passes_end(self, tables: RingTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if this broker passes END of a topic on to a child."""
        under_way = self._state.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return True
        return self.end_goes_to_all(under_way, entry.topic) or peer in under_way.end_children.get(entry.topic, ())

    def awaits_end(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if this broker waits for END of a topic."""
        return topic in under_way.awaited_ends or self.end_goes_to_all(under_way, topic)

    def is_over(self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration) -> bool:
        """Return True if nothing more of a publisher's stay in the old epoch comes here; each stay has its own END."""
        is_cut = self._state.tables[under_way.epoch_from].is_over_from(known.home)
        return is_cut or (topic, publisher, known.connection) in under_way.publishers_over

    def waits_at_root(self, topic: str, publisher: str) -> bool:
        """Return True if what a publisher sends in the new epoch may have overtaken what it sent in the old one.

        That is possible only if this broker is the topic's rendezvous in both.
        """
        under_way = self._state.under_way
        if under_way is None:
            return False
        known = self._state.tables[under_way.epoch_from].registered.get(topic, {}).get(publisher)
        if known is None or self.changes_rendezvous(under_way, topic):
            return False
        if self.is_over(under_way, topic, publisher, known):
            return False
        return self.is_publisher_rerouted(under_way, topic, known.home)

    def must_keep_at_root(self, topic: str, message: FromPublisher) -> bool:
        """Return True if a publisher sent this in the new epoch and it must wait."""
        under_way = self._state.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return False
        return self.waits_at_root(topic, message.publisher)

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if one of the delivery's subscriptions may still get something of an older epoch."""
        return any(self.may_get_older(delivery.notification, name) for name in delivery.subscriptions)

    def may_get_older(self, notification: Notification, subscription: str) -> bool:
        """Return True if a subscription may still get something of an older epoch, here or at its old home."""
        under_way, local = self._state.under_way, self._state.locals.get(subscription)
        if under_way is None or notification.epoch <= under_way.epoch_from:
            return False
        old = self._state.tables[under_way.epoch_from]
        if subscription in old.awaited:
            return True
        entry = None if local is None or local.has_arrived else old.topics.get(local.topic)
        if entry is None or entry.is_over or subscription not in entry.subscriptions:
            return False
        return self.is_rerouted(under_way, entry.topic)

    # --- messages of retired epochs ----------------------------------------------------------------------------------

    def is_dead(self, source: str, epoch: int) -> bool:
        """Return True if a broker has died in an epoch or, if that is retired here, in a later one."""
        tables = self._state.tables.get(epoch)
        if tables is not None:
            return source in tables.dead
        retired = (one.dead for one in self._state.retired if one.epoch >= epoch)
        live = (one.dead for one in self._state.epochs() if one.epoch >= epoch)
        return any(source in dead for dead in (*retired, *live))

    def upward_unchanged(self, epoch: int, start: str, topic: str) -> bool:
        """Return True if a broker's path to a topic's rendezvous has not changed since a retired epoch."""
        return self._path_unchanged(epoch, topic, start, is_up=True)

    def downward_unchanged(self, epoch: int, topic: str, broker: str) -> bool:
        """Return True if the topic's path to a broker has not changed since an epoch that is retired here.

        Messages of that epoch still in transit may then use the current tables.
        """
        return self._path_unchanged(epoch, topic, broker, is_up=False)

    def _path_unchanged(self, epoch: int, topic: str, broker: str, *, is_up: bool) -> bool:
        key = (epoch, topic, broker, is_up)
        if key not in self._state.unchanged:
            since = [one for one in self._state.retired if one.epoch >= epoch]
            is_known = bool(since) and since[0].epoch == epoch
            now = self._state.tables[min(self._state.tables)]
            rings = (*(one.configuration for one in since), now.configuration) if is_known else ()
            is_always_member = all(broker in one.place_of for one in rings)
            paths = {one.topic_route(topic, broker, is_up=is_up) for one in rings} if is_always_member else set()
            lost = now.lost.union(*(one.lost for one in since[1:]))
            self._state.unchanged[key] = len(paths) == 1 and lost.isdisjoint(*paths)
        return self._state.unchanged[key]

    def retire(self, gone: RingTables) -> None:
        """Remember an epoch that may have messages in transit."""
        self._state.retired.append(RetiredRing(gone.epoch, gone.configuration, gone.lost, frozenset(gone.dead)))
        self._state.unchanged.clear()

    # --- the next hop ------------------------------------------------------------------------------------------------

    def send_onward(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, another broker."""
        peer = self._relay_into(tables) if tables.is_outside else tables.find_hop(message.target)
        return [] if peer is None else [Send(peer, message)]  # None: from another plan for the epoch.

    def _relay_into(self, tables: RingTables) -> str:
        """Return which broker relays messages of a leaving broker into an epoch that does not contain it.

        This is a neighbour that stays, or else the successor, which also leaves and does the same.
        """
        old = self._state.tables[min(self._state.tables)]
        staying = [peer for peer in old.neighbours if peer in tables.configuration.place_of]
        ring = old.configuration
        return staying[0] if staying else ring.broker_at[(ring.position_of[self.broker] + 1) % len(ring.brokers)]
