"""END on a ring: whose ways a plan changes, who must hear that nothing of the old epoch follows, and who asks for it.

In: what brokers of a topic's tree and homes of publishers ask each other while a plan is under way. Out: effects. What
a transition does otherwise belongs to :mod:`producers.brokers.chord_transition`.

Notifications of both epochs keep their order where they take the same way: links do that. So END is sent only where a
way changes. Each end of a way knows that by itself, from the two rings:

- *The rendezvous of a topic changes*, or its ways to most brokers do: all homes of its publishers send EndPublisher to
  the old one, which tells the whole tree when it has them all.
- *The way from a publisher to the rendezvous changes*: its home sends EndPublisher; until that has come, what the
  publisher has published in the new epoch waits at the rendezvous.
- *The way from the rendezvous to a subscribing broker changes, or one of its users is to move*: the broker asks for
  END, from child to parent in the old tree; the rendezvous asks the homes of all publishers for it, and tells those who
  asked.

What is still under way when an epoch is retired has the same way in the next one, and is routed by that one's tables.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from producers.brokers.broker_messages import Dropped, Effect, Notification, Send
from producers.brokers.chord_messages import (
    AskEndPublisher,
    AskEndTopic,
    EndPublisher,
    EndTopic,
    ProbeBack,
    Register,
    Unregister,
)
from producers.brokers.chord_tables import ChordTables, Registration, TopicEntry
from producers.brokers.chord_trees import ChordTrees
from producers.brokers.two_epochs import HELD_MAX, HOLD_OVERFLOW, PlanUnderWay

FromPublisher = Notification | ProbeBack | Unregister


@dataclass(slots=True)
class RingPlanUnderWay(PlanUnderWay):
    """The plan under way at a broker of a ring; ``moves`` are of the users that come here or leave.

    ``is_ring_kept``: no broker changes its ID. ``leaving``: users that are to go on elsewhere and are still connected,
    with their connection; ``unheard`` are those of them that have not said that they heard so, with when they were
    told. ``awaited_users``: those that are to come and have not yet, ``come_users`` those that have. ``unflushed``:
    subscriptions of leaving users that the old epoch still serves here, by user. ``handed_over``: users that have come
    and whose old home has nothing more for them, with since when. ``ends_wanted``: topics whose END this broker waits
    for, for itself or for the children in ``end_children``. ``ends_asked``: local publishers whose END a rendezvous
    asks for. ``publishers_over``: by topic, publishers of which nothing of the old epoch follows; ``waiting_at_root``:
    what others of them have sent in the new one.
    """

    is_ring_kept: bool = False
    leaving: dict[str, int] = field(default_factory=dict)
    unheard: dict[str, float] = field(default_factory=dict)
    awaited_users: set[str] = field(default_factory=set)
    come_users: set[str] = field(default_factory=set)
    unflushed: dict[str, set[str]] = field(default_factory=dict)
    handed_over: dict[str, float] = field(default_factory=dict)
    ends_wanted: set[str] = field(default_factory=set)
    end_children: dict[str, set[str]] = field(default_factory=dict)
    ends_asked: set[str] = field(default_factory=set)
    publishers_over: set[tuple[str, str]] = field(default_factory=set)
    waiting_at_root: dict[tuple[str, str], deque[FromPublisher]] = field(default_factory=dict)
    has_ended_publishing: bool = False


class ChordEndings(ChordTrees):
    """What one broker knows of END in the plan under way. Deterministic."""

    under_way: RingPlanUnderWay | None

    # --- which ways change -------------------------------------------------------------------------------------------

    def _turns(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic has another rendezvous in the new epoch."""
        if under_way.is_ring_kept:
            return False
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return old.rendezvous(topic) != new.rendezvous(topic)

    def _ends_unasked(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if END of a topic goes to all of its tree: most need it, and asking would cost as much again."""
        if under_way.is_ring_kept:
            return False
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return self._turns(under_way, topic) or new.changes_most(old, old.rendezvous(topic))

    def _is_rerouted(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic's notifications come to this broker another way in the new epoch."""
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return not new.same_way(old, topic, self.broker)

    def _is_publisher_rerouted(self, under_way: RingPlanUnderWay, topic: str, home: str) -> bool:
        """Return True if what is published at ``home`` goes to the rendezvous another way in the new epoch."""
        old, new = self.tables[under_way.epoch_from], self.tables[under_way.epoch_to]
        return self._turns(under_way, topic) or not new.same_route(old, home, old.rendezvous(topic))

    # --- asking for END ----------------------------------------------------------------------------------------------

    def _want_end(self, topic: str) -> list[Effect]:
        """Ask for END of a topic, unless it goes to everybody anyway."""
        under_way = self.under_way
        assert under_way is not None
        entry = self.tables[under_way.epoch_from].topics.get(topic)
        if entry is None or topic in under_way.ends_wanted or self._ends_unasked(under_way, topic):
            return []
        under_way.ends_wanted.add(topic)
        if entry.parent is not None:
            ask = AskEndTopic(under_way.epoch_to, topic)
            return [] if entry.parent in self.lost_peers else [Send(entry.parent, ask)]
        publishers = self.tables[under_way.epoch_from].registered.get(topic, {})
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            effects += self._ask_end_of(under_way, topic, publisher, known)
        return effects

    def _ask_end_of(self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration) -> list[Effect]:
        """Ask a publisher's home for END, unless that sends it unasked."""
        if self._is_publisher_rerouted(under_way, topic, known.home):
            return []
        ask = AskEndPublisher(under_way.epoch_to, known.home, topic, publisher, known.connection)
        return self._route_on(self.tables[under_way.epoch_to], ask)

    def _registered(self, tables: ChordTables, message: Register) -> list[Effect]:
        """Ask a publisher that has come during the transition, too."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from or message.topic not in under_way.ends_wanted:
            return []
        known = Registration(message.connection, message.home)
        return self._ask_end_of(under_way, message.topic, message.publisher, known)

    def _accept_end_wanted(self, source: str, message: AskEndTopic) -> list[Effect]:
        """A child wants END. It does so once, also if it leaves the tree and comes back."""
        under_way = self.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        under_way.end_children.setdefault(message.topic, set()).add(source)
        entry = self.tables[under_way.epoch_from].topics.get(message.topic)
        if entry is not None and entry.is_over and source in entry.children and source not in entry.waiting:
            return [Send(source, EndTopic(under_way.epoch_from, message.topic))]
        return self._want_end(message.topic)

    def _joined(self, tables: ChordTables, topic: str, source: str) -> list[Effect]:
        """A child that has asked for END comes back: this broker may have left the tree meanwhile, too."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        return self._want_end(topic) if source in under_way.end_children.get(topic, ()) else []

    def _accept_end_asked(self, message: AskEndPublisher) -> list[Effect]:
        """The rendezvous wants END of a local publisher: at once if this broker stamps the new epoch already."""
        under_way, local = self.under_way, self.publishers.get(message.publisher)
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        if local is None or local.connection != message.connection:
            return []  # It has left, and the rendezvous is about to hear so.
        if not under_way.has_ended_publishing:
            under_way.ends_asked.add(message.publisher)
            return []
        return self._end_publisher(under_way, message.publisher)

    # --- END ---------------------------------------------------------------------------------------------------------

    def _end_publishers(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END for the local publishers of which somebody needs it, once."""
        if under_way.has_ended_publishing:
            return []
        under_way.has_ended_publishing = True
        effects: list[Effect] = []
        for publisher, local in sorted(self.publishers.items()):
            is_wanted = publisher in under_way.ends_asked or self._ends_unasked(under_way, local.topic)
            if is_wanted or self._is_publisher_rerouted(under_way, local.topic, self.broker):
                effects += self._end_publisher(under_way, publisher)
        return effects

    def _end_publisher(self, under_way: RingPlanUnderWay, publisher: str) -> list[Effect]:
        old, local = self.tables[under_way.epoch_from], self.publishers[publisher]
        root = old.rendezvous(local.topic)
        return self._route_on(old, EndPublisher(old.epoch, root, local.topic, publisher, local.connection))

    def _accept_end_of_publisher(self, message: EndPublisher) -> list[Effect]:
        """Nothing of the old epoch follows from a publisher: what it has sent in the new one goes on."""
        under_way = self.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        under_way.publishers_over.add((message.topic, message.publisher))
        return self._release_at_root(under_way, message.topic, message.publisher)

    def _release_behind(self, message: Unregister) -> list[Effect]:
        """A publisher has left in the old epoch: nothing of it follows there."""
        under_way = self.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        stay = (message.topic, message.publisher)
        under_way.publishers_over.add(stay)
        effects = self._release_at_root(under_way, *stay)
        under_way.publishers_over.discard(stay)  # The next stay under its name is another matter.
        return effects

    def _end_publishers_at(self, home: str) -> list[Effect]:
        """Nothing follows from the publishers of a broker that is dead."""
        under_way = self.under_way
        if under_way is None:
            return []
        effects: list[Effect] = []
        for topic, publishers in self.tables[under_way.epoch_from].registered.items():
            for publisher in sorted(name for name, known in publishers.items() if known.home == home):
                under_way.publishers_over.add((topic, publisher))
                effects += self._release_at_root(under_way, topic, publisher)
        return effects

    def _end_topics(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END of the topics that are ours, are wanted, and whose publishers are all over."""
        old = self.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for entry in list(old.topics.values()):
            if entry.parent is None and not entry.is_over and self._ends(under_way, entry.topic):
                known = old.registered.get(entry.topic, {})
                if all((entry.topic, publisher) in under_way.publishers_over for publisher in known):
                    effects += self._end_topic(old, entry)
        return effects

    def _ends(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if this broker waits for END of a topic."""
        return topic in under_way.ends_wanted or self._ends_unasked(under_way, topic)

    def _passes_end(self, tables: ChordTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if a child is told END of a topic."""
        under_way = self.under_way
        if under_way is None or tables.epoch != under_way.epoch_from or entry.parent in self.lost_peers:
            return True
        return self._ends_unasked(under_way, entry.topic) or peer in under_way.end_children.get(entry.topic, ())

    def _end_topic(self, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        """Nothing of a topic follows in this epoch: tell the children and the users that have moved away."""
        if entry.is_over:
            return []
        entry.is_over = True
        children = [peer for peer in entry.children if peer not in entry.waiting]
        effects: list[Effect] = [
            Send(peer, EndTopic(tables.epoch, entry.topic))
            for peer in children
            if self._passes_end(tables, entry, peer)
        ]
        return effects + self._flushed(tables, entry.subscriptions)

    def _are_ends_in(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if every END that this broker waits for has come."""
        old = self.tables[under_way.epoch_from]
        if any(not entry.is_over and self._ends(under_way, entry.topic) for entry in old.topics.values()):
            return False
        return not any(
            self._waits_at_root(topic, publisher) for topic, known in old.registered.items() for publisher in known
        )

    @property
    def held_notifications(self) -> list[Notification]:
        """What this broker holds back, as a subscribing broker and as a rendezvous."""
        under_way = self.under_way
        waiting = under_way.waiting_at_root.values() if under_way is not None else ()
        kept = [message for each in waiting for message in each if isinstance(message, Notification)]
        return super().held_notifications + kept

    # --- what waits at a rendezvous ----------------------------------------------------------------------------------

    def _waits_at_root(self, topic: str, publisher: str) -> bool:
        """Return True if what a publisher sends in the new epoch may have overtaken what it sent in the old one.

        Only where this broker is the topic's rendezvous in both.
        """
        under_way = self.under_way
        if under_way is None or (topic, publisher) in under_way.publishers_over:
            return False
        known = self.tables[under_way.epoch_from].registered.get(topic, {}).get(publisher)
        if known is None or self._turns(under_way, topic):
            return False
        return self._is_publisher_rerouted(under_way, topic, known.home)

    def _must_keep_at_root(self, topic: str, message: FromPublisher) -> bool:
        """Return True if this comes from a publisher in the new epoch and must wait."""
        under_way = self.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return False
        return self._waits_at_root(topic, message.publisher)

    def _keep_at_root(self, topic: str, message: FromPublisher) -> list[Effect]:
        under_way = self.under_way
        assert under_way is not None
        waiting = under_way.waiting_at_root.setdefault((topic, message.publisher), deque())
        if isinstance(message, Notification) and len(waiting) >= HELD_MAX:
            return [Dropped(message, HOLD_OVERFLOW)]
        waiting.append(message)
        return []

    def _release_waiting(self, under_way: PlanUnderWay) -> list[Effect]:
        assert isinstance(under_way, RingPlanUnderWay)
        effects: list[Effect] = []
        for stay in list(under_way.waiting_at_root):
            under_way.publishers_over.add(stay)
            effects += self._release_at_root(under_way, *stay)
        return effects

    def _release_at_root(self, under_way: RingPlanUnderWay, topic: str, publisher: str) -> list[Effect]:
        """Let go on what waited for the END of a publisher, in its order."""
        effects: list[Effect] = []
        for message in under_way.waiting_at_root.pop((topic, publisher), ()):
            if isinstance(message, Notification):
                effects += self._pass_down(self.tables[under_way.epoch_to], message)
            else:
                effects += self._arrive(self.tables[under_way.epoch_to], message)
        return effects

    def _pass_down(self, tables: ChordTables, notification: Notification) -> list[Effect]:
        """Pass on a notification that has come to the rendezvous of its topic."""
        raise NotImplementedError
