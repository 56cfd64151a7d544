"""END on a ring: which paths a plan changes, and which brokers must learn, or ask, when the old epoch is over on them.

In: requests between brokers of a topic's tree and homes of publishers while a plan is under way. Out: effects. The rest
of a transition belongs to :mod:`producers.brokers.ring_change`.

Notifications of both epochs that take the same path keep their order, because links do. So END is sent only where a
path changes. Each end of a path derives that by itself, from the two rings:

- *The rendezvous of a topic changes*, or its paths to most brokers do: all homes of its publishers send EndPublisher to
  the old one, which notifies the whole tree once it has them all.
- *The path from a publisher to the rendezvous changes*: its home sends EndPublisher; until that has come, what the
  publisher has published in the new epoch waits at the rendezvous.
- *The path from the rendezvous to a subscribing broker changes, or one of its users is to be moved*: the broker asks
  for END, from child to parent in the old tree; the rendezvous asks the homes of all publishers for it, and answers the
  brokers that asked.

Messages still in transit when an epoch is retired have the same path in the next one, and are routed by its tables.
"""

from __future__ import annotations

from collections import deque

from regraft.producers.brokers.broker_messages import Dropped, Effect, Notification, Send
from regraft.producers.brokers.ring_messages import (
    AskEndPublisher,
    AskEndTopic,
    EndPublisher,
    EndTopic,
    Register,
    Unregister,
)
from regraft.producers.brokers.ring_parts import RingBroker, RingParts
from regraft.producers.brokers.ring_publishers import TopicPublishers
from regraft.producers.brokers.ring_tables import (
    FromPublisher,
    Registration,
    RingPlanUnderWay,
    RingTables,
    TopicEntry,
)
from regraft.producers.brokers.two_epochs import HELD_MAX, HOLD_OVERFLOW


class TopicEndings:
    """The state of END at one broker for the plan under way."""

    def __init__(self, core: RingBroker, ring: RingParts, publishers: TopicPublishers) -> None:
        self._core = core
        self._ring = ring
        self._publishers = publishers
        self.broker = core.broker

    # --- which paths change ------------------------------------------------------------------------------------------

    def _changes_rendezvous(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic has another rendezvous in the new epoch."""
        if under_way.is_ring_kept:
            return False
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        root = old.rendezvous(topic)
        return root != new.rendezvous(topic) or root in new.lost

    def _end_goes_to_all(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if END of a topic goes to its whole tree: most brokers need it, and asking doubles the cost."""
        if under_way.is_ring_kept:
            return False
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return self._changes_rendezvous(under_way, topic) or new.changes_most(old, old.rendezvous(topic))

    def is_rerouted(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if the topic's notifications reach this broker over another path in the new epoch."""
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return not new.same_path(old, topic, self.broker)

    def _is_publisher_rerouted(self, under_way: RingPlanUnderWay, topic: str, home: str) -> bool:
        """Return True if notifications published at ``home`` take another path to the rendezvous in the new epoch."""
        old, new = self._core.tables[under_way.epoch_from], self._core.tables[under_way.epoch_to]
        return self._changes_rendezvous(under_way, topic) or not new.same_route(old, home, old.rendezvous(topic))

    # --- asking for END ----------------------------------------------------------------------------------------------

    def request_end(self, topic: str) -> list[Effect]:
        """Ask for END of a topic, unless it goes to the whole tree anyway."""
        under_way = self._core.under_way
        assert under_way is not None
        entry = self._core.tables[under_way.epoch_from].topics.get(topic)
        if entry is None or topic in under_way.awaited_ends or self._end_goes_to_all(under_way, topic):
            return []
        under_way.awaited_ends.add(topic)
        if entry.parent is not None:
            return [] if entry.is_over else [Send(entry.parent, AskEndTopic(under_way.epoch_to, topic))]
        publishers = self._core.tables[under_way.epoch_from].registered.get(topic, {})
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            effects += self._request_end_of(under_way, topic, publisher, known)
        return effects

    def _request_end_of(
        self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration
    ) -> list[Effect]:
        """Ask a publisher's home for END, unless it sends END unasked."""
        if self._is_publisher_rerouted(under_way, topic, known.home):
            return []
        ask = AskEndPublisher(under_way.epoch_to, known.home, topic, publisher, known.connection)
        return self._ring.route_onward(self._core.tables[under_way.epoch_to], ask)

    def on_registered(self, tables: RingTables, message: Register) -> list[Effect]:
        """Ask a publisher that registers during the transition for END as well."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from or message.topic not in under_way.awaited_ends:
            return []
        known = Registration(message.connection, message.home)
        return self._request_end_of(under_way, message.topic, message.publisher, known)

    def accept_topic_end_request(self, source: str, message: AskEndTopic) -> list[Effect]:
        """Handle a child's request for END, which it sends only once, even if it leaves the tree and returns."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        under_way.end_children.setdefault(message.topic, set()).add(source)
        entry = self._core.tables[under_way.epoch_from].topics.get(message.topic)
        if entry is not None and entry.is_over and source in entry.children and source not in entry.waiting:
            return [Send(source, EndTopic(under_way.epoch_from, message.topic))]
        return self.request_end(message.topic)

    def on_joined(self, tables: RingTables, topic: str, source: str) -> list[Effect]:
        """Ask for END again for a child that had asked and returns: this broker may have left the tree in between."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        return self.request_end(topic) if source in under_way.end_children.get(topic, ()) else []

    def accept_publisher_end_request(self, message: AskEndPublisher) -> list[Effect]:
        """Send END of a local publisher to the rendezvous that asks: at once if this broker stamps the new epoch."""
        under_way, local = self._core.under_way, self._publishers.here.get(message.publisher)
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        if local is None or local.connection != message.connection:
            return []  # It has left; its Unregister is on the way to the rendezvous.
        if not under_way.has_ended_publishing:
            under_way.requested_ends.add(message.publisher)
            return []
        return self._end_publisher(under_way, message.publisher)

    # --- END ---------------------------------------------------------------------------------------------------------

    def end_publishers(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END once for the local publishers whose END another broker needs; after a death, for all of them.

        A broker that needs END may be unable to ask: its request takes paths of the new epoch, which a death may have
        cut.
        """
        is_first, under_way.has_ended_publishing = not under_way.has_ended_publishing, True
        has_deaths = any(self._core.tables[one].ended_behind for one in (under_way.epoch_from, under_way.epoch_to))
        if not is_first and not has_deaths:
            return []
        effects: list[Effect] = []
        for publisher, local in sorted(self._publishers.here.items()):
            is_wanted = (
                has_deaths or publisher in under_way.requested_ends or self._end_goes_to_all(under_way, local.topic)
            )
            if is_wanted or self._is_publisher_rerouted(under_way, local.topic, self.broker):
                effects += self._end_publisher(under_way, publisher)
        return effects

    def _end_publisher(self, under_way: RingPlanUnderWay, publisher: str) -> list[Effect]:
        if publisher in under_way.ends_sent:
            return []
        under_way.ends_sent.add(publisher)
        old, local = self._core.tables[under_way.epoch_from], self._publishers.here[publisher]
        root = old.rendezvous(local.topic)
        return self._ring.route_onward(old, EndPublisher(old.epoch, root, local.topic, publisher, local.connection))

    def accept_end_of_publisher(self, message: EndPublisher) -> list[Effect]:
        """Release what a publisher has sent in the new epoch: nothing more of it follows in the old one."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        under_way.publishers_over.add((message.topic, message.publisher, message.connection))
        if self._waits_at_root(message.topic, message.publisher):
            return []  # It is of a later stay than the one that may still publish.
        return self._release_at_root(under_way, message.topic, message.publisher)

    def release_behind(self, message: Unregister) -> list[Effect]:
        """Release what waits for a publisher that has left in the old epoch: nothing more of it follows there."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        known = self._core.tables[under_way.epoch_from].registered.get(message.topic, {}).get(message.publisher)
        if known is None or known.connection != message.connection:
            return []  # It is about another stay than the known one, whose END may have come.
        under_way.publishers_over.add((message.topic, message.publisher, message.connection))
        return self._release_at_root(under_way, message.topic, message.publisher)

    def note_ended_behind(self, tables: RingTables) -> list[Effect]:
        """End what had to come over a dead broker: nothing more has crossed it."""
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
        """Send END of the topics whose rendezvous we are, if it is wanted and all their publishers have ended."""
        old = self._core.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for entry in list(old.topics.values()):
            if entry.parent is None and not entry.is_over and self._awaits_end(under_way, entry.topic):
                known = old.registered.get(entry.topic, {})
                if all(self._is_over(under_way, entry.topic, name, one) for name, one in known.items()):
                    effects += self.end_topic(old, entry)
        return effects

    def _is_over(self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration) -> bool:
        """Return True if nothing more of a publisher's stay in the old epoch comes here; each stay has its own END."""
        is_cut = self._core.tables[under_way.epoch_from].is_over_from(known.home)
        return is_cut or (topic, publisher, known.connection) in under_way.publishers_over

    def _awaits_end(self, under_way: RingPlanUnderWay, topic: str) -> bool:
        """Return True if this broker waits for END of a topic."""
        return topic in under_way.awaited_ends or self._end_goes_to_all(under_way, topic)

    def passes_end(self, tables: RingTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if this broker passes END of a topic on to a child."""
        under_way = self._core.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return True
        return self._end_goes_to_all(under_way, entry.topic) or peer in under_way.end_children.get(entry.topic, ())

    def end_topic(self, tables: RingTables, entry: TopicEntry) -> list[Effect]:
        """Mark a topic as over in this epoch; notify the children and the users that have moved away."""
        if entry.is_over:
            return []
        entry.is_over = True
        children = [peer for peer in entry.children if peer not in entry.waiting]
        receivers = [peer for peer in children if self.passes_end(tables, entry, peer)]
        effects: list[Effect] = [Send(peer, EndTopic(tables.epoch, entry.topic)) for peer in receivers]
        return effects + self._ring.on_flushed(tables, entry.subscriptions)

    def have_ends_arrived(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if every END that this broker waits for has come."""
        old = self._core.tables[under_way.epoch_from]
        if any(not entry.is_over and self._awaits_end(under_way, entry.topic) for entry in old.topics.values()):
            return False
        return not any(
            self._waits_at_root(topic, publisher) for topic, known in old.registered.items() for publisher in known
        )

    def kept_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back as a rendezvous."""
        under_way = self._core.under_way
        waiting = under_way.waiting_at_root.values() if under_way is not None else ()
        return [message for each in waiting for message in each if isinstance(message, Notification)]

    # --- what waits at a rendezvous ----------------------------------------------------------------------------------

    def _waits_at_root(self, topic: str, publisher: str) -> bool:
        """Return True if what a publisher sends in the new epoch may have overtaken what it sent in the old one.

        That is possible only if this broker is the topic's rendezvous in both.
        """
        under_way = self._core.under_way
        if under_way is None:
            return False
        known = self._core.tables[under_way.epoch_from].registered.get(topic, {}).get(publisher)
        if known is None or self._changes_rendezvous(under_way, topic):
            return False
        if self._is_over(under_way, topic, publisher, known):
            return False
        return self._is_publisher_rerouted(under_way, topic, known.home)

    def must_keep_at_root(self, topic: str, message: FromPublisher) -> bool:
        """Return True if a publisher sent this in the new epoch and it must wait."""
        under_way = self._core.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return False
        return self._waits_at_root(topic, message.publisher)

    def keep_at_root(self, topic: str, message: FromPublisher) -> list[Effect]:
        """Hold back a message until END of its publisher has come in the old epoch.

        At most HELD_MAX for each publisher; a notification beyond that is dropped.
        """
        under_way = self._core.under_way
        assert under_way is not None
        waiting = under_way.waiting_at_root.setdefault((topic, message.publisher), deque())
        if isinstance(message, Notification) and len(waiting) >= HELD_MAX:
            return [Dropped(message, HOLD_OVERFLOW)]
        waiting.append(message)
        return []

    def release_waiting(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Release everything that waits at this rendezvous, even though END has not come."""
        effects: list[Effect] = []
        registered = self._core.tables[under_way.epoch_from].registered
        for topic, publisher in list(under_way.waiting_at_root):
            known = registered.get(topic, {}).get(publisher)
            if known is not None:
                under_way.publishers_over.add((topic, publisher, known.connection))
            effects += self._release_at_root(under_way, topic, publisher)
        return effects

    def _release_at_root(self, under_way: RingPlanUnderWay, topic: str, publisher: str) -> list[Effect]:
        """Release what waited for END of a publisher, in order."""
        effects: list[Effect] = []
        for message in under_way.waiting_at_root.pop((topic, publisher), ()):
            if isinstance(message, Notification):
                effects += self._ring.pass_down(self._core.tables[under_way.epoch_to], message)
            else:
                effects += self._ring.arrive(self._core.tables[under_way.epoch_to], message)
        return effects
