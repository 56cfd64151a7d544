"""The two-epoch transition of one broker of a Chord ring: IDs are reassigned, users move, nothing is lost or repeated.

In: commands of the controller, users that come and go, markers of draining. Out: effects. What is the same on any
overlay stands in :mod:`producers.two_epochs`, the trees in :mod:`producers.chord_trees`.

Paper 002, section 5.1.2, has four steps; here they are:

- RCFG_INIT and RCFG_OVERLAY: *prepare* carries the whole new ring, so each broker has both control planes at once and
  nobody leaves and joins the ring by lookups.
- RCFG_PUBSUB: where the way from a topic's rendezvous to a broker is the same in both epochs, its place in the tree is
  taken over on both ends; elsewhere it joins, and publishers register at a rendezvous that is another one. The paper
  hands tables over and then repairs them.
- RCFG_FINISH: *activate*, then *drain* and *retire*, which the paper leaves open.

A user that moves is told so at its old home, which goes on serving it in epoch k; it attaches at its next home, too,
which serves it in k+1 and holds that back until the old home has handed over all of k. END per link would wait for ever
on a ring, so it goes by topic: each publisher's home sends it to the rendezvous behind its last notification of k, and
that, when it has it from all publishers, down the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from producers.broker_messages import (
    Deliver,
    Effect,
    Message,
    Notification,
    Send,
    SubscribeRequest,
    UserDrained,
    UserMoves,
    UserStays,
    UserTaken,
)
from producers.chord_messages import AttachRequest, DrainedRequest, EndPublisher, EndTopic, GoneRequest, NotComing
from producers.chord_tables import ChordTables, TopicEntry
from producers.chord_trees import ChordTrees, TopicSubscription
from producers.two_epochs import Transition
from schemas.command import Command


@dataclass(slots=True)
class ChordTransition(Transition):
    """The plan under way at a broker of a ring; ``moves`` are of the users that come here or leave.

    ``leaving``: users that are to go on elsewhere and are still connected, with their connection. ``awaited_users``:
    those that are to come and have not yet. ``has_ended_publishing``: this broker has sent END for its publishers.
    """

    leaving: dict[str, int] = field(default_factory=dict)
    awaited_users: set[str] = field(default_factory=set)
    has_ended_publishing: bool = False


class ChordTransitions(ChordTrees):
    """Trees of one broker and the plan under way there; at most two epochs are live."""

    transition: ChordTransition | None

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
            for topic, publishers in tables.registered.items():
                gone = {name for name, known in publishers.items() if known.home == peer}
                tables.publishers_over.setdefault(topic, set()).update(gone)
        return effects + self._tell_prepared(now_ms) + self._release_held() + self._drain(now_ms)

    def _take_postponed(self, now_ms: float) -> list[Effect]:
        """Take what waited for the transition to be over; nothing unless requests are kept."""
        return []

    # --- preparing ---------------------------------------------------------------------------------------------------

    def _target_of(self, command: Command) -> AnyConfiguration:
        return self.tables[self.epoch].configuration.replaced(command.epoch_to, command.id_moves)

    def _reason_against(self, command: Command) -> str:
        known = self.tables[self.epoch].configuration.id_of
        for move in command.moves:
            if move.home_to not in known:
                return f"user {move.client} cannot move to {move.home_to}: it is not in the overlay"
        return ""

    def _open_tables(self, command: Command, target: AnyConfiguration, now_ms: float) -> list[Effect]:
        assert isinstance(target, ChordConfiguration)
        tables = self.tables[command.epoch_to] = ChordTables(self.broker, target)
        moves = {move.client: move for move in command.moves if self.broker in (move.home_from, move.home_to)}
        here = {local.user: local.connection for local in self.locals.values() if local.cancelled_ms is None}
        going = {name for name, move in moves.items() if move.home_from == self.broker}
        coming = {name for name, move in moves.items() if move.home_to == self.broker}
        self.transition = ChordTransition(
            command.plan, command.epoch_from, command.epoch_to, moves, awaited_users=coming - going
        )
        self.transition.leaving = {user: here[user] for user in sorted(going) if user in here}
        old = self.tables[self.epoch]
        self._derive(old, tables)
        effects: list[Effect] = []
        for local in list(self.locals.values()):
            if local.cancelled_ms is None and local.user not in going:
                local.unconfirmed_epochs.add(tables.epoch)
                effects += self._issue(tables, local, now_ms)
        for entry in list(tables.topics.values()):
            effects += self._consider_leaving(tables, entry)
        for publisher, at_home in sorted(self.publishers.items()):
            if tables.rendezvous(at_home.topic) != old.rendezvous(at_home.topic):  # Else that takes it over.
                effects += self._register(tables, publisher)
        for user in sorted(going):
            home_to = moves[user].home_to
            if user in here:
                effects.append(UserMoves(user, here[user], home_to, tables.epoch))
            else:  # It left, or is elsewhere: then it stays there.
                effects += self._route_on(tables, NotComing(tables.epoch, home_to, user))
        return effects

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
                tables.topics[topic] = TopicEntry(
                    topic, entry.parent, entry.is_joined, tuple(sorted(kept)), kept, is_derived=True
                )
        for topic, publishers in old.registered.items():
            if tables.rendezvous(topic) == self.broker:
                tables.registered[topic] = dict(publishers)

    def _attach(self, request: AttachRequest, now_ms: float) -> list[Effect]:
        """Take a user that comes here by the plan under way, in its new epoch only."""
        under_way = self.transition
        if request.epoch not in self.tables:
            return self._keep_early(request.epoch, None, request)
        if under_way is None or request.epoch != under_way.epoch_to or request.user not in under_way.awaited_users:
            return []
        under_way.awaited_users.discard(request.user)
        tables, old = self.tables[under_way.epoch_to], self.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for moved in request.subscriptions:
            local = TopicSubscription(
                moved.subscription,
                request.user,
                request.connection,
                moved.topic,
                {tables.epoch},
                moved.confirmed_ms,
                has_come=True,
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

    def _await_no_longer(self, user: str) -> list[Effect]:
        if self.transition is not None:
            self.transition.awaited_users.discard(user)
        return []

    def _is_ready_to_switch(self) -> bool:
        under_way = self.transition
        assert under_way is not None
        if under_way.awaited_users or any(one.unconfirmed_epochs for one in self.publishers.values()):
            return False
        return all(entry.is_joined for entry in self.tables[under_way.epoch_to].topics.values())

    def _epochs_for(self, request: SubscribeRequest) -> list[ChordTables]:
        """A user that is to go on elsewhere takes along what it has asked for: only the old epoch needs it here."""
        under_way = self.transition
        if under_way is not None and under_way.leaving.get(request.client) == request.connection:
            return [self.tables[under_way.epoch_from]]
        return self._epochs()

    def _see_gone(self, request: GoneRequest) -> list[Effect]:
        """A user that was to move has disconnected: should it come back here, it is one like any other."""
        under_way = self.transition
        if under_way is not None and under_way.leaving.get(request.user) == request.connection:
            del under_way.leaving[request.user]
        return []

    # --- switching ---------------------------------------------------------------------------------------------------

    def _begin_switch(self, under_way: Transition, now_ms: float) -> list[Effect]:
        return self._switch(under_way, now_ms)

    def _taken_over(self, under_way: Transition) -> list[Effect]:
        coming = [name for name, move in under_way.moves.items() if move.home_to == self.broker]
        return [UserTaken(name) for name in sorted(coming)]

    def _must_hold(self, delivery: Deliver) -> bool:
        return any(self._may_come_older(delivery.notification, name) for name in delivery.subscriptions)

    def _may_come_older(self, notification: Notification, subscription: str) -> bool:
        """Tell whether a subscription may still get something of an older epoch, here or at its old home."""
        local = self.locals.get(subscription)
        for epoch, tables in self.tables.items():
            if epoch >= notification.epoch:
                continue
            if subscription in tables.awaited:
                return True
            entry = None if local is None or local.has_come else tables.topics.get(local.topic)
            if entry is not None and not entry.is_over and subscription in entry.subscriptions:
                return True
        return False

    # --- draining ----------------------------------------------------------------------------------------------------

    def _drain_on(self) -> list[Effect]:
        """Send END for our publishers, once, and END of the topics that are ours when all their publishers have."""
        under_way = self.transition
        assert under_way is not None
        old = self.tables[under_way.epoch_from]
        effects: list[Effect] = []
        if not under_way.has_ended_publishing:
            under_way.has_ended_publishing = True
            for publisher, at_home in sorted(self.publishers.items()):
                topic = at_home.topic
                message = EndPublisher(old.epoch, old.rendezvous(topic), topic, publisher, at_home.connection)
                effects += self._route_on(old, message)
        for entry in list(old.topics.values()):
            if entry.parent is None and not entry.is_over:
                over = old.publishers_over.get(entry.topic, set())
                if all(publisher in over for publisher in old.registered.get(entry.topic, {})):
                    effects += self._end_topic(old, entry)
        return effects + self._release_held()

    def _end_topic(self, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        """Nothing of a topic follows in this epoch: tell the children and the users that have moved away."""
        if entry.is_over:
            return []
        entry.is_over = True
        effects: list[Effect] = [
            Send(peer, EndTopic(tables.epoch, entry.topic)) for peer in entry.children if peer not in entry.waiting
        ]
        return effects + self._flushed(tables, entry.subscriptions)

    def _flushed(self, tables: ChordTables, names: Iterable[str]) -> list[Effect]:
        """Tell users that have moved which of their subscriptions get nothing more here."""
        under_way = self.transition
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        effects: list[Effect] = []
        for name in names:
            local = self.locals.get(name)
            move = None if local is None or local.has_come else under_way.moves.get(local.user)
            if local is not None and move is not None and move.home_from == self.broker:
                effects.append(UserDrained(local.user, name, move.home_to))
        return effects

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

    def _finish_moves(self, under_way: Transition) -> None:
        for local in self.locals.values():
            local.has_come = False

    def _forget_epoch(self, gone: ChordTables, under_way: Transition | None, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for topic in sorted(gone.topics):
            entry = gone.topics[topic]
            effects += self._confirm(sorted(entry.fresh), gone.epoch, now_ms)
            effects += self._forget_ended(entry.subscriptions)
            effects += self._settle(topic, now_ms)  # Acknowledgements that waited for the epoch that has gone.
        for name in [name for name, local in self.locals.items() if not self._is_issued(local)]:
            del self.locals[name]  # Its user has moved: served here in the old epoch, or, aborted, in the new one.
        for publisher, at_home in sorted(self.publishers.items()):
            if gone.epoch in at_home.unconfirmed_epochs:
                effects += self._confirm_publisher(publisher, at_home.connection, gone.epoch)
        if isinstance(under_way, ChordTransition) and gone.epoch == under_way.epoch_to:
            for tables in self.tables.values():
                tables.awaited.clear()
            effects += [UserStays(name, connection) for name, connection in sorted(under_way.leaving.items())]
        return effects + self._take_postponed(now_ms)

    def _is_issued(self, local: TopicSubscription) -> bool:
        entries = (tables.topics.get(local.topic) for tables in self.tables.values())
        return any(entry is not None and local.subscription in entry.subscriptions for entry in entries)

    def _is_of_plan(self, message: Message, under_way: Transition) -> bool:
        if isinstance(message, EndPublisher | EndTopic):
            return True
        return not isinstance(message, Notification) and getattr(message, "epoch", None) == under_way.epoch_to
