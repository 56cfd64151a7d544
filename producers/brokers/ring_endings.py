"""END on a ring: which brokers must learn, or ask, when the old epoch is over on the paths that a plan changes.

In: requests between brokers of a topic's tree and homes of publishers while a plan is under way. Out: effects. The rest
of a transition belongs to :mod:`producers.brokers.ring_change`.

Notifications of both epochs that take the same path keep their order, because links do. So END is sent only where a
path changes (:mod:`producers.brokers.ring_broker_state`). Each end of a path derives that by itself:

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
from collections.abc import Iterable

from regraft.producers.brokers.broker_messages import Dropped, Effect, Notification, Send
from regraft.producers.brokers.broker_reports import HOLD_OVERFLOW
from regraft.producers.brokers.broker_state import HELD_MAX
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_messages import (
    AskEndPublisher,
    AskEndTopic,
    EndPublisher,
    EndTopic,
    HandedOver,
    Register,
    UserDrained,
)
from regraft.producers.brokers.ring_tables import FromPublisher, Registration, RingTables, TopicEntry, TopicSubscription


class TopicEndings:
    """END at one broker for the plan under way: asked for, sent, passed on, and what users that move learn of it."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self.broker = state.broker

    # --- asking for END ----------------------------------------------------------------------------------------------

    def request_end(self, topic: str) -> list[Effect]:
        """Ask for END of a topic, unless it goes to the whole tree anyway."""
        under_way = self._state.under_way
        assert under_way is not None
        entry = self._state.tables[under_way.epoch_from].topics.get(topic)
        if entry is None or topic in under_way.awaited_ends or self._state.end_goes_to_all(under_way, topic):
            return []
        under_way.awaited_ends.add(topic)
        if entry.parent is not None:
            return [] if entry.is_over else [Send(entry.parent, AskEndTopic(under_way.epoch_to, topic))]
        publishers = self._state.tables[under_way.epoch_from].registered.get(topic, {})
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            effects += self._request_end_of(under_way, topic, publisher, known)
        return effects

    def _request_end_of(
        self, under_way: RingPlanUnderWay, topic: str, publisher: str, known: Registration
    ) -> list[Effect]:
        """Ask a publisher's home for END, unless it sends END unasked."""
        if self._state.is_publisher_rerouted(under_way, topic, known.home):
            return []
        ask = AskEndPublisher(under_way.epoch_to, known.home, topic, publisher, known.connection)
        if ask.target == self.broker:
            return self.accept_publisher_end_request(ask)
        return self._state.send_onward(self._state.tables[under_way.epoch_to], ask)

    def on_registered(self, tables: RingTables, message: Register) -> list[Effect]:
        """Ask a publisher that registers during the transition for END as well."""
        under_way = self._state.under_way
        if under_way is None or tables.epoch != under_way.epoch_from or message.topic not in under_way.awaited_ends:
            return []
        registration = Registration(message.connection, message.home)
        return self._request_end_of(under_way, message.topic, message.publisher, registration)

    def accept_topic_end_request(self, source: str, message: AskEndTopic) -> list[Effect]:
        """Handle a child's request for END, which it sends only once, even if it leaves the tree and returns."""
        under_way = self._state.under_way
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        under_way.end_children.setdefault(message.topic, set()).add(source)
        entry = self._state.tables[under_way.epoch_from].topics.get(message.topic)
        if entry is not None and entry.is_over and source in entry.children and source not in entry.waiting:
            return [Send(source, EndTopic(under_way.epoch_from, message.topic))]
        return self.request_end(message.topic)

    def on_joined(self, tables: RingTables, topic: str, source: str) -> list[Effect]:
        """Ask for END again for a child that had asked and returns: this broker may have left the tree in between."""
        under_way = self._state.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        return self.request_end(topic) if source in under_way.end_children.get(topic, ()) else []

    def accept_publisher_end_request(self, message: AskEndPublisher) -> list[Effect]:
        """Send END of a local publisher to the rendezvous that asks: at once if this broker stamps the new epoch."""
        under_way, local = self._state.under_way, self._state.here.get(message.publisher)
        if under_way is None or message.epoch != under_way.epoch_to:
            return []
        if local is None or local.connection != message.connection:
            return []  # It has left; its Unregister is on the way to the rendezvous.
        if not under_way.has_ended_publishing:
            under_way.requested_ends.add(message.publisher)
            return []
        return self.end_publisher(under_way, message.publisher)

    # --- END ---------------------------------------------------------------------------------------------------------

    def end_publisher(self, under_way: RingPlanUnderWay, publisher: str) -> list[Effect]:
        """Send END of a local publisher to the rendezvous of the old epoch, once; note it if that is this broker."""
        if publisher in under_way.ends_sent:
            return []
        under_way.ends_sent.add(publisher)
        old, local = self._state.tables[under_way.epoch_from], self._state.here[publisher]
        root = old.rendezvous(local.topic)
        if root == self.broker:
            under_way.publishers_over.add((local.topic, publisher, local.connection))
            return []
        return self._state.send_onward(old, EndPublisher(old.epoch, root, local.topic, publisher, local.connection))

    def note_ended_behind(self, tables: RingTables) -> list[Effect]:
        """End what had to come over a dead broker: nothing more has crossed it."""
        effects: list[Effect] = []
        for entry in list(tables.topics.values()):
            if entry.parent is not None and tables.is_over_from(tables.rendezvous(entry.topic)):
                effects += self.end_topic(tables, entry)
        return effects

    def end_topics(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END of the topics whose rendezvous we are, if it is wanted and all their publishers have ended."""
        old = self._state.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for entry in list(old.topics.values()):
            if entry.parent is None and not entry.is_over and self._state.awaits_end(under_way, entry.topic):
                registered = old.registered.get(entry.topic, {})
                if all(self._state.is_over(under_way, entry.topic, name, one) for name, one in registered.items()):
                    effects += self.end_topic(old, entry)
        return effects

    def end_topic(self, tables: RingTables, entry: TopicEntry) -> list[Effect]:
        """Mark a topic as over in this epoch; notify the children and the users that have moved away."""
        if entry.is_over:
            return []
        entry.is_over = True
        children = [peer for peer in entry.children if peer not in entry.waiting]
        receivers = [peer for peer in children if self._state.passes_end(tables, entry, peer)]
        effects: list[Effect] = [Send(peer, EndTopic(tables.epoch, entry.topic)) for peer in receivers]
        return effects + self.on_flushed(tables, entry.subscriptions)

    def have_ends_arrived(self, under_way: RingPlanUnderWay) -> bool:
        """Return True if every END that this broker waits for has come."""
        old = self._state.tables[under_way.epoch_from]
        if any(not entry.is_over and self._state.awaits_end(under_way, entry.topic) for entry in old.topics.values()):
            return False
        return not any(
            self._state.waits_at_root(topic, publisher)
            for topic, known in old.registered.items()
            for publisher in known
        )

    def kept_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back as a rendezvous."""
        under_way = self._state.under_way
        waiting = under_way.waiting_at_root.values() if under_way is not None else ()
        return [message for each in waiting for message in each if isinstance(message, Notification)]

    # --- users that move ---------------------------------------------------------------------------------------------

    def on_issued(self, tables: RingTables, local: TopicSubscription) -> list[Effect]:
        """Ask for END of the old epoch if the topic's path to here changes in the new one, or if its user moves."""
        under_way = self._state.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        if self._is_leaving(under_way, local):
            under_way.unflushed.setdefault(local.user, set()).add(local.subscription)
            if tables.topics[local.topic].is_over:  # END has passed here, so nothing follows.
                return self.on_flushed(tables, (local.subscription,))
        elif not self._state.is_rerouted(under_way, local.topic):
            return []
        return self.request_end(local.topic)

    def _is_leaving(self, under_way: RingPlanUnderWay, local: TopicSubscription) -> bool:
        return not local.has_ended and under_way.leaving.get(local.user) == local.connection

    def on_flushed(self, tables: RingTables, names: Iterable[str]) -> list[Effect]:
        """Notify users that have moved which of their subscriptions get nothing more here."""
        under_way = self._state.under_way
        if under_way is None or tables.epoch != under_way.epoch_from:
            return []
        effects: list[Effect] = []
        for name in names:
            local = self._state.locals.get(name)
            move = None if local is None or local.has_arrived else under_way.moves.get(local.user)
            if local is not None and move is not None and move.home_from == self.broker:
                effects.append(UserDrained(local.user, name, move.home_to))
                effects += self._note_flushed(under_way, local)
        return effects

    def _note_flushed(self, under_way: RingPlanUnderWay, local: TopicSubscription) -> list[Effect]:
        under_way.unflushed.get(local.user, set()).discard(local.subscription)
        return self.hand_over(under_way, local.user) if under_way.is_active else []

    def hand_over(self, under_way: RingPlanUnderWay, user: str) -> list[Effect]:
        """Notify a user's next home once the user has got everything here: from then on it waits only for the user.

        Not before this broker is active: until then it accepts new requests of the user.
        """
        if under_way.unflushed.get(user) or under_way.unflushed.pop(user, None) is None:
            return []
        handed_over = HandedOver(under_way.epoch_to, under_way.moves[user].home_to, user)
        if handed_over.target == self.broker:
            return self.note_handed_over(user)
        return self._state.send_onward(self._state.tables[under_way.epoch_to], handed_over)

    def note_handed_over(self, user: str) -> list[Effect]:
        """Note that the old home of an arrived user has handed over everything."""
        if self._state.under_way is not None:
            self._state.under_way.handed_over[user] = self._state.now_ms
        return []

    # --- what waits at a rendezvous ----------------------------------------------------------------------------------

    def keep_at_root(self, topic: str, message: FromPublisher) -> list[Effect]:
        """Hold back a message until END of its publisher has come in the old epoch.

        At most HELD_MAX for each publisher; a notification beyond that is dropped.
        """
        under_way = self._state.under_way
        assert under_way is not None
        waiting = under_way.waiting_at_root.setdefault((topic, message.publisher), deque())
        if isinstance(message, Notification) and len(waiting) >= HELD_MAX:
            return [Dropped(message, HOLD_OVERFLOW)]
        waiting.append(message)
        return []
