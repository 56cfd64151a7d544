"""The two-epoch transition of one broker of a Chord ring: IDs are reassigned, users move, nothing is lost or repeated.

In: commands of the controller, users that come and go, markers of draining. Out: effects. What is the same on any
overlay stands in :mod:`producers.brokers.two_epochs`, the trees in :mod:`producers.brokers.chord_trees`.

Paper 002, section 5.1.2, has four steps; here they are:

- RCFG_INIT and RCFG_OVERLAY: *prepare* carries the whole new ring, so each broker has both control planes at once and
  nobody leaves and joins the ring by lookups.
- RCFG_PUBSUB: where the way from a topic's rendezvous to a broker is the same in both epochs, its place in the tree is
  taken over on both ends; elsewhere it joins, and publishers register at a rendezvous that is another one. The paper
  hands tables over and then repairs them.
- RCFG_FINISH: *activate*, then *drain* and *retire*, which the paper leaves open.

A user that moves is told so at its old home, which goes on serving it in epoch k; it attaches at its next home, too,
which serves it in k+1 and holds that back until the old home has handed over all of k. END per link would wait forever
on a ring, so it goes by topic (:mod:`producers.brokers.chord_endings`).
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.chord_configuration import ChordConfiguration
from overlay.overlay_configuration import OverlayConfiguration
from producers.brokers.broker_messages import (
    CancelRequest,
    ClientDropped,
    Deliver,
    Effect,
    Message,
    Notification,
    SubscribeRequest,
    UserDrained,
    UserMoves,
    UserStays,
    UserTaken,
)
from producers.brokers.chord_endings import TopicEndings
from producers.brokers.chord_messages import (
    AttachRequest,
    DrainedRequest,
    EndPublisher,
    EndTopic,
    GoneRequest,
    HandedOver,
    MoveHeardRequest,
    NotComing,
)
from producers.brokers.chord_parts import RingBroker, RingParts
from producers.brokers.chord_publishers import TopicPublishers
from producers.brokers.chord_tables import ChordTables, RingPlanUnderWay, TopicEntry, TopicSubscription
from producers.brokers.chord_trees import TopicTrees
from schemas.command import Command


class RingChange:
    """How the trees of one broker of a ring change. A :class:`producers.brokers.epoch_change.EpochChange`."""

    def __init__(
        self, core: RingBroker, ring: RingParts, trees: TopicTrees, publishers: TopicPublishers, endings: TopicEndings
    ) -> None:
        self._core = core
        self._ring = ring
        self._trees = trees
        self._publishers = publishers
        self._endings = endings
        self.broker = core.broker

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Cut what a dead neighbour was part of.

        The trees below it are cut: nothing more comes through it, and what was to cross it is lost with it. Where it
        was a rendezvous or a publisher's home that others wait for, the plan under way stalls.
        """
        effects: list[Effect] = []
        for tables in self._core.epochs():
            for entry in list(tables.topics.values()):
                entry.drop_child(peer)
                if entry.parent == peer:
                    entry.is_joined = True
                    effects += self._trees.settle(entry.topic, now_ms) + self._endings.end_topic(tables, entry)
                effects += self._trees.consider_leaving(tables, entry)
        effects += self._endings.end_publishers_at(peer)
        return effects + self._core.tell_prepared(now_ms) + self._core.release_held() + self._core.drain(now_ms)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def target_of(self, command: Command) -> OverlayConfiguration:
        """Return the ring with the IDs reassigned."""
        return self._core.tables[self._core.epoch].configuration.replaced(command.epoch_to, command.id_moves)

    def reason_against(self, command: Command) -> str:
        """Return which move of a user cannot be, empty when all can."""
        known = self._core.tables[self._core.epoch].configuration.id_of
        for move in command.moves:
            if move.home_to not in known:
                return f"user {move.client} cannot move to {move.home_to}: it is not in the overlay"
        return ""

    def open_tables(self, command: Command, target: OverlayConfiguration, now_ms: float) -> list[Effect]:
        """Begin the plan: derive and join trees of the new epoch, and tell the users that are to move."""
        assert isinstance(target, ChordConfiguration)
        moves = {move.client: move for move in command.moves if self.broker in (move.home_from, move.home_to)}
        here = {local.user: local.connection for local in self._trees.locals.values() if not local.has_ended}
        going = {name for name, move in moves.items() if move.home_from == self.broker}
        coming = {name for name, move in moves.items() if move.home_to == self.broker}
        under_way = RingPlanUnderWay(
            command.plan, command.epoch_from, command.epoch_to, moves, awaited_users=coming - going
        )
        under_way.is_ring_kept = not command.id_moves
        under_way.leaving = {user: here[user] for user in sorted(going) if user in here}
        old, tables = self._core.tables[self._core.epoch], ChordTables(self.broker, target)
        self._core.begin_plan(under_way, tables)
        self._derive(old, tables)
        effects: list[Effect] = []
        for local in self._trees.locals.values():
            if local.subscription in getattr(old.topics.get(local.topic), "subscriptions", ()):
                effects += self.issued(old, local)
        for local in list(self._trees.locals.values()):
            if not local.has_ended and local.user not in going:
                local.unconfirmed_epochs.add(tables.epoch)
                effects += self._trees.issue(tables, local, now_ms)
        for entry in list(tables.topics.values()):
            effects += self._trees.consider_leaving(tables, entry)
        for publisher, at_home in sorted(self._publishers.here.items()):
            if tables.rendezvous(at_home.topic) != old.rendezvous(at_home.topic):  # Else that takes it over.
                effects += self._publishers.register(tables, publisher)
        return effects + self._send_away(tables, sorted(going), now_ms)

    def _send_away(self, tables: ChordTables, users: Iterable[str], now_ms: float) -> list[Effect]:
        """Tell users that they are to move, and the next homes of those that are not here not to wait."""
        under_way = self._core.under_way
        assert under_way is not None
        effects: list[Effect] = []
        for user in users:
            home_to, connection = under_way.moves[user].home_to, under_way.leaving.get(user)
            if connection is not None:
                under_way.unheard[user] = now_ms
                effects.append(UserMoves(user, connection, home_to, tables.epoch))
            else:  # It left, or is elsewhere: then it stays there.
                effects += self._ring.route_on(tables, NotComing(tables.epoch, home_to, user))
        return effects

    def issued(self, tables: ChordTables, local: TopicSubscription) -> list[Effect]:
        """Ask for END of the old epoch where the topic comes here another way in the new one, or its user moves."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        if self._is_leaving(under_way, local):
            under_way.unflushed.setdefault(local.user, set()).add(local.subscription)
        elif not self._endings.is_rerouted(under_way, local.topic):
            return []
        return self._endings.want_end(local.topic)

    def _is_leaving(self, under_way: RingPlanUnderWay, local: TopicSubscription) -> bool:
        return not local.has_ended and under_way.leaving.get(local.user) == local.connection

    def _derive(self, old: ChordTables, tables: ChordTables) -> None:
        """Take over our places in trees, and children, where the way from the rendezvous is the same in both epochs.

        Neighbours do likewise, so no message is needed. Whoever has no use for its place in the new epoch leaves it.
        """
        for topic, entry in old.topics.items():
            if tables.same_way(old, topic, self.broker):
                kept = {
                    peer: issued_max
                    for peer, issued_max in entry.issued.items()
                    if issued_max < tables.epoch and tables.same_way(old, topic, peer)
                }
                derived = tables.topics[topic] = TopicEntry(
                    topic, entry.parent, entry.is_joined, tuple(sorted(kept)), kept, is_derived=True
                )
                # What has ended may still be owed something of the old epoch when that is retired.
                derived.subscriptions = {name: None for name in entry.subscriptions if name in entry.ended_here}
                derived.ended_here = set(entry.ended_here)
        for topic, publishers in old.registered.items():
            if tables.rendezvous(topic) == self.broker:
                tables.registered[topic] = dict(publishers)

    def attach(self, request: AttachRequest, now_ms: float) -> list[Effect]:
        """Take a user that comes here by the plan under way, in its new epoch only."""
        under_way = self._core.under_way
        if request.epoch not in self._core.tables:
            return self._core.keep_early(request.epoch, None, request)
        if under_way is None or request.epoch != under_way.epoch_to or request.user not in under_way.awaited_users:
            return []
        under_way.awaited_users.discard(request.user)
        under_way.come_users.add(request.user)
        tables, old = self._core.tables[under_way.epoch_to], self._core.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for moved in request.subscriptions:
            local = TopicSubscription(
                moved.subscription,
                request.user,
                request.connection,
                moved.topic,
                {tables.epoch},
                is_confirmed=True,
                has_come=True,
                epoch_min=tables.epoch,
            )
            self._trees.locals[moved.subscription] = local
            old.awaited.add(moved.subscription)
            effects += self._trees.issue(tables, local, now_ms)
        return effects

    def epoch_awaited_by(self, subscription: str) -> int | None:
        """Return the epoch for which a subscription came here that this broker is still to prepare, else None."""
        for epoch, kept in self._core.early:
            if isinstance(kept, AttachRequest) and any(one.subscription == subscription for one in kept.subscriptions):
                return epoch
        return None

    def await_no_longer(self, user: str, now_ms: float) -> list[Effect]:
        """A user does not come, or its old home has ended its stay after it came."""
        if self._core.under_way is not None:
            self._core.under_way.awaited_users.discard(user)
            self._core.under_way.come_users.discard(user)
        return self._end_user(user, now_ms, only_come=True)

    def _end_user(self, user: str, now_ms: float, *, only_come: bool) -> list[Effect]:
        """End what a user has here, now."""
        effects: list[Effect] = []
        for local in list(self._trees.locals.values()):
            if local.user == user and not local.has_ended and (local.has_come or not only_come):
                effects += self._trees.cancel(CancelRequest(local.subscription))
                for tables in self._core.tables.values():
                    tables.awaited.discard(local.subscription)
        return effects + self._core.release_held()

    def drop_silent(self, under_way: RingPlanUnderWay, now_ms: float) -> list[Effect]:
        """End the stay of users that have not said in time that they heard of their move, or that they have all."""
        effects: list[Effect] = []
        if not under_way.is_prepared:
            for user in self._core.take_late(under_way.unheard, now_ms):
                connection = under_way.leaving.pop(user)
                tables = self._core.tables[under_way.epoch_to]
                effects += [ClientDropped(user, connection), *self._end_user(user, now_ms, only_come=False)]
                effects += self._ring.route_on(tables, NotComing(tables.epoch, under_way.moves[user].home_to, user))
        awaited = self._core.tables[under_way.epoch_from].awaited
        for user in self._core.take_late(under_way.handed_over, now_ms) if under_way.is_active else ():
            stays = {
                one.connection
                for one in self._trees.locals.values()
                if one.user == user and one.subscription in awaited
            }
            effects += [ClientDropped(user, connection) for connection in sorted(stays)]
            effects += self._end_user(user, now_ms, only_come=True) if stays else []
        return effects

    def is_ready_to_switch(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if users have come, publishers are registered and all trees are joined."""
        if under_way.awaited_users or under_way.unheard:
            return False
        if any(one.unconfirmed_epochs for one in self._publishers.here.values()):
            return False
        return all(entry.is_joined for entry in self._core.tables[under_way.epoch_to].topics.values())

    def epochs_for(self, request: SubscribeRequest) -> list[ChordTables]:
        """Return the epochs in which a new subscription is issued.

        A user that is to go on elsewhere takes along what it has asked for: only the old epoch needs it here. A broker
        that stamps the new epoch needs no place in the old one any more: it would have to wait for END there again.
        """
        under_way = self._core.under_way
        if under_way is not None and under_way.leaving.get(request.client) == request.connection:
            return [self._core.tables[under_way.epoch_from]]
        return self._core.epochs()[-1:] if under_way is not None and under_way.is_active else self._core.epochs()

    def see_gone(self, request: GoneRequest) -> list[Effect]:
        """A user that was to move has disconnected: should it come back here, it is one like any other."""
        under_way = self._core.under_way
        if under_way is not None and under_way.leaving.get(request.user) == request.connection:
            del under_way.leaving[request.user]
            under_way.unheard.pop(request.user, None)
        return []

    def see_heard(self, request: MoveHeardRequest) -> list[Effect]:
        """A user has heard that it is to move."""
        if self._core.under_way is not None and self._core.under_way.leaving.get(request.user) == request.connection:
            self._core.under_way.unheard.pop(request.user, None)
        return []

    def see_handed_over(self, user: str, now_ms: float) -> list[Effect]:
        """The old home of a user that came has handed over all."""
        if self._core.under_way is not None:
            self._core.under_way.handed_over[user] = now_ms
        return []

    # --- switching ---------------------------------------------------------------------------------------------------

    def begin_switch(self, under_way: RingPlanUnderWay, now_ms: float) -> list[Effect]:
        """Switch at once: users go on at their new homes without leaving the old ones first."""
        return self._core.switch(under_way, now_ms)

    def taken_over(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Tell the users that have come that this is their home."""
        return [UserTaken(name) for name in sorted(under_way.come_users)]

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if one of its subscriptions may still get something of an older epoch."""
        return any(self.may_come_older(delivery.notification, name) for name in delivery.subscriptions)

    def may_come_older(self, notification: Notification, subscription: str) -> bool:
        """Return True if a subscription may still get something of an older epoch, here or at its old home."""
        under_way, local = self._core.under_way, self._trees.locals.get(subscription)
        if under_way is None or notification.epoch <= under_way.epoch_from:
            return False
        old = self._core.tables[under_way.epoch_from]
        if subscription in old.awaited:
            return True
        entry = None if local is None or local.has_come else old.topics.get(local.topic)
        if entry is None or entry.is_over or subscription not in entry.subscriptions:
            return False
        return self._endings.is_rerouted(under_way, entry.topic)

    def kept_notifications(self) -> list[Notification]:
        """Return what waits at this broker as a rendezvous."""
        return self._endings.kept_notifications()

    def release_waiting(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Let go on whatever waits at this broker as a rendezvous."""
        return self._endings.release_waiting(under_way)

    # --- draining ----------------------------------------------------------------------------------------------------

    def drain_on(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END of our publishers and of our topics where it is due."""
        return [
            *self._endings.end_publishers(under_way),
            *self._endings.end_topics(under_way),
            *self._core.release_held(),
        ]

    def is_drained(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if users that came have all of the old epoch and every END has come."""
        return not self._core.tables[under_way.epoch_from].awaited and self._endings.are_ends_in(under_way)

    def flushed(self, tables: ChordTables, names: Iterable[str]) -> list[Effect]:
        """Tell users that have moved which of their subscriptions get nothing more here."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        effects: list[Effect] = []
        for name in names:
            local = self._trees.locals.get(name)
            move = None if local is None or local.has_come else under_way.moves.get(local.user)
            if local is not None and move is not None and move.home_from == self.broker:
                effects.append(UserDrained(local.user, name, move.home_to))
                effects += self._see_flushed(under_way, local)
        return effects

    def _see_flushed(self, under_way: RingPlanUnderWay, local: TopicSubscription) -> list[Effect]:
        """Tell a user's next home when it has been told all: from then on that waits for nobody but the user."""
        unflushed = under_way.unflushed.get(local.user, set())
        unflushed.discard(local.subscription)
        if unflushed or under_way.unflushed.pop(local.user, None) is None:
            return []
        handed_over = HandedOver(under_way.epoch_to, under_way.moves[local.user].home_to, local.user)
        return self._ring.route_on(self._core.tables[under_way.epoch_to], handed_over)

    def see_topic_over(self, tables: ChordTables, topic: str) -> list[Effect]:
        """The parent says that nothing of a topic follows in this epoch."""
        entry = tables.topics.get(topic)
        if entry is None:
            return []
        return self._endings.end_topic(tables, entry) + self._core.release_held()

    def see_drained(self, request: DrainedRequest) -> list[Effect]:
        """The old home of a subscription that has come has handed over all."""
        for tables in self._core.tables.values():
            tables.awaited.discard(request.subscription)
        return self._core.release_held()

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish_moves(self, under_way: RingPlanUnderWay) -> None:
        """Take the users that came as any others."""
        self._core.tables[under_way.epoch_to].ended.clear()
        for local in self._trees.locals.values():
            local.has_come = False

    def forget_epoch(self, gone: ChordTables, under_way: RingPlanUnderWay | None, now_ms: float) -> list[Effect]:
        """Confirm and forget what waited for the epoch; after an abort, tell users that they stay."""
        if gone.epoch < self._core.epoch:
            self._ring.retire(gone)
        effects: list[Effect] = []
        for topic in sorted(gone.topics):
            entry = gone.topics[topic]
            effects += self._trees.confirm(sorted(entry.fresh), gone.epoch, now_ms)
            effects += self._trees.forget_ended(entry.subscriptions)
            effects += self._trees.settle(topic, now_ms)  # Acknowledgements that waited for the epoch that has gone.
        for name in [name for name, local in self._trees.locals.items() if gone.epoch in local.unconfirmed_epochs]:
            effects += self._trees.confirm((name,), gone.epoch, now_ms)
        for name in [name for name, local in self._trees.locals.items() if not self._is_issued(local)]:
            del self._trees.locals[
                name
            ]  # Its user has moved: served here in the old epoch, or, aborted, in the new one.
        for publisher, at_home in sorted(self._publishers.here.items()):
            if gone.epoch in at_home.unconfirmed_epochs:
                effects += self._publishers.confirm_publisher(publisher, at_home.connection, gone.epoch)
        if under_way is not None and gone.epoch == under_way.epoch_to:
            for tables in self._core.tables.values():
                tables.awaited.clear()
            effects += [UserStays(name, connection) for name, connection in sorted(under_way.leaving.items())]
        return effects + self._core.take_postponed(now_ms)

    def _is_issued(self, local: TopicSubscription) -> bool:
        entries = (tables.topics.get(local.topic) for tables in self._core.tables.values())
        return any(entry is not None and local.subscription in entry.subscriptions for entry in entries)

    def is_of_plan(self, message: Message, under_way: RingPlanUnderWay) -> bool:
        """Return True for END and for whatever builds the new trees."""
        if isinstance(message, EndPublisher | EndTopic):
            return True
        return not isinstance(message, Notification) and getattr(message, "epoch", None) == under_way.epoch_to
