"""Topic trees of one broker of a Chord ring: joining, leaving, flushing, and publishers at their rendezvous.

In: requests of local users and publishers and control messages of neighbours. Out: effects. Every tree belongs to an
epoch; while two are live, both are kept. Notifications and the transition between epochs belong to
:mod:`producers.brokers.chord_core` and :mod:`producers.brokers.chord_transition`.

A topic's tree is the union of the greedy routes from its rendezvous to the brokers with a local subscription (paper
002, section 3). A broker joins at its parent, which joins at its own until one is reached that is part of the tree.

A subscription that ends is still owed what was published before. So a broker leaves a tree only after a flush: the
rendezvous sends a probe to each publisher of the topic, which comes back behind what the publisher had published, and
then tells the broker, behind the topic's notifications. A broker that stays in the tree anyway asks for the flush when
something more comes for subscriptions that ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlay.chord_configuration import ChordConfiguration
from producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Cancelled,
    CancelRequest,
    Confirmed,
    Effect,
    Notification,
    Send,
    SubscribeRequest,
    UnadvertiseRequest,
)
from producers.brokers.chord_messages import (
    AskFlush,
    EndTopic,
    GrantFlush,
    Join,
    JoinAck,
    Leave,
    Probe,
    ProbeBack,
    Register,
    RegisterAck,
    RoutedMessage,
    Unregister,
)
from producers.brokers.chord_tables import ChordTables, Registration, TopicEntry
from producers.brokers.match_content import Filter, Operator
from producers.brokers.two_epochs import ProtocolError, TwoEpochBroker

TOPIC = "topic"  # The attribute that subscriptions and publishers name their topic by.
ENDED_KEPT_MAX = 10_000  # So many, when no flush comes back: a publisher's home or the rendezvous has died.


def topic_of(filter_: Filter) -> str:
    """Return the topic that a filter names. Raises ProtocolError when it names none: a ring routes by topics alone."""
    for predicate in filter_:
        if predicate.attribute == TOPIC and predicate.operator is Operator.EQ:
            return str(predicate.value)
    raise ProtocolError(f"a ring routes by topic: the filter {filter_} has no predicate `{TOPIC} eq ...`")


@dataclass(slots=True)
class TopicSubscription:
    """A subscription of a local user: is it confirmed, has it ended, which epochs are still to confirm it.

    ``has_come``: by the move under way; its old home has it in the older epoch. ``epoch_min`` is the first epoch in
    which this broker serves it: what comes later of an older one, its old home has handed over.
    """

    subscription: str
    user: str
    connection: int
    topic: str
    unconfirmed_epochs: set[int]
    is_confirmed: bool = False
    has_ended: bool = False
    has_come: bool = False
    epoch_min: int = 0

    def wants(self, notification: Notification) -> bool:
        """Return True if a notification that has come is for it.

        All that was published after the confirmation comes after it, and all that was published before the end comes
        before the flush; so no clock is asked when it was published.
        """
        return self.is_confirmed and notification.epoch >= self.epoch_min


@dataclass(slots=True)
class LocalPublisher:
    """A publisher of this broker: its topic, the number of its stay, and the epochs that are still to confirm it."""

    topic: str
    connection: int
    unconfirmed_epochs: set[int] = field(default_factory=set)
    may_publish: bool = False


class ChordTrees(TwoEpochBroker[ChordTables]):
    """Trees of all live epochs at one broker. Deterministic."""

    def __init__(self, broker: str, configuration: ChordConfiguration, boot_ms: int) -> None:
        super().__init__(broker, ChordTables(broker, configuration), boot_ms)
        self.locals: dict[str, TopicSubscription] = {}
        self.publishers: dict[str, LocalPublisher] = {}

    @property
    def ended_count(self) -> int:
        """How many subscriptions that have ended wait for a flush."""
        return sum(len(entry.ended_here) for tables in self.tables.values() for entry in tables.topics.values())

    def _flushed(self, tables: ChordTables, names: Iterable[str]) -> list[Effect]:
        """Return what follows when all that an ended subscription was owed in an epoch has come; nothing here."""
        return []

    def _epochs_for(self, request: SubscribeRequest) -> list[ChordTables]:
        """Return the epochs in which a new subscription is issued: all live ones."""
        return self._epochs()

    def _passes_end(self, tables: ChordTables, entry: TopicEntry, peer: str) -> bool:
        """Return True if a child is told that a topic has ended in this epoch."""
        return True

    def _issued(self, tables: ChordTables, local: TopicSubscription) -> list[Effect]:
        """Return what follows from a subscription's being in an epoch's tree; nothing here."""
        return []

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def _subscribe(self, request: SubscribeRequest, now_ms: float) -> list[Effect]:
        name, topic = request.subscription, topic_of(request.filter_)
        if name in self.locals:
            raise ProtocolError(f"subscription {name} exists at {self.broker} already: ids are never used again")
        epochs = self._epochs_for(request)
        # An older epoch that it is not issued in must be over first: then nothing for it is published there any more.
        unconfirmed = {epoch for epoch in self.tables if epoch <= epochs[-1].epoch}
        local = TopicSubscription(name, request.client, request.connection, topic, unconfirmed)
        self.locals[name] = local
        effects: list[Effect] = []
        for tables in epochs:
            effects += self._issue(tables, local, now_ms)
        return effects

    def _issue(self, tables: ChordTables, local: TopicSubscription, now_ms: float) -> list[Effect]:
        """Enter a subscription into an epoch's tree."""
        effects: list[Effect] = []
        entry = self._entered(tables, local.topic, effects)
        entry.subscriptions[local.subscription] = None
        entry.fresh.add(local.subscription)
        return effects + self._issued(tables, local) + self._settle(local.topic, now_ms)

    def _cancel(self, request: CancelRequest) -> list[Effect]:
        local = self.locals.get(request.subscription)
        if local is None or local.has_ended:
            return []
        local.has_ended = True
        effects: list[Effect] = []
        for tables in self._epochs():
            entry = tables.topics.get(local.topic)
            if entry is None or local.subscription not in entry.subscriptions:
                continue
            if not local.is_confirmed:  # It is owed nothing.
                entry.fresh.discard(local.subscription)
                del entry.subscriptions[local.subscription]
            else:
                entry.ended_here.add(local.subscription)
                effects += self._drop_oldest_ended(entry)
            effects += self._consider_leaving(tables, entry)
        return effects + self._forget_ended((local.subscription,))

    def _drop_oldest_ended(self, entry: TopicEntry) -> list[Effect]:
        """Keep the subscriptions that wait for a flush bounded; without deaths there are never so many."""
        if len(entry.ended_here) <= ENDED_KEPT_MAX:
            return []
        oldest = next(name for name in entry.subscriptions if name in entry.ended_here)
        del entry.subscriptions[oldest]
        entry.ended_here.discard(oldest)
        return self._forget_ended((oldest,))

    def _forget_ended(self, names: Iterable[str]) -> list[Effect]:
        """Forget subscriptions that have ended and are in no tree of a live epoch any more."""
        effects: list[Effect] = []
        for name in names:
            local = self.locals.get(name)
            if local is None or not local.has_ended:
                continue
            entries = (tables.topics.get(local.topic) for tables in self.tables.values())
            if not any(entry is not None and name in entry.subscriptions for entry in entries):
                del self.locals[name]
                effects.append(Cancelled(name))
        return effects

    def _settle(self, topic: str, now_ms: float) -> list[Effect]:
        """Tell children and local users that the way from the topic's rendezvous stands, where it does."""
        effects: list[Effect] = []
        for tables in self._epochs():
            entry = tables.topics.get(topic)
            if entry is None or not entry.is_joined:
                continue
            for peer in sorted(entry.waiting):
                if self._stands_later(tables, topic, peer):
                    entry.waiting.discard(peer)
                    effects.append(Send(peer, JoinAck(tables.epoch, topic)))
                    if entry.is_over and self._passes_end(tables, entry, peer):
                        effects.append(Send(peer, EndTopic(tables.epoch, topic)))
            fresh, entry.fresh = sorted(entry.fresh), set()
            effects += self._confirm(fresh, tables.epoch, now_ms)
        return effects

    def _stands_later(self, tables: ChordTables, topic: str, peer: str) -> bool:
        """Tell whether an acknowledgement to a child holds in the later epochs that derive its place from this one."""
        later = (other.topics.get(topic) for other in self._epochs() if other.epoch > tables.epoch)
        return all(
            entry is None or entry.is_joined or peer not in entry.children or peer in entry.waiting for entry in later
        )

    def _confirm(self, names: Iterable[str], epoch: int, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for name in names:
            local = self.locals.get(name)
            if local is None:
                continue
            local.unconfirmed_epochs.discard(epoch)
            if not local.is_confirmed and not local.has_ended and not local.unconfirmed_epochs:
                local.is_confirmed = True
                effects.append(Confirmed(name))
        return effects

    # --- trees -------------------------------------------------------------------------------------------------------

    def _entered(self, tables: ChordTables, topic: str, effects: list[Effect]) -> TopicEntry:
        """Return the topic's entry; join the tree when there is none yet."""
        entry = tables.topics.get(topic)
        if entry is None:
            parent = tables.parent(topic)
            is_cut = parent in self.lost_peers  # Nothing can come any more: what waits for it must not wait for ever.
            entry = tables.topics[topic] = TopicEntry(topic, parent, is_joined=parent is None or is_cut, is_over=is_cut)
            if parent is not None and not is_cut:
                effects.append(Send(parent, Join(tables.epoch, topic, max(self.tables))))
        return entry

    def _accept_join(self, tables: ChordTables, source: str, message: Join, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        entry = self._entered(tables, message.topic, effects)
        entry.add_child(source, message.issued_max)
        entry.waiting.add(source)
        for later in self._epochs():
            if later.epoch > message.issued_max and later.same_way(tables, message.topic, source):
                self._entered(later, message.topic, effects).add_child(source, message.issued_max)
        return effects + self._joined(tables, message.topic, source) + self._settle(message.topic, now_ms)

    def _joined(self, tables: ChordTables, topic: str, source: str) -> list[Effect]:
        """Return what follows from a child's joining; nothing here."""
        return []

    def _accept_join_ack(self, tables: ChordTables, message: JoinAck, now_ms: float) -> list[Effect]:
        entry = tables.topics.get(message.topic)
        if entry is None:
            return []
        entry.is_joined = True
        for later in self._epochs():
            derived = later.topics.get(message.topic)
            if later.epoch > tables.epoch and derived is not None and derived.is_derived:
                derived.is_joined = True
        effects = self._settle(message.topic, now_ms)
        for other in self._epochs():
            joined = other.topics.get(message.topic)
            if joined is not None:
                effects += self._consider_leaving(other, joined)
        return effects

    def _accept_leave(self, tables: ChordTables, source: str, message: Leave) -> list[Effect]:
        effects: list[Effect] = []
        for other in self._epochs():
            if other is tables or other.epoch > message.issued_max:
                entry = other.topics.get(message.topic)
                if entry is not None:
                    entry.drop_child(source)
                    effects += self._consider_leaving(other, entry)
        return effects

    def _consider_leaving(self, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        """Leave a tree in which nobody is left; ask for a flush where that must come first."""
        if not entry.is_joined or entry.flushing is not None:
            return []  # It is considered again when that is over.
        is_needed = len(entry.subscriptions) > len(entry.ended_here) or bool(entry.children)
        if entry.ended_here and not is_needed:
            return self._ask_flush(tables, entry)
        if entry.subscriptions or entry.children or tables.registered.get(entry.topic):
            return []
        del tables.topics[entry.topic]
        return [] if entry.parent is None else self._leave(tables, entry.topic, entry.parent)

    def _leave(self, tables: ChordTables, topic: str, parent: str) -> list[Effect]:
        """Leave a tree at the parent, and a place in a later epoch that was derived from this one, too.

        A derived place that is still of use becomes this broker's own: the parent may be still to derive it, and will
        not when we have left. (Without this all of the next epoch is lost for whoever asks for the topic then.)
        """
        effects: list[Effect] = []
        issued_max = max(self.tables)
        for later in self._epochs():
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

    def _ask_flush(self, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        """Ask for all that was published before now, for the subscriptions that have ended."""
        if not entry.is_joined or entry.flushing is not None:
            return []
        entry.flushing = frozenset(entry.ended_here)
        root = tables.rendezvous(entry.topic)
        return self._route_on(tables, AskFlush(tables.epoch, root, entry.topic, self.broker))

    # --- flushes -----------------------------------------------------------------------------------------------------

    def _begin_flush(self, tables: ChordTables, message: AskFlush) -> list[Effect]:
        publishers = tables.registered.get(message.topic, {})
        if not publishers:
            return self._route_on(tables, GrantFlush(tables.epoch, message.asker, message.topic))
        tables.flushes[message.topic, message.asker] = set(publishers)
        effects: list[Effect] = []
        for publisher, known in sorted(publishers.items()):
            probe = Probe(tables.epoch, known.home, message.topic, publisher, message.asker)
            effects += self._route_on(tables, probe)
        return effects

    def _answer_probe(self, tables: ChordTables, message: Probe) -> list[Effect]:
        root = tables.rendezvous(message.topic)
        back = ProbeBack(tables.epoch, root, message.topic, message.publisher, message.asker)
        return self._route_on(tables, back)

    def _take_probe_back(self, tables: ChordTables, message: ProbeBack) -> list[Effect]:
        key = message.topic, message.asker
        missing = tables.flushes.get(key)
        if missing is None:
            return []
        missing.discard(message.publisher)
        if missing:
            return []
        del tables.flushes[key]
        return self._route_on(tables, GrantFlush(tables.epoch, message.asker, message.topic))

    def _end_flush(self, tables: ChordTables, message: GrantFlush) -> list[Effect]:
        entry = tables.topics.get(message.topic)
        if entry is None or entry.flushing is None:
            return []
        names, entry.flushing = sorted(entry.flushing), None
        for name in names:
            entry.subscriptions.pop(name, None)
            entry.ended_here.discard(name)
        effects = self._flushed(tables, names)
        return effects + self._forget_ended(names) + self._consider_leaving(tables, entry)

    # --- publishers --------------------------------------------------------------------------------------------------

    def _advertise(self, request: AdvertiseRequest) -> list[Effect]:
        self.publishers[request.publisher] = LocalPublisher(topic_of(request.filter_), request.connection)
        return self._register(self.tables[self.epoch], request.publisher)

    def _register(self, tables: ChordTables, publisher: str) -> list[Effect]:
        local = self.publishers[publisher]
        local.unconfirmed_epochs.add(tables.epoch)
        root = tables.rendezvous(local.topic)
        message = Register(tables.epoch, root, local.topic, publisher, local.connection, self.broker)
        return self._route_on(tables, message)

    def _accept_registration(self, tables: ChordTables, message: Register) -> list[Effect]:
        """Take note of a publisher; one whose earlier stay is still known waits for the end of that.

        That end comes behind all that was published in the earlier stay: so order holds across stays.
        """
        earlier = tables.registered.get(message.topic, {}).get(message.publisher)
        if earlier is not None and earlier.connection < message.connection:
            waiting = tables.successors.get((message.topic, message.publisher))
            if waiting is None or waiting.connection < message.connection:  # Else its client has come again since.
                tables.successors[message.topic, message.publisher] = message
            return []
        effects: list[Effect] = []
        if earlier is None:
            registration = Registration(message.connection, message.home)
            for other in self._from(tables, message.topic):
                if other.ended.get((message.topic, message.publisher), -1) >= message.connection:
                    continue  # In the later epoch, where it came another way, its end was here first.
                other.registered.setdefault(message.topic, {})[message.publisher] = registration
                self._entered(other, message.topic, effects)
            effects += self._registered(tables, message)
        ack = RegisterAck(tables.epoch, message.home, message.publisher, message.connection)
        return effects + self._route_on(tables, ack)

    def _registered(self, tables: ChordTables, message: Register) -> list[Effect]:
        """Return what follows from a publisher's coming to its rendezvous; nothing here."""
        return []

    def _confirm_publisher(self, publisher: str, connection: int, epoch: int) -> list[Effect]:
        local = self.publishers.get(publisher)
        if local is None or local.connection != connection:
            return []
        local.unconfirmed_epochs.discard(epoch)
        if local.unconfirmed_epochs or local.may_publish:
            return []
        local.may_publish = True
        return [AdvertiseConfirmed(publisher, connection)]

    def _unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        local = self.publishers.get(request.publisher)
        if local is None or local.connection != request.connection:
            return []
        del self.publishers[request.publisher]
        effects: list[Effect] = []
        for tables in self._epochs():
            root = tables.rendezvous(local.topic)
            newest = max(self.tables)
            message = Unregister(tables.epoch, root, local.topic, request.publisher, local.connection, newest)
            effects += self._route_on(tables, message)
        return effects

    def _accept_unregistration(self, tables: ChordTables, message: Unregister) -> list[Effect]:
        topic, publisher = message.topic, message.publisher
        successor = tables.successors.get((topic, publisher))
        if successor is not None and successor.connection == message.connection:
            del tables.successors[topic, publisher]  # It has ended before its turn came.
            return []
        effects: list[Effect] = []
        if tables.epoch > min(self.tables):
            tables.ended[topic, publisher] = message.connection
        for other in self._from(tables, topic):
            publishers = other.registered.get(topic, {})
            known = publishers.get(publisher)
            if other is not tables and other.epoch <= message.issued_max:
                continue
            if known is None or known.connection != message.connection:
                continue
            del publishers[publisher]
            if not publishers:
                other.registered.pop(topic, None)
            entry = other.topics.get(topic)
            effects += [] if entry is None else self._consider_leaving(other, entry)
            effects += self._next_stay(other, topic, publisher)
        return effects

    def _next_stay(self, tables: ChordTables, topic: str, publisher: str) -> list[Effect]:
        waiting = tables.successors.pop((topic, publisher), None)
        return [] if waiting is None else self._accept_registration(tables, waiting)

    def _from(self, tables: ChordTables, topic: str) -> list[ChordTables]:
        """Return an epoch and the later ones in which this broker is the topic's rendezvous: these derive from it."""
        later = [other for other in self._epochs() if other.epoch > tables.epoch]
        return [tables, *(other for other in later if other.rendezvous(topic) == self.broker)]

    # --- routing -----------------------------------------------------------------------------------------------------

    def _route_on(self, tables: ChordTables, message: RoutedMessage) -> list[Effect]:
        """Send a message one hop towards its target, or take it when this broker is it."""
        if message.target == self.broker:
            return self._arrive(tables, message)
        return [Send(tables.next_hop(message.target), message)]

    def _arrive(self, tables: ChordTables, message: RoutedMessage) -> list[Effect]:
        """Take a message that has come to its target."""
        raise NotImplementedError
