"""Deaths on a Chord ring: wait for everything that had crossed a dead broker, and for nothing that had yet to.

In: the report that a broker is dead, from its link or from the controller, and what neighbours pass on. Out: effects. A
link reports a death after everything that the dead broker had sent, so only its neighbours know where that ends. Each
neighbour sends EndBehind to the brokers that come next on paths over the dead one, and they pass it on: the paths from
one broker to all others form a tree, so that is one message for each broker. EndBehind takes the same paths as what had
crossed the dead broker, towards a rendezvous or down from one, and links keep order: a broker that has EndBehind has
all of that.

If two brokers on one path are dead, EndBehind of the earlier one stops at the later one, whose own continues; either is
enough. So no broker needs to know who is dead to know what has ended: EndBehind of any broker on the path suffices.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import Effect, Send
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import EndBehind
from regraft.producers.brokers.ring_moves import MovingUsers
from regraft.producers.brokers.ring_publishers import TopicPublishers
from regraft.producers.brokers.ring_tables import RingState, RingTables
from regraft.producers.brokers.ring_trees import TopicTrees
from regraft.schemas.command import Command, CommandPhase


class DeadBrokers:
    """The effects of others' deaths on one broker, in all live epochs."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._endings = TopicEndings(state)
        self._trees = TopicTrees(state)
        self._publishers = TopicPublishers(state)
        self._moves = MovingUsers(state)
        self.broker = state.broker

    def lose_in(self, tables: RingTables, dead: str, now_ms: float) -> list[Effect]:
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
                effects += self._trees.settle(entry.topic, now_ms)
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

    def note_deaths(self, command: Command, now_ms: float) -> list[Effect]:
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
                    effects += self.lose_in(tables, dead, now_ms)
        return effects
