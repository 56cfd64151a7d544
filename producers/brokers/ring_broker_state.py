"""What all parts of a ring's broker share: the plan under way, clients, and the paths that the plan changes.

The queries about paths depend on nothing but the rings of the live epochs, so each end of a path derives the answers by
itself. :mod:`producers.brokers.ring_endings` sends END where a path changes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import Deliver, Effect, Notification, Send
from regraft.producers.brokers.broker_state import BrokerState, PlanUnderWay
from regraft.producers.brokers.ring_messages import RoutedMessage
from regraft.producers.brokers.ring_tables import (
    FromPublisher,
    LocalPublisher,
    Registration,
    RingTables,
    TopicEntry,
    TopicSubscription,
)

RETIRED_KEPT_MAX = 16  # Retired epochs that may have messages in transit; older messages are dropped.


@dataclass(slots=True)
class RingPlanUnderWay(PlanUnderWay):
    """The plan under way at a broker of a ring; ``moves`` are of the users that come here or leave.

    ``is_ring_kept``: no broker changes its ID. ``leaving``: users to be moved that are still connected, with their
    connection. ``awaited_users``: users that have yet to arrive; ``arrived_users``: those that have, with their
    connection. ``unacknowledged``: users that have not acknowledged their move, with when they were notified: before
    this broker is active those that leave, from then on those that it has taken over. ``unflushed``: subscriptions of
    leaving users that the old epoch still serves here, by user. ``handed_over``: users that have arrived and whose old
    home has nothing more for them, with the time since when. ``awaited_ends``: topics whose END this broker waits for,
    for itself or for the children in ``end_children``. ``requested_ends``: local publishers whose END a rendezvous has
    asked for; ``ends_sent``: those whose END was sent. ``publishers_over``: topic, publisher and stay if nothing
    more of the old epoch will come from it; ``waiting_at_root``: what other publishers have sent in the new epoch.
    """

    is_ring_kept: bool = False
    leaving: dict[str, int] = field(default_factory=dict)
    unacknowledged: dict[str, float] = field(default_factory=dict)
    awaited_users: set[str] = field(default_factory=set)
    arrived_users: dict[str, int] = field(default_factory=dict)
    unflushed: dict[str, set[str]] = field(default_factory=dict)
    handed_over: dict[str, float] = field(default_factory=dict)
    awaited_ends: set[str] = field(default_factory=set)
    end_children: dict[str, set[str]] = field(default_factory=dict)
    requested_ends: set[str] = field(default_factory=set)
    publishers_over: set[tuple[str, str, int]] = field(default_factory=set)
    waiting_at_root: dict[tuple[str, str], deque[FromPublisher]] = field(default_factory=dict)
    has_ended_publishing: bool = False
    ends_sent: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class RetiredRing:
    """What a broker remembers of a retired epoch: its ring, and whose incarnations ended before it or in it."""

    epoch: int
    configuration: RingConfiguration
    lost: frozenset[str]
    dead: frozenset[str]


class RingState(BrokerState[RingTables, RingPlanUnderWay]):
    """The state of one broker of a ring. All parts of it work on this; none of them has any other state."""

    # The subscriptions of local users, by name. Invariant: at the end of an epoch, each is in the entry of its topic in
    # the tables of a live one; a user that moves has its subscriptions at its old home and at its next one meanwhile.
    locals: dict[str, TopicSubscription]

    # The publishers at home here, by name. Invariant: one that ``may_publish`` is registered at the rendezvous of its
    # topic in the epoch that is stamped, and before this broker is prepared, in the newer one, too; while a plan is
    # under way none comes, and one that ends is gone at once.
    here: dict[str, LocalPublisher]

    # The epochs retired here lately, oldest first. Invariant: all are before the oldest live epoch, the last one is the
    # one that the plan to it began in, and none was aborted.
    retired: deque[RetiredRing]

    # Whether a path has not changed since a retired epoch, by epoch, topic, broker and direction: a cache, cleared at
    # each retirement.
    unchanged: dict[tuple[int, str, str, bool], bool]

    def begin_with(self, tables: RingTables) -> None:
        """Hold these tables, and no other state of clients and neighbours."""
        super().begin_with(tables)
        self.locals = {}
        self.here = {}
        self.retired = deque(maxlen=RETIRED_KEPT_MAX)
        self.unchanged = {}

    # --- which paths change ------------------------------------------------------------------------------------------

    def changes_rendezvous(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic has another rendezvous in the new epoch."""
        if under_way.is_ring_kept:
            return False
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        root = old.rendezvous(topic)
        return root != new.rendezvous(topic) or root in new.lost

    def end_goes_to_all(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if END of a topic goes to its whole tree: most brokers need it, and asking doubles the cost."""
        if under_way.is_ring_kept:
            return False
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return self.changes_rendezvous(under_way, topic) or new.changes_most(old, old.rendezvous(topic))

    def is_rerouted(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic's notifications reach this broker over another path in the new epoch."""
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return not new.same_path(old, topic, self.broker)

    def is_publisher_rerouted(self, under_way: RingPlanUnderWay, topic: str, home: str) -> bool:
        """Return True if notifications published at ``home`` take another path to the rendezvous in the new epoch."""
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return self.changes_rendezvous(under_way, topic) or not new.same_route(old, home, old.rendezvous(topic))

    # --- what may still come in the old epoch ------------------------------------------------------------------------

    def passes_end(self, tables: RingTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if this broker passes END of a topic on to a child."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return True
        return self.end_goes_to_all(under_way, entry.topic) or peer in under_way.end_children.get(entry.topic, ())

    def awaits_end(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if this broker waits for END of a topic."""
        return topic in under_way.awaited_ends or self.end_goes_to_all(under_way, topic)

    def is_over(self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration) -> bool:
        """Return True if nothing more of a publisher's stay in the old epoch comes here; each stay has its own END."""
        is_cut = self.tables[under_way.epoch_from].is_over_from(known.home)
        return is_cut or (topic, publisher, known.connection) in under_way.publishers_over

    def waits_at_root(self, topic: str, publisher: str) -> bool:
        """Return True if what a publisher sends in the new epoch may have overtaken what it sent in the old one.

        That is possible only if this broker is the topic's rendezvous in both.
        """
        under_way = self.under_way
        if under_way is None:
            return False
        registration = self.tables[under_way.epoch_from].registered.get(topic, {}).get(publisher)
        if registration is None or self.changes_rendezvous(under_way, topic):
            return False
        if self.is_over(under_way, topic, publisher, registration):
            return False
        return self.is_publisher_rerouted(under_way, topic, registration.home)

    def must_keep_at_root(self, topic: str, message: FromPublisher) -> bool:
        """Return True if a publisher sent this in the new epoch and it must wait."""
        under_way = self.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return False
        return self.waits_at_root(topic, message.publisher)

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if one of the delivery's subscriptions may still get something of an older epoch."""
        return any(self.may_get_older(delivery.notification, name) for name in delivery.subscriptions)

    def may_get_older(self, notification: Notification, subscription: str) -> bool:
        """Return True if a subscription may still get something of an older epoch, here or at its old home."""
        under_way, local = self.under_way, self.locals.get(subscription)
        if under_way is None or notification.epoch <= under_way.epoch_from:
            return False
        old = self.tables[under_way.epoch_from]
        if subscription in old.awaited:
            return True
        entry = None if local is None or local.has_arrived else old.topics.get(local.topic)
        if entry is None or entry.is_over or subscription not in entry.subscriptions:
            return False
        return self.is_rerouted(under_way, entry.topic)

    # --- messages of retired epochs ----------------------------------------------------------------------------------

    def is_dead(self, source: str, epoch: int) -> bool:
        """Return True if a broker has died in an epoch or, if that is retired here, in a later one."""
        tables = self.tables.get(epoch)
        if tables is not None:
            return source in tables.dead
        retired = (one.dead for one in self.retired if one.epoch >= epoch)
        live = (one.dead for one in self.epochs() if one.epoch >= epoch)
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
        if key not in self.unchanged:
            since = [one for one in self.retired if one.epoch >= epoch]
            is_known = bool(since) and since[0].epoch == epoch
            now = self.tables[min(self.tables)]
            rings = (*(one.configuration for one in since), now.configuration) if is_known else ()
            is_always_member = all(broker in one.place_of for one in rings)
            paths = {one.topic_route(topic, broker, is_up=is_up) for one in rings} if is_always_member else set()
            lost = now.lost.union(*(one.lost for one in since[1:]))
            self.unchanged[key] = len(paths) == 1 and lost.isdisjoint(*paths)
        return self.unchanged[key]

    def retire(self, gone: RingTables) -> None:
        """Remember an epoch that may have messages in transit."""
        self.retired.append(RetiredRing(gone.epoch, gone.configuration, gone.lost, frozenset(gone.dead)))
        self.unchanged.clear()

    # --- the next hop ------------------------------------------------------------------------------------------------

    def send_onward(self, tables: RingTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, another broker."""
        peer = self._relay_into(tables) if tables.is_outside else tables.find_hop(message.target)
        return [] if peer is None else [Send(peer, message)]  # None: from another plan for the epoch.

    def _relay_into(self, tables: RingTables) -> str:
        """Return which broker relays messages of a leaving broker into an epoch that does not contain it.

        This is a neighbour that stays, or else the successor, which also leaves and does the same.
        """
        old = self.tables[min(self.tables)]
        staying = [peer for peer in old.neighbours if peer in tables.configuration.place_of]
        ring = old.configuration
        return staying[0] if staying else ring.broker_at[(ring.position_of[self.broker] + 1) % len(ring.brokers)]
