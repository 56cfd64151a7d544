"""END on a ring: whose paths a plan changes, which brokers must learn that nothing of the old epoch follows, and which
ask for it.

In: what brokers of a topic's tree and homes of publishers ask each other while a plan is under way. Out: effects. What
a transition does otherwise belongs to :mod:`producers.brokers.chord_change`.

Notifications of both epochs keep their order where they take the same way: links do that. So END is sent only where a
way changes. Each end of a way derives that by itself, from the two rings:

- *The rendezvous of a topic changes*, or its ways to most brokers do: all homes of its publishers send EndPublisher to
  the old one, which notifies the whole tree when it has them all.
- *The way from a publisher to the rendezvous changes*: its home sends EndPublisher; until that has come, what the
  publisher has published in the new epoch waits at the rendezvous.
- *The way from the rendezvous to a subscribing broker changes, or one of its users is to be moved*: the broker asks for
  END, from child to parent in the old tree; the rendezvous asks the homes of all publishers for it, and answers those
  who asked.

What is still under way when an epoch is retired has the same way in the next one, and is routed by that one's tables.
"""

from __future__ import annotations

from collections import deque

from regraft.producers.brokers.broker_messages import Dropped, Effect, Notification, Send
from regraft.producers.brokers.chord_messages import (
    AskEndPublisher,
    AskEndTopic,
    EndPublisher,
    EndTopic,
    Register,
    Unregister,
)
from regraft.producers.brokers.chord_parts import RingBroker, RingParts
from regraft.producers.brokers.chord_publishers import TopicPublishers
from regraft.producers.brokers.chord_tables import (
    ChordTables,
    FromPublisher,
    Registration,
    RingPlanUnderWay,
    TopicEntry,
)
from regraft.producers.brokers.two_epochs import HELD_MAX, HOLD_OVERFLOW


class TopicEndings:
    """What one broker knows of END in the plan under way."""

    def __init__(self, core: RingBroker, ring: RingParts, publishers: TopicPublishers) -> None:
        self._core = core
        self._ring = ring
        self._publishers = publishers
        self.broker = core.broker

    # --- which ways change -------------------------------------------------------------------------------------------

    def _turns(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic has another rendezvous in the new epoch."""
        if under_way.is_ring_kept:
            return False
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        root = old.rendezvous(topic)
        return root != new.rendezvous(topic) or root in new.lost

    def _ends_unasked(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if END of a topic goes to all of its tree: most need it, and asking would cost as much again."""
        if under_way.is_ring_kept:
            return False
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return self._turns(under_way, topic) or new.changes_most(old, old.rendezvous(topic))

    def is_rerouted(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic's notifications come to this broker another way in the new epoch."""
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return not new.same_way(old, topic, self.broker)

    def _is_publisher_rerouted(self, under_way: RingPlanUnderWay, topic: str, home: str) -> bool:
        """Return True if what is published at ``home`` goes to the rendezvous another way in the new epoch."""
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return self._turns(under_way, topic) or not new.same_route(old, home, old.rendezvous(topic))

    # --- asking for END ----------------------------------------------------------------------------------------------

    def want_end(self, topic: str) -> list[Effect]:
        """Ask for END of a topic, unless it goes to everybody anyway."""
        under_way = self._core.under_way
        assert under_way is not None
        entry = self._core.tables[under_way.epoch_from].topics.get(topic)
        if entry is None or topic in under_way.ends_wanted or self._ends_unasked(under_way, topic):
            return []
        under_way.ends_wanted.add(topic)
        if entry.parent is not None:
            return [] if entry.is_over else [Send(entry.parent, AskEndTopic(under_way.epoch_to, topic))]
        publishers = self._core.tables[under_way.epoch_from].registered.get(topic, {})
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            effects += self._ask_end_of(under_way, topic, publisher, known)
        return effects

    def _ask_end_of(self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration) -> list[Effect]:
        """Ask a publisher's home for END, unless that sends it unasked."""
        if self._is_publisher_rerouted(under_way, topic, known.home):
            return []
        ask = AskEndPublisher(under_way.epoch_to, known.home, topic, publisher, known.connection)
        return self._ring.route_on(self._core.tables[under_way.epoch_to], ask)

    def registered(self, tables: ChordTables, message: Register) -> list[Effect]:
        """Ask a publisher that has come during the transition, too."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from or message.topic not in under_way.ends_wanted:
            return []
        known = Registration(message.connection, message.home)
        return self._ask_end_of(under_way, message.topic, message.publisher, known)

    def accept_end_wanted(self, source: str, message: AskEndTopic) -> list[Effect]:
        """A child wants END. It does so once, also if it leaves the tree and comes back."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        under_way.end_children.setdefault(message.topic, set()).add(source)
        entry = self._core.tables[under_way.epoch_from].topics.get(message.topic)
        if entry is not None and entry.is_over and source in entry.children and source not in entry.waiting:
            return [Send(source, EndTopic(under_way.epoch_from, message.topic))]
        return self.want_end(message.topic)

    def joined(self, tables: ChordTables, topic: str, source: str) -> list[Effect]:
        """A child that has asked for END comes back: this broker may have left the tree meanwhile, too."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        return self.want_end(topic) if source in under_way.end_children.get(topic, ()) else []

    def accept_end_asked(self, message: AskEndPublisher) -> list[Effect]:
        """The rendezvous wants END of a local publisher: at once if this broker stamps the new epoch already."""
        under_way, local = self._core.under_way, self._publishers.here.get(message.publisher)
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        if local is None or local.connection != message.connection:
            return []  # It has left, and the rendezvous is about to hear so.
        if not under_way.has_ended_publishing:
            under_way.ends_asked.add(message.publisher)
            return []
        return self._end_publisher(under_way, message.publisher)

    # --- END ---------------------------------------------------------------------------------------------------------

    def end_publishers(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END for the local publishers whose END somebody needs, once; after a death for all.

        A broker that needs it may be unable to ask: the request goes the ways of the new epoch, which a death may cut.
        """
        is_first, under_way.has_ended_publishing = not under_way.has_ended_publishing, True
        has_deaths = any(self._core.tables[one].ended_behind for one in (under_way.epoch_from, under_way.epoch_to))
        if not is_first and not has_deaths:
            return []
        effects: list[Effect] = []
        for publisher, local in sorted(self._publishers.here.items()):
            is_wanted = has_deaths or publisher in under_way.ends_asked or self._ends_unasked(under_way, local.topic)
            if is_wanted or self._is_publisher_rerouted(under_way, local.topic, self.broker):
                effects += self._end_publisher(under_way, publisher)
        return effects

    def _end_publisher(self, under_way: RingPlanUnderWay, publisher: str) -> list[Effect]:
        if publisher in under_way.ends_sent:
            return []
        under_way.ends_sent.add(publisher)
        old, local = self._core.tables[under_way.epoch_from], self._publishers.here[publisher]
        root = old.rendezvous(local.topic)
        return self._ring.route_on(old, EndPublisher(old.epoch, root, local.topic, publisher, local.connection))

    def accept_end_of_publisher(self, message: EndPublisher) -> list[Effect]:
        """Nothing of the old epoch follows from a publisher: release what it has sent in the new one."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        under_way.publishers_over.add((message.topic, message.publisher))
        return self._release_at_root(under_way, message.topic, message.publisher)

    def release_behind(self, message: Unregister) -> list[Effect]:
        """A publisher has left in the old epoch: nothing of it follows there."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        known = self._core.tables[under_way.epoch_from].registered.get(message.topic, {}).get(message.publisher)
        if known is None or known.connection != message.connection:
            return []  # It says nothing of the stay that is known here, whose END may have come already.
        stay = (message.topic, message.publisher)
        under_way.publishers_over.add(stay)
        effects = self._release_at_root(under_way, *stay)
        under_way.publishers_over.discard(stay)  # The next stay under its name is another matter.
        return effects

    def see_ended_behind(self, tables: ChordTables) -> list[Effect]:
        """Nothing more has crossed a dead broker: everything that had to come that way has ended here."""
        effects: list[Effect] = []
        for entry in list(tables.topics.values()):
            if entry.parent is not None and tables.is_over_from(tables.rendezvous(entry.topic)):
                effects += self.end_topic(tables, entry)
        under_way = self._core.under_way
        if under_way is not None and tables.epoch == under_way.epoch_from:
            for stay in [one for one in under_way.waiting_at_root if not self._waits_at_root(*one)]:
                effects += self._release_at_root(under_way, *stay)
        return effects

    def end_topics(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END of the topics that are ours, are wanted, and whose publishers are all over."""
        old = self._core.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for entry in list(old.topics.values()):
            if entry.parent is None and not entry.is_over and self._ends(under_way, entry.topic):
                known = old.registered.get(entry.topic, {})
                if all(self._is_over(under_way, entry.topic, name, one.home) for name, one in known.items()):
                    effects += self.end_topic(old, entry)
        return effects

    def _is_over(self, under_way: RingPlanUnderWay, topic: str, publisher: str, home: str) -> bool:
        """Return True if nothing of the old epoch follows here from a publisher."""
        is_cut = self._core.tables[under_way.epoch_from].is_over_from(home)
        return is_cut or (topic, publisher) in under_way.publishers_over

    def _ends(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if this broker waits for END of a topic."""
        return topic in under_way.ends_wanted or self._ends_unasked(under_way, topic)

    def passes_end(self, tables: ChordTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if a child is sent END of a topic."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return True
        return self._ends_unasked(under_way, entry.topic) or peer in under_way.end_children.get(entry.topic, ())

    def end_topic(self, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        """Nothing of a topic follows in this epoch: notify the children and the users that have moved away."""
        if entry.is_over:
            return []
        entry.is_over = True
        children = [peer for peer in entry.children if peer not in entry.waiting]
        receivers = [peer for peer in children if self.passes_end(tables, entry, peer)]
        effects: list[Effect] = [Send(peer, EndTopic(tables.epoch, entry.topic)) for peer in receivers]
        return effects + self._ring.flushed(tables, entry.subscriptions)

    def are_ends_in(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if every END that this broker waits for has come."""
        old = self._core.tables[under_way.epoch_from]
        if any(not entry.is_over and self._ends(under_way, entry.topic) for entry in old.topics.values()):
            return False
        return not any(
            self._waits_at_root(topic, publisher) for topic, known in old.registered.items() for publisher in known
        )

    def kept_notifications(self) -> list[Notification]:
        """Return what this broker holds back as a rendezvous."""
        under_way = self._core.under_way
        waiting = under_way.waiting_at_root.values() if under_way is not None else ()
        return [message for each in waiting for message in each if isinstance(message, Notification)]

    # --- what waits at a rendezvous ----------------------------------------------------------------------------------

    def _waits_at_root(self, topic: str, publisher: str) -> bool:
        """Return True if what a publisher sends in the new epoch may have overtaken what it sent in the old one.

        Only where this broker is the topic's rendezvous in both.
        """
        under_way = self._core.under_way
        if under_way is None:
            return False
        known = self._core.tables[under_way.epoch_from].registered.get(topic, {}).get(publisher)
        if known is None or self._turns(under_way, topic):
            return False
        if self._is_over(under_way, topic, publisher, known.home):
            return False
        return self._is_publisher_rerouted(under_way, topic, known.home)

    def must_keep_at_root(self, topic: str, message: FromPublisher) -> bool:
        """Return True if this comes from a publisher in the new epoch and must wait."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return False
        return self._waits_at_root(topic, message.publisher)

    def keep_at_root(self, topic: str, message: FromPublisher) -> list[Effect]:
        """Let a message wait for END of its publisher in the old epoch."""
        under_way = self._core.under_way
        assert under_way is not None
        waiting = under_way.waiting_at_root.setdefault((topic, message.publisher), deque())
        if isinstance(message, Notification) and len(waiting) >= HELD_MAX:
            return [Dropped(message, HOLD_OVERFLOW)]
        waiting.append(message)
        return []

    def release_waiting(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Release everything that waits at this rendezvous, though END has not come."""
        effects: list[Effect] = []
        for stay in list(under_way.waiting_at_root):
            under_way.publishers_over.add(stay)
            effects += self._release_at_root(under_way, *stay)
        return effects

    def _release_at_root(self, under_way: RingPlanUnderWay, topic: str, publisher: str) -> list[Effect]:
        """Release what waited for the END of a publisher, in its order."""
        effects: list[Effect] = []
        for message in under_way.waiting_at_root.pop((topic, publisher), ()):
            if isinstance(message, Notification):
                effects += self._ring.pass_down(self._core.tables[under_way.epoch_to], message)
            else:
                effects += self._ring.arrive(self._core.tables[under_way.epoch_to], message)
        return effects
