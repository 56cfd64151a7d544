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
    bundled,
)
from producers.brokers.chord_endings import ChordEndings, RingPlanUnderWay
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
from producers.brokers.chord_tables import ChordTables, TopicEntry
from producers.brokers.chord_trees import TopicSubscription
from producers.brokers.two_epochs import PlanUnderWay
from schemas.command import Command


class ChordTransitions(ChordEndings):
    """Trees of one broker and the plan under way there; at most two epochs are live."""

    under_way: RingPlanUnderWay | None

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Take note that a neighbour is gone for good, after all that it had sent; return what is to be done.

        The trees below it are cut: nothing more comes through it, and what was to cross it is lost with it. Where it
        was a rendezvous or a publisher's home that others wait for, the plan under way stalls.
        """
        self.lost_peers.add(peer)
        effects: list[Effect] = []
        for tables in self._epochs():
            for entry in list(tables.topics.values()):
                entry.drop_child(peer)
                if entry.parent == peer:
                    entry.is_joined = True
                    effects += self._settle(entry.topic, now_ms) + self._end_topic(tables, entry)
                effects += self._consider_leaving(tables, entry)
        effects += self._end_publishers_at(peer)
        return bundled(effects + self._tell_prepared(now_ms) + self._release_held() + self._drain(now_ms))

    # --- preparing ---------------------------------------------------------------------------------------------------

    def _target_of(self, command: Command) -> OverlayConfiguration:
        return self.tables[self.epoch].configuration.replaced(command.epoch_to, command.id_moves)

    def _reason_against(self, command: Command) -> str:
        known = self.tables[self.epoch].configuration.id_of
        for move in command.moves:
            if move.home_to not in known:
                return f"user {move.client} cannot move to {move.home_to}: it is not in the overlay"
        return ""

    def _open_tables(self, command: Command, target: OverlayConfiguration, now_ms: float) -> list[Effect]:
        assert isinstance(target, ChordConfiguration)
        tables = self.tables[command.epoch_to] = ChordTables(self.broker, target)
        moves = {move.client: move for move in command.moves if self.broker in (move.home_from, move.home_to)}
        here = {local.user: local.connection for local in self.locals.values() if not local.has_ended}
        going = {name for name, move in moves.items() if move.home_from == self.broker}
        coming = {name for name, move in moves.items() if move.home_to == self.broker}
        under_way = self.under_way = RingPlanUnderWay(
            command.plan, command.epoch_from, command.epoch_to, moves, awaited_users=coming - going
        )
        under_way.is_ring_kept = not command.id_moves
        under_way.leaving = {user: here[user] for user in sorted(going) if user in here}
        old = self.tables[self.epoch]
        self._derive(old, tables)
        effects: list[Effect] = []
        for local in self.locals.values():
            if local.subscription in getattr(old.topics.get(local.topic), "subscriptions", ()):
                effects += self._issued(old, local)
        for local in list(self.locals.values()):
            if not local.has_ended and local.user not in going:
                local.unconfirmed_epochs.add(tables.epoch)
                effects += self._issue(tables, local, now_ms)
        for entry in list(tables.topics.values()):
            effects += self._consider_leaving(tables, entry)
        for publisher, at_home in sorted(self.publishers.items()):
            if tables.rendezvous(at_home.topic) != old.rendezvous(at_home.topic):  # Else that takes it over.
                effects += self._register(tables, publisher)
        return effects + self._send_away(tables, sorted(going), now_ms)

    def _send_away(self, tables: ChordTables, users: Iterable[str], now_ms: float) -> list[Effect]:
        """Tell users that they are to move, and the next homes of those that are not here not to wait."""
        under_way = self.under_way
        assert under_way is not None
        effects: list[Effect] = []
        for user in users:
            home_to, connection = under_way.moves[user].home_to, under_way.leaving.get(user)
            if connection is not None:
                under_way.unheard[user] = now_ms
                effects.append(UserMoves(user, connection, home_to, tables.epoch))
            else:  # It left, or is elsewhere: then it stays there.
                effects += self._route_on(tables, NotComing(tables.epoch, home_to, user))
        return effects

    def _issued(self, tables: ChordTables, local: TopicSubscription) -> list[Effect]:
        """Ask for END of the old epoch where the topic comes here another way in the new one, or its user moves."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        if self._is_leaving(under_way, local):
            under_way.unflushed.setdefault(local.user, set()).add(local.subscription)
        elif not self._is_rerouted(under_way, local.topic):
            return []
        return self._want_end(local.topic)

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

    def _attach(self, request: AttachRequest, now_ms: float) -> list[Effect]:
        """Take a user that comes here by the plan under way, in its new epoch only."""
        under_way = self.under_way
        if request.epoch not in self.tables:
            return self._keep_early(request.epoch, None, request)
        if under_way is None or request.epoch != under_way.epoch_to or request.user not in under_way.awaited_users:
            return []
        under_way.awaited_users.discard(request.user)
        under_way.come_users.add(request.user)
        tables, old = self.tables[under_way.epoch_to], self.tables[under_way.epoch_from]
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
            self.locals[moved.subscription] = local
            old.awaited.add(moved.subscription)
            effects += self._issue(tables, local, now_ms)
        return effects

    def _epoch_awaited_by(self, subscription: str) -> int | None:
        """Return the epoch for which a subscription came here that this broker is still to prepare, else None."""
        for epoch, _, kept in self._early:
            if isinstance(kept, AttachRequest) and any(one.subscription == subscription for one in kept.subscriptions):
                return epoch
        return None

    def _await_no_longer(self, user: str, now_ms: float) -> list[Effect]:
        """A user does not come, or its old home has ended its stay after it came."""
        if self.under_way is not None:
            self.under_way.awaited_users.discard(user)
            self.under_way.come_users.discard(user)
        return self._end_user(user, now_ms, only_come=True)

    def _end_user(self, user: str, now_ms: float, *, only_come: bool) -> list[Effect]:
        """End what a user has here, now."""
        effects: list[Effect] = []
        for local in list(self.locals.values()):
            if local.user == user and not local.has_ended and (local.has_come or not only_come):
                effects += self._cancel(CancelRequest(local.subscription))
                for tables in self.tables.values():
                    tables.awaited.discard(local.subscription)
        return effects + self._release_held()

    def _drop_silent(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        """End the stay of users that have not said in time that they heard of their move, or that they have all."""
        assert isinstance(under_way, RingPlanUnderWay)
        effects: list[Effect] = []
        if not under_way.is_prepared:
            for user in self._late(under_way.unheard, now_ms):
                connection = under_way.leaving.pop(user)
                tables = self.tables[under_way.epoch_to]
                effects += [ClientDropped(user, connection), *self._end_user(user, now_ms, only_come=False)]
                effects += self._route_on(tables, NotComing(tables.epoch, under_way.moves[user].home_to, user))
        awaited = self.tables[under_way.epoch_from].awaited
        for user in self._late(under_way.handed_over, now_ms) if under_way.is_active else ():
            stays = {one.connection for one in self.locals.values() if one.user == user and one.subscription in awaited}
            effects += [ClientDropped(user, connection) for connection in sorted(stays)]
            effects += self._end_user(user, now_ms, only_come=True) if stays else []
        return effects

    def _is_ready_to_switch(self) -> bool:
        under_way = self.under_way
        assert under_way is not None
        if under_way.awaited_users or under_way.unheard:
            return False
        if any(one.unconfirmed_epochs for one in self.publishers.values()):
            return False
        return all(entry.is_joined for entry in self.tables[under_way.epoch_to].topics.values())

    def _epochs_for(self, request: SubscribeRequest) -> list[ChordTables]:
        """Return the epochs in which a new subscription is issued.

        A user that is to go on elsewhere takes along what it has asked for: only the old epoch needs it here. A broker
        that stamps the new epoch needs no place in the old one any more: it would have to wait for END there again.
        """
        under_way = self.under_way
        if under_way is not None and under_way.leaving.get(request.client) == request.connection:
            return [self.tables[under_way.epoch_from]]
        return self._epochs()[-1:] if under_way is not None and under_way.is_active else self._epochs()

    def _see_gone(self, request: GoneRequest) -> list[Effect]:
        """A user that was to move has disconnected: should it come back here, it is one like any other."""
        under_way = self.under_way
        if under_way is not None and under_way.leaving.get(request.user) == request.connection:
            del under_way.leaving[request.user]
            under_way.unheard.pop(request.user, None)
        return []

    def _see_heard(self, request: MoveHeardRequest) -> list[Effect]:
        if self.under_way is not None and self.under_way.leaving.get(request.user) == request.connection:
            self.under_way.unheard.pop(request.user, None)
        return []

    def _see_handed_over(self, user: str, now_ms: float) -> list[Effect]:
        if self.under_way is not None:
            self.under_way.handed_over[user] = now_ms
        return []

    # --- switching ---------------------------------------------------------------------------------------------------

    def _begin_switch(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        return self._switch(under_way, now_ms)

    def _taken_over(self, under_way: PlanUnderWay) -> list[Effect]:
        assert isinstance(under_way, RingPlanUnderWay)
        return [UserTaken(name) for name in sorted(under_way.come_users)]

    def _must_hold(self, delivery: Deliver) -> bool:
        return any(self._may_come_older(delivery.notification, name) for name in delivery.subscriptions)

    def _may_come_older(self, notification: Notification, subscription: str) -> bool:
        """Return True if a subscription may still get something of an older epoch, here or at its old home."""
        under_way, local = self.under_way, self.locals.get(subscription)
        if under_way is None or notification.epoch <= under_way.epoch_from:
            return False
        old = self.tables[under_way.epoch_from]
        if subscription in old.awaited:
            return True
        entry = None if local is None or local.has_come else old.topics.get(local.topic)
        if entry is None or entry.is_over or subscription not in entry.subscriptions:
            return False
        return self._is_rerouted(under_way, entry.topic)

    # --- draining ----------------------------------------------------------------------------------------------------

    def _drain_on(self) -> list[Effect]:
        """Send END of our publishers and of our topics where it is due."""
        under_way = self.under_way
        assert under_way is not None
        return [*self._end_publishers(under_way), *self._end_topics(under_way), *self._release_held()]

    def _is_drained(self, under_way: PlanUnderWay) -> bool:
        assert isinstance(under_way, RingPlanUnderWay)
        return not self.tables[under_way.epoch_from].awaited and self._are_ends_in(under_way)

    def _flushed(self, tables: ChordTables, names: Iterable[str]) -> list[Effect]:
        """Tell users that have moved which of their subscriptions get nothing more here."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        effects: list[Effect] = []
        for name in names:
            local = self.locals.get(name)
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
        return self._route_on(self.tables[under_way.epoch_to], handed_over)

    def _see_topic_over(self, tables: ChordTables, topic: str) -> list[Effect]:
        entry = tables.topics.get(topic)
        if entry is None:
            return []
        return self._end_topic(tables, entry) + self._release_held()

    def _see_drained(self, request: DrainedRequest) -> list[Effect]:
        """The old home of a subscription that has come has handed over all."""
        for tables in self.tables.values():
            tables.awaited.discard(request.subscription)
        return self._release_held()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish_moves(self, under_way: PlanUnderWay) -> None:
        self.tables[under_way.epoch_to].ended.clear()
        for local in self.locals.values():
            local.has_come = False

    def _forget_epoch(self, gone: ChordTables, under_way: PlanUnderWay | None, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for topic in sorted(gone.topics):
            entry = gone.topics[topic]
            effects += self._confirm(sorted(entry.fresh), gone.epoch, now_ms)
            effects += self._forget_ended(entry.subscriptions)
            effects += self._settle(topic, now_ms)  # Acknowledgements that waited for the epoch that has gone.
        for name in [name for name, local in self.locals.items() if gone.epoch in local.unconfirmed_epochs]:
            effects += self._confirm((name,), gone.epoch, now_ms)
        for name in [name for name, local in self.locals.items() if not self._is_issued(local)]:
            del self.locals[name]  # Its user has moved: served here in the old epoch, or, aborted, in the new one.
        for publisher, at_home in sorted(self.publishers.items()):
            if gone.epoch in at_home.unconfirmed_epochs:
                effects += self._confirm_publisher(publisher, at_home.connection, gone.epoch)
        if isinstance(under_way, RingPlanUnderWay) and gone.epoch == under_way.epoch_to:
            for tables in self.tables.values():
                tables.awaited.clear()
            effects += [UserStays(name, connection) for name, connection in sorted(under_way.leaving.items())]
        return effects + self._take_postponed(now_ms)

    def _is_issued(self, local: TopicSubscription) -> bool:
        entries = (tables.topics.get(local.topic) for tables in self.tables.values())
        return any(entry is not None and local.subscription in entry.subscriptions for entry in entries)

    def _is_of_plan(self, message: Message, under_way: PlanUnderWay) -> bool:
        if isinstance(message, EndPublisher | EndTopic):
            return True
        return not isinstance(message, Notification) and getattr(message, "epoch", None) == under_way.epoch_to
