"""The two-epoch transition of one broker of a Chord ring: IDs are reassigned, users move, nothing is lost or repeated.

In: commands of the controller, users that come and go, markers of draining. Out: effects. What all overlays have in
common is in :mod:`producers.brokers.two_epochs`, the trees are in :mod:`producers.brokers.ring_trees`.

The four steps of Zhao13, section 5.1.2, correspond to:

- RCFG_INIT and RCFG_OVERLAY: *prepare* carries the whole new ring, so each broker has both control planes at once and
  none leaves and joins the ring by lookups.
- RCFG_PUBSUB: if the path from a topic's rendezvous to a broker is the same in both epochs, both ends derive its place
  in the tree; otherwise the broker joins. Publishers register if their rendezvous has changed. The paper instead hands
  tables over and then repairs them.
- RCFG_FINISH: *activate*, then *drain* and *retire*, which the paper leaves open.

A user that moves has two homes for a while (:mod:`producers.brokers.ring_moves`). Waiting for END on each link would
deadlock on a ring, so END goes by topic (:mod:`producers.brokers.ring_endings`).

Deaths: wait for everything that had crossed a dead broker, and for nothing that had yet to. A link reports a death
after everything that the dead broker had sent, so only its neighbours know where that ends. Each neighbour sends
EndBehind to the brokers that come next on paths over the dead one, and they pass it on: the paths from one broker to
all others form a tree, so that is one message for each broker. EndBehind takes the same paths as what had crossed the
dead broker, towards a rendezvous or down from one, and links keep order: a broker that has EndBehind has all of that.

If two brokers on one path are dead, EndBehind of the earlier one stops at the later one, whose own continues; either is
enough. So no broker needs to know who is dead to know what has ended: EndBehind of any broker on the path suffices.
"""

from __future__ import annotations

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import Deliver, Effect, Message, Notification, Send
from regraft.producers.brokers.epoch_change import (
    reason_to_stay,
    release_held,
    switch,
)
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import EndBehind, EndPublisher, EndTopic, UserStays
from regraft.producers.brokers.ring_moves import MovingUsers
from regraft.producers.brokers.ring_publishers import TopicPublishers
from regraft.producers.brokers.ring_tables import RingTables, TopicSubscription
from regraft.producers.brokers.ring_trees import TopicTrees
from regraft.schemas.command import Command, CommandPhase


class RingChange:
    """How the trees of one broker of a ring change. A :class:`producers.brokers.epoch_change.EpochChange`."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._endings = TopicEndings(state)
        self._trees = TopicTrees(state)
        self._publishers = TopicPublishers(state)
        self._moves = MovingUsers(state)
        self.broker = state.broker

    # --- deaths ------------------------------------------------------------------------------------------------------

    def lose_peer(self, peer: str, epoch_end: float) -> list[Effect]:
        """Continue without a dead neighbour, after everything it had sent."""
        effects: list[Effect] = []
        for tables in self._state.epochs():
            if tables.epoch < epoch_end:
                effects += self._lose_in(tables, peer)
        return effects

    def _lose_in(self, tables: RingTables, dead: str) -> list[Effect]:
        """Stop waiting for a dead broker in one epoch, accept nothing more from it, and report what ended behind it."""
        if dead in tables.dead or dead not in tables.configuration.place_of or dead == self.broker:
            return []
        tables.dead.add(dead)
        if tables.is_outside:
            return self._moves.stop_awaiting_dead()
        effects: list[Effect] = []
        for entry in list(tables.topics.values()):
            entry.drop_child(dead)
            if entry.parent == dead:
                entry.is_joined = True
                effects += self._trees.settle(entry.topic)
        if tables.configuration.parent(dead, self.broker) == dead:
            effects += self.note_end_behind(tables, EndBehind(tables.epoch, dead))
        for entry in list(tables.topics.values()):
            effects += self._trees.consider_leaving(tables, entry)
        return effects + self._forget(tables)

    def note_end_behind(self, tables: RingTables, message: EndBehind) -> list[Effect]:
        """Note that nothing more that crossed a dead broker comes here, and pass that on."""
        is_known = message.lost in tables.configuration.place_of  # Else it is of another plan for the same epoch.
        if message.lost in tables.ended_behind or tables.is_outside or not is_known:
            return []
        tables.ended_behind.add(message.lost)
        next_ones = (peer for peer in tables.below(message.lost) if peer not in tables.dead)
        effects: list[Effect] = [Send(peer, message) for peer in next_ones]
        effects += self._endings.note_ended_behind(tables) + self._publishers.release_ended_behind(tables)
        return effects + self._forget(tables)

    def _forget(self, tables: RingTables) -> list[Effect]:
        """Forget the publishers of dead brokers, and what dead brokers were to hand over."""
        later = [one for one in self._state.epochs() if one.epoch >= tables.epoch]
        effects = [effect for one in later for effect in self._publishers.end_lost_stays(one)]
        return effects + self._moves.stop_awaiting_dead()

    def note_deaths(self, command: Command) -> list[Effect]:
        """Accept which brokers the controller reports dead.

        A prepare reports deaths in the older epoch only: a lost broker may rejoin in the newer one. No command reports
        deaths in epochs after its own.
        """
        epoch_max = command.epoch_from if command.phase is CommandPhase.PREPARE else command.epoch_to
        effects: list[Effect] = []
        oldest = self._state.epochs()[0]
        if oldest.epoch <= epoch_max:
            self._state.note_reported(set(command.lost_brokers) - oldest.dead)
        for tables in self._state.epochs():
            if tables.epoch <= epoch_max:
                for dead in command.lost_brokers:
                    effects += self._lose_in(tables, dead)
        return effects

    # --- preparing ---------------------------------------------------------------------------------------------------

    def prepare(self, command: Command) -> str | list[Effect]:
        """Begin the plan, or return why it is impossible or this broker cannot take part."""
        target = self._state.tables[self._state.epoch].configuration.agreed_target(command)
        if isinstance(target, str):
            return target
        return self._reason_against(command, target) or self._open_tables(command, target)

    def tables_outside(self, command: Command) -> RingTables:
        """Return an outsider's tables of the ring that an install names; the number of ID bits does not change."""
        bits = self._state.tables[self._state.epoch].configuration.bits
        ids = {move.broker: move.id_to for move in command.id_moves}
        return RingTables(self.broker, RingConfiguration.of(command.epoch_to, bits, ids), is_outside=True)

    def _reason_against(self, command: Command, target: RingConfiguration) -> str:
        """Return which move of a user is impossible, or which clients a leaving broker still has; empty if none."""
        present = self._state.tables[self._state.epoch].configuration
        for move in command.moves:
            if move.home_from not in present.brokers:
                return f"user {move.client} cannot move from {move.home_from}: it is not in the overlay"
            if move.home_to not in target.brokers:
                return f"user {move.client} cannot move to {move.home_to}: it is not in the overlay"
        if self.broker in command.brokers_left:
            return reason_to_stay([*self._trees.users_here(), *self._state.here], command)
        return ""

    def _open_tables(self, command: Command, target: RingConfiguration) -> list[Effect]:
        """Begin the plan: derive and join trees of the new epoch, and notify the users to be moved."""
        under_way = self._moves.plan_of(command)
        going = {name for name, move in under_way.moves.items() if move.home_from == self.broker}
        old = self._state.tables[self._state.epoch]
        tables = RingTables(self.broker, target, lost=old.configuration.change_of(command).lost)
        self._state.begin_plan(under_way, tables)
        self._state.lost_peers.difference_update(command.brokers_joined)
        tables.derive_from(old)
        effects = self._moves.notify_leaving(tables, sorted(going))  # Before messages that end the old epoch.
        for local in self._state.locals.values():
            if local.subscription in getattr(old.topics.get(local.topic), "subscriptions", ()):
                effects += self._endings.on_issued(old, local)
        for local in list(self._state.locals.values()):
            if not local.has_ended and local.user not in going:
                local.unconfirmed_epochs.add(tables.epoch)
                effects += self._trees.issue(tables, local)
        for entry in list(tables.topics.values()):
            effects += self._trees.consider_leaving(tables, entry)
        for publisher, at_home in sorted(self._state.here.items()):
            at_home.waits = bool(tables.lost) and not at_home.may_publish
            if not at_home.waits and not tables.takes_over(old, at_home.topic, self.broker):
                effects += self._publishers.register(tables, publisher)
        return effects

    def is_ready_to_switch(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if users have arrived or acknowledged, publishers are registered and all trees are joined."""
        if under_way.awaited_users or under_way.unacknowledged:
            return False
        if any(one.unconfirmed_epochs and not one.waits for one in self._state.here.values()):
            return False
        return all(entry.is_joined for entry in self._state.tables[under_way.epoch_to].topics.values())

    def drop_unresponsive(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """End the stay of users that did not acknowledge their move, or the end of the old epoch, in time."""
        return self._moves.drop_unresponsive(under_way)

    # --- switching ---------------------------------------------------------------------------------------------------

    def begin_switch(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Switch at once: users continue at their new homes without leaving the old ones first."""
        return switch(self._state, self, under_way)

    def take_over_clients(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Notify the users that have arrived that this is their home."""
        return self._moves.take_over(under_way)

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if one of the delivery's subscriptions may still get something of an older epoch."""
        return self._state.must_hold(delivery)

    def kept_notifications(self) -> list[Notification]:
        """Return the notifications that wait at this broker as a rendezvous."""
        return self._endings.kept_notifications()

    def release_waiting(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Release everything that waits at this broker as a rendezvous."""
        return self._publishers.release_waiting(under_way)

    # --- draining ----------------------------------------------------------------------------------------------------

    def continue_drain(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END of our publishers and of our topics if it is due."""
        return [
            *self._publishers.end_publishers(under_way),
            *self._endings.end_topics(under_way),
            *release_held(self._state, self._state.must_hold),
        ]

    def is_drained(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if the users that arrived know it and have all of the old epoch, and every END has come."""
        if under_way.unacknowledged or self._state.tables[under_way.epoch_from].awaited:
            return False
        return self._endings.have_ends_arrived(under_way)

    def note_topic_over(self, tables: RingTables, topic: str) -> list[Effect]:
        """Handle the parent's message that nothing of a topic follows in this epoch."""
        entry = tables.topics.get(topic)
        if entry is None:
            return []
        return self._endings.end_topic(tables, entry) + release_held(self._state, self._state.must_hold)

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish_moves(self, under_way: RingPlanUnderWay) -> None:
        """Treat the users that arrived like any others from now on."""
        self._state.tables[under_way.epoch_to].ended.clear()
        for local in self._state.locals.values():
            local.has_arrived = False

    def forget_epoch(self, gone: RingTables, under_way: RingPlanUnderWay | None) -> list[Effect]:
        """Confirm and forget what waited for the epoch; after an abort, notify users that they stay."""
        if gone.epoch < self._state.epoch:
            self._state.retire(gone)
        effects: list[Effect] = []
        if under_way is not None and gone.epoch < self._state.epoch:
            effects += self._moves.drop_stranded(under_way, self._state.tables[self._state.epoch])
            effects += self._moves.take_from_the_dead(under_way, gone)
        for topic in sorted(gone.topics):
            entry = gone.topics[topic]
            effects += self._trees.confirm(sorted(entry.fresh), gone.epoch)
            effects += self._trees.forget_ended(entry.subscriptions)
            effects += self._trees.settle(topic)  # Acknowledgements that waited for this epoch to end.
        for name in [name for name, local in self._state.locals.items() if gone.epoch in local.unconfirmed_epochs]:
            effects += self._trees.confirm((name,), gone.epoch)
        for name in [name for name, local in self._state.locals.items() if not self._is_issued(local)]:
            # Its user has moved: the old epoch served it here, or, if aborted, the new one did.
            del self._state.locals[name]
        effects += self._publishers.forget_epoch(gone.epoch)
        for tables in self._state.epochs():
            effects += self._publishers.end_lost_stays(tables)  # Those that waited for this epoch to end.
        if under_way is not None and gone.epoch == under_way.epoch_to:
            for tables in self._state.tables.values():
                tables.awaited.clear()
            effects += [UserStays(name, connection) for name, connection in sorted(under_way.leaving.items())]
        return effects + self._publishers.serve_postponed()

    def _is_issued(self, local: TopicSubscription) -> bool:
        entries = (tables.topics.get(local.topic) for tables in self._state.tables.values())
        return any(entry is not None and local.subscription in entry.subscriptions for entry in entries)

    def is_of_plan(self, message: Message, under_way: RingPlanUnderWay) -> bool:
        """Return True for END and for messages that build the new trees."""
        if isinstance(message, EndPublisher | EndTopic):
            return True
        return not isinstance(message, Notification) and getattr(message, "epoch", None) == under_way.epoch_to
