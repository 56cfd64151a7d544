"""Brokers of a Chord ring that die: nothing is waited for that was to cross them, and all that had crossed them first.

In: that a broker is dead, from its link or from the controller, and what its neighbours pass on. Out: effects. A link
reports a death after all that the dead broker had sent, so only its neighbours know where that ends. Each says so with
EndBehind to those whom the ways over the dead broker led to next, and they to the next: the ways from one broker to all
others are a tree, so that is one message for each broker. EndBehind follows the same ways as what had crossed the dead
broker, towards a rendezvous or down from one, and links keep order: a broker that has it has all of that.

If two brokers of one way are dead, EndBehind of the earlier one ends at the later one, whose own continues; either will
do. So nobody needs to know who is dead to know what has ended: it is enough that EndBehind of any broker on the way has
come.
"""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import Effect, Send
from regraft.producers.brokers.chord_endings import TopicEndings
from regraft.producers.brokers.chord_messages import EndBehind
from regraft.producers.brokers.chord_moves import MovingUsers
from regraft.producers.brokers.chord_parts import RingBroker
from regraft.producers.brokers.chord_publishers import TopicPublishers
from regraft.producers.brokers.chord_tables import ChordTables
from regraft.producers.brokers.chord_trees import TopicTrees
from regraft.schemas.command import Command, CommandPhase


class DeadBrokers:
    """What follows at one broker from others' deaths, in all live epochs."""

    def __init__(
        self,
        core: RingBroker,
        trees: TopicTrees,
        publishers: TopicPublishers,
        endings: TopicEndings,
        moves: MovingUsers,
    ) -> None:
        self._core = core
        self._trees = trees
        self._publishers = publishers
        self._endings = endings
        self._moves = moves
        self.broker = core.broker

    def lose_in(self, tables: ChordTables, dead: str, now_ms: float) -> list[Effect]:
        """Wait for nothing from a broker any more in one epoch, and take nothing; say what has ended behind it."""
        if dead in tables.dead or dead not in tables.configuration.place_of or dead == self.broker:
            return []
        tables.dead.add(dead)
        if tables.is_outside:
            return self._moves.await_nothing_from_dead()
        effects: list[Effect] = []
        for entry in list(tables.topics.values()):
            entry.drop_child(dead)
            if entry.parent == dead:
                entry.is_joined = True
                effects += self._trees.settle(entry.topic, now_ms)
        if tables.configuration.parent(dead, self.broker) == dead:
            effects += self.see_end_behind(tables, EndBehind(tables.epoch, dead))
        for entry in list(tables.topics.values()):
            effects += self._trees.consider_leaving(tables, entry)
        return effects + self._forget(tables)

    def see_end_behind(self, tables: ChordTables, message: EndBehind) -> list[Effect]:
        """Nothing that has crossed a dead broker follows here."""
        is_known = message.lost in tables.configuration.place_of  # Else it is of another plan for the same epoch.
        if message.lost in tables.ended_behind or tables.is_outside or not is_known:
            return []
        tables.ended_behind.add(message.lost)
        next_ones = (peer for peer in tables.below(message.lost) if peer not in tables.dead)
        effects: list[Effect] = [Send(peer, message) for peer in next_ones]
        return effects + self._endings.see_ended_behind(tables) + self._forget(tables)

    def _forget(self, tables: ChordTables) -> list[Effect]:
        """Forget the publishers of dead brokers, and what dead brokers were to hand over."""
        later = [one for one in self._core.epochs() if one.epoch >= tables.epoch]
        effects = [effect for one in later for effect in self._publishers.end_lost_stays(one)]
        return effects + self._moves.await_nothing_from_dead()

    def heed(self, command: Command, now_ms: float) -> list[Effect]:
        """Take the controller's word for who is dead.

        A prepare says so of the older epoch: a lost broker may come back in the newer one. No command says anything of
        the epochs behind its own.
        """
        epoch_max = command.epoch_from if command.phase is CommandPhase.PREPARE else command.epoch_to
        effects: list[Effect] = []
        for tables in self._core.epochs():
            if tables.epoch <= epoch_max:
                for dead in command.lost_brokers:
                    effects += self.lose_in(tables, dead, now_ms)
        return effects
