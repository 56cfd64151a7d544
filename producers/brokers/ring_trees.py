"""Topic trees at one broker of a Chord ring: joining, leaving and flushing.

In: requests of local users and control messages from neighbours. Out: effects. Every tree belongs to an epoch; while
two are live, both trees are kept. Notifications belong to :mod:`producers.brokers.ring_routing`, the change from one
epoch to the next to :mod:`producers.brokers.ring_change`.

A topic's tree is the union of the greedy routes from its rendezvous to the brokers with a local subscription (Zhao13,
section 3). A broker joins at its parent, which joins at its own, up to one that is already part of the tree.

A subscription that ends is still owed what was published before. So a broker leaves a tree only after a flush: the
rendezvous sends a probe to each publisher of the topic, which comes back behind what the publisher had published; the
rendezvous then notifies the broker, behind the topic's notifications. A broker that stays in the tree asks for a flush
too: a topic may be quiet for long, and later notifications are not for subscriptions that have ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.producers.brokers.broker_messages import (
    Cancelled,
    CancelRequest,
    Confirmed,
    Effect,
    Send,
    SubscribeRequest,
)
from regraft.producers.brokers.broker_reports import ProtocolError
from regraft.producers.brokers.epoch_change import release_held
from regraft.producers.brokers.match_content import Filter, Operator
from regraft.producers.brokers.ring_broker_state import RingState
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import (
    AskFlush,
    EndTopic,
    FlushMessage,
    GrantFlush,
    Join,
    JoinAck,
    Leave,
    Probe,
    ProbeBack,
)
from regraft.producers.brokers.ring_tables import TOPIC, RingTables, TopicEntry, TopicSubscription

ENDED_KEPT_MAX = 10_000  # Bound if no flush comes back because a publisher's home or the rendezvous has died.


def topic_of(filter_: Filter) -> str:
    """Return the topic that a filter names. Raises ProtocolError if it names none: a ring routes by topic only."""
    for predicate in filter_:
        if predicate.attribute == TOPIC and predicate.operator is Operator.EQ:
            return str(predicate.value)
    raise ProtocolError(f"a ring routes by topic: the filter {filter_} has no predicate `{TOPIC} eq ...`")


class TopicTrees:
    """The trees of all live epochs at one broker, and the subscriptions of its users."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._endings = TopicEndings(state)
        self.broker = state.broker

    @property
    def ended_count(self) -> int:
        """Number of ended subscriptions that wait for a flush."""
        return sum(len(entry.ended_here) for tables in self._state.tables.values() for entry in tables.topics.values())

    def users_here(self) -> dict[str, int]:
        """Return the users at home here in the epoch that this broker stamps that have a subscription, with their stay.

        One that moves is at home at its next home once the broker stamps the newer epoch.
        """
        plan, here = self._state.under_way, (one for one in self._state.locals.values() if not one.has_ended)
        elsewhere = {} if plan is None else plan.leaving if plan.is_active else plan.arrived_users
        return {one.user: one.connection for one in here if elsewhere.get(one.user) != one.connection}

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest) -> list[Effect]:
        """Add a local user's new subscription to the trees of all epochs that it is issued in.

        Raises ProtocolError if its name is already in use.
        """
        name, topic = request.subscription, topic_of(request.filter_)
        if name in self._state.locals:
            raise ProtocolError(f"subscription {name} already exists at {self.broker}: ids are never reused")
        epoch_max, issued = self._epochs_for(request)
        # An older epoch without it must be retired first: then nothing for it is published there any more.
        unconfirmed = {epoch for epoch in self._state.tables if epoch <= epoch_max}
        local = TopicSubscription(name, request.client, request.connection, topic, unconfirmed)
        self._state.locals[name] = local
        effects: list[Effect] = []
        for tables in issued:
            effects += self.issue(tables, local)
        return effects

    def _epochs_for(self, request: SubscribeRequest) -> tuple[int, list[RingTables]]:
        """Return the last epoch in which a new subscription is served here, and the epochs in which it is issued.

        A user to be moved also sends the request to its next home, so here only the old epoch needs it. A broker that
        stamps the new epoch takes no new place in the old one: it would have to wait for END there again.
        """
        under_way, epochs = self._state.under_way, self._state.epochs()
        epoch_max = max(self._state.tables)
        if under_way is not None and under_way.leaving.get(request.client) == request.connection:
            epoch_max = under_way.epoch_from
        epoch_min = self._state.epoch if under_way is not None and under_way.is_active else 0
        return epoch_max, [tables for tables in epochs if epoch_min <= tables.epoch <= epoch_max]

    def issue(self, tables: RingTables, local: TopicSubscription) -> list[Effect]:
        """Add a subscription to an epoch's tree."""
        effects: list[Effect] = []
        entry = self.entered(tables, local.topic, effects)
        entry.subscriptions[local.subscription] = None
        entry.fresh.add(local.subscription)
        return effects + self._endings.on_issued(tables, local) + self.settle(local.topic)

    def cancel(self, request: CancelRequest) -> list[Effect]:
        """End a local subscription; it stays until everything owed to it has arrived."""
        local = self._state.locals.get(request.subscription)
        if local is None or local.has_ended:
            return []
        local.has_ended = True
        effects: list[Effect] = []
        for tables in self._state.epochs():
            entry = tables.topics.get(local.topic)
            if entry is None or local.subscription not in entry.subscriptions:
                continue
            if not local.is_confirmed:  # Nothing is owed to it.
                entry.fresh.discard(local.subscription)
                del entry.subscriptions[local.subscription]
                effects += self._endings.on_flushed(tables, (local.subscription,))
            else:
                entry.ended_here.add(local.subscription)
                effects += self._drop_oldest_ended(entry)
            effects += self.consider_leaving(tables, entry)
        return effects + self.forget_ended((local.subscription,))

    def _drop_oldest_ended(self, entry: TopicEntry) -> list[Effect]:
        """Keep the subscriptions that wait for a flush bounded; only deaths can cause that many."""
        if len(entry.ended_here) <= ENDED_KEPT_MAX:
            return []
        oldest = next(name for name in entry.subscriptions if name in entry.ended_here)
        del entry.subscriptions[oldest]
        entry.ended_here.discard(oldest)
        return self.forget_ended((oldest,))

    def forget_ended(self, names: Iterable[str]) -> list[Effect]:
        """Forget the subscriptions that have ended and are no longer in a tree of any live epoch."""
        effects: list[Effect] = []
        for name in names:
            local = self._state.locals.get(name)
            if local is None or not local.has_ended:
                continue
            entries = (tables.topics.get(local.topic) for tables in self._state.tables.values())
            if not any(entry is not None and name in entry.subscriptions for entry in entries):
                del self._state.locals[name]
                effects.append(Cancelled(name))
        return effects

    def settle(self, topic: str) -> list[Effect]:
        """Notify children and local users that the path from the topic's rendezvous is complete, if it is."""
        effects: list[Effect] = []
        for tables in self._state.epochs():
            entry = tables.topics.get(topic)
            if entry is None or not entry.is_joined:
                continue
            for peer in sorted(entry.waiting):
                if self._holds_later(tables, topic, peer):
                    entry.waiting.discard(peer)
                    effects.append(Send(peer, JoinAck(tables.epoch, topic)))
                    if entry.is_over and self._state.passes_end(tables, entry, peer):
                        effects.append(Send(peer, EndTopic(tables.epoch, topic)))
            fresh, entry.fresh = sorted(entry.fresh), set()
            effects += self.confirm(fresh, tables.epoch)
        return effects

    def _holds_later(self, tables: RingTables, topic: str, peer: str) -> bool:
        """Return True if an acknowledgement to a child also holds in later epochs that derive its place."""
        later = (other.topics.get(topic) for other in self._state.epochs() if other.epoch > tables.epoch)
        return all(
            entry is None or entry.is_joined or peer not in entry.children or peer in entry.waiting for entry in later
        )

    def confirm(self, names: Iterable[str], epoch: int) -> list[Effect]:
        """Note that an epoch's tree is complete for these subscriptions; confirm those for which all epochs' are."""
        effects: list[Effect] = []
        for name in names:
            local = self._state.locals.get(name)
            if local is None:
                continue
            local.unconfirmed_epochs.discard(epoch)
            if not local.is_confirmed and not local.has_ended and not local.unconfirmed_epochs:
                local.is_confirmed = True
                effects.append(Confirmed(name))
        return effects

    # --- trees -------------------------------------------------------------------------------------------------------

    def entered(self, tables: RingTables, topic: str, effects: list[Effect]) -> TopicEntry:
        """Return the topic's entry; join the tree first if there is none."""
        entry = tables.topics.get(topic)
        if entry is None:
            parent = tables.parent(topic)
            # A dead parent sends nothing: what waits for it must not wait forever.
            is_cut = parent in tables.dead
            is_over = parent is not None and tables.is_over_from(tables.rendezvous(topic))
            entry = TopicEntry(topic, parent, is_joined=parent is None or is_cut, is_over=is_over)
            tables.topics[topic] = entry
            if parent is not None and not is_cut:
                effects.append(Send(parent, Join(tables.epoch, topic, max(self._state.tables))))
        return entry

    def accept_join(self, tables: RingTables, source: str, message: Join) -> list[Effect]:
        """Accept a neighbour as a child."""
        effects: list[Effect] = []
        entry = self.entered(tables, message.topic, effects)
        entry.add_child(source, message.issued_max)
        entry.waiting.add(source)
        for later in self._state.epochs():
            if later.epoch > message.issued_max and later.same_path(tables, message.topic, source):
                self.entered(later, message.topic, effects).add_child(source, message.issued_max)
        return effects + self._endings.on_joined(tables, message.topic, source) + self.settle(message.topic)

    def accept_join_ack(self, tables: RingTables, message: JoinAck) -> list[Effect]:
        """Note that the path from the rendezvous is complete."""
        entry = tables.topics.get(message.topic)
        if entry is None:
            return []
        entry.is_joined = True
        for later in self._state.epochs():
            derived = later.topics.get(message.topic)
            if later.epoch > tables.epoch and derived is not None and derived.is_derived:
                derived.is_joined = True
        effects = self.settle(message.topic)
        for other in self._state.epochs():
            joined = other.topics.get(message.topic)
            if joined is not None:
                effects += self.consider_leaving(other, joined)
        return effects

    def accept_leave(self, tables: RingTables, source: str, message: Leave) -> list[Effect]:
        """Release a child, also in epochs that derived its place."""
        effects: list[Effect] = []
        for other in self._state.epochs():
            if other is tables or other.epoch > message.issued_max:
                entry = other.topics.get(message.topic)
                if entry is not None:
                    entry.drop_child(source)
                    effects += self.consider_leaving(other, entry)
        return effects

    def consider_leaving(self, tables: RingTables, entry: TopicEntry) -> list[Effect]:
        """Ask for a flush if a subscription has ended; leave the tree if no subscriber, child or publisher is left."""
        if not entry.is_joined or entry.flushing is not None:
            return []  # Reconsidered once joined and flushed.
        if entry.ended_here:
            entry.flushing = frozenset(entry.ended_here)
            root = tables.rendezvous(entry.topic)
            return self._pass_on(tables, AskFlush(tables.epoch, root, entry.topic, self.broker))
        if entry.subscriptions or entry.children or tables.registered.get(entry.topic):
            return []
        del tables.topics[entry.topic]
        return [] if entry.parent is None else self._leave(tables, entry.topic, entry.parent)

    def _leave(self, tables: RingTables, topic: str, parent: str) -> list[Effect]:
        """Leave a tree at the parent, and also a place in a later epoch that was derived from this one.

        A derived place that is still needed becomes this broker's own: the parent may have yet to derive it, and will
        not once we have left. (Without this, a broker that then subscribes to the topic loses everything of the next
        epoch.)
        """
        effects: list[Effect] = []
        issued_max = max(self._state.tables)
        for later in self._state.epochs():
            derived = later.topics.get(topic)
            if later.epoch <= tables.epoch or derived is None or not derived.is_derived:
                continue
            if derived.subscriptions or derived.children or later.registered.get(topic):
                derived.is_derived = derived.is_joined = False
                effects.append(Send(parent, Join(later.epoch, topic, issued_max)))
            else:
                del later.topics[topic]
                issued_max = tables.epoch
        return [Send(parent, Leave(tables.epoch, topic, issued_max)), *effects]

    # --- flushes -----------------------------------------------------------------------------------------------------

    def _pass_on(self, tables: RingTables, message: FlushMessage) -> list[Effect]:
        """Send a message of a flush one hop towards its target, or accept it if this broker is the target."""
        if message.target != self.broker:
            return self._state.send_onward(tables, message)
        return self.accept_of_flush(tables, message)

    def accept_of_flush(self, tables: RingTables, message: FlushMessage) -> list[Effect]:
        """Accept a message of a flush that has reached its target."""
        match message:
            case AskFlush():
                return self.begin_flush(tables, message)
            case Probe():
                return self.answer_probe(tables, message)
            case ProbeBack() if self._state.must_keep_at_root(message.topic, message):
                return self._endings.keep_at_root(message.topic, message)  # Behind earlier publications.
            case ProbeBack():
                return self.accept_probe_back(tables, message)
            case GrantFlush():
                return self.end_flush(tables, message) + release_held(self._state, self._state.must_hold)

    def begin_flush(self, tables: RingTables, message: AskFlush) -> list[Effect]:
        """Send a probe to every publisher of a topic, or grant the flush if it has none."""
        publishers = tables.registered.get(message.topic, {})
        if not publishers:
            return self._pass_on(tables, GrantFlush(tables.epoch, message.asker, message.topic))
        tables.flushes[message.topic, message.asker] = set(publishers)
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            probe = Probe(tables.epoch, known.home, message.topic, publisher, message.asker)
            effects += self._pass_on(tables, probe)
        return effects

    def answer_probe(self, tables: RingTables, message: Probe) -> list[Effect]:
        """Send a probe back behind its publisher's notifications."""
        root = tables.rendezvous(message.topic)
        back = ProbeBack(tables.epoch, root, message.topic, message.publisher, message.asker)
        return self._pass_on(tables, back)

    def accept_probe_back(self, tables: RingTables, message: ProbeBack) -> list[Effect]:
        """Note a returned probe; grant the flush if it is the last."""
        key = message.topic, message.asker
        missing = tables.flushes.get(key)
        if missing is None:
            return []
        missing.discard(message.publisher)
        if missing:
            return []
        del tables.flushes[key]
        return self._pass_on(tables, GrantFlush(tables.epoch, message.asker, message.topic))

    def end_flush(self, tables: RingTables, message: GrantFlush) -> list[Effect]:
        """Release the subscriptions that had ended when the flush was requested."""
        entry = tables.topics.get(message.topic)
        if entry is None or entry.flushing is None:
            return []
        names, entry.flushing = sorted(entry.flushing), None
        for name in names:
            entry.subscriptions.pop(name, None)
            entry.ended_here.discard(name)
        effects = self._endings.on_flushed(tables, names)
        return effects + self.forget_ended(names) + self.consider_leaving(tables, entry)
