"""Publishers of a Chord ring at their homes and at the rendezvous of their topics.

In: requests of local publishers and control messages. Out: effects. A publisher may publish once the rendezvous of its
topic knows it in every live epoch; until it ends, the rendezvous stays in the topic's tree. Trees belong to
:mod:`producers.brokers.ring_trees`.
"""

from __future__ import annotations

from dataclasses import replace

from regraft.producers.brokers.broker_messages import AdvertiseConfirmed, AdvertiseRequest, Effect, UnadvertiseRequest
from regraft.producers.brokers.ring_messages import Register, RegisterAck, Unregister
from regraft.producers.brokers.ring_parts import RingBroker, RingParts
from regraft.producers.brokers.ring_tables import LocalPublisher, Registration, RingTables
from regraft.producers.brokers.ring_trees import TopicTrees, topic_of


class TopicPublishers:
    """The publishers whose home this broker is, and those registered here, in all live epochs."""

    def __init__(self, core: RingBroker, ring: RingParts, trees: TopicTrees) -> None:
        self._core = core
        self._ring = ring
        self._trees = trees
        self.broker = core.broker
        self.here: dict[str, LocalPublisher] = {}

    def advertise(self, request: AdvertiseRequest) -> list[Effect]:
        """Accept a local publisher; it may publish once its rendezvous knows it."""
        self.here[request.publisher] = LocalPublisher(topic_of(request.filter_), request.connection)
        return self.register(self._core.tables[self._core.epoch], request.publisher)

    def register(self, tables: RingTables, publisher: str) -> list[Effect]:
        """Send a local publisher's registration to its rendezvous in one epoch."""
        local = self.here[publisher]
        local.unconfirmed_epochs.add(tables.epoch)
        root = tables.rendezvous(local.topic)
        message = Register(tables.epoch, root, local.topic, publisher, local.connection, self.broker)
        return self._ring.route_onward(tables, message)

    def accept_registration(self, tables: RingTables, message: Register) -> list[Effect]:
        """Note a publisher; if an earlier stay of it is still known, the new one waits for the end of that.

        That end comes behind everything published in the earlier stay, so order holds across stays.
        """
        earlier = tables.registered.get(message.topic, {}).get(message.publisher)
        if earlier is not None and earlier.connection < message.connection:
            self._let_wait(tables, message)
            return []
        effects: list[Effect] = []
        if earlier is None:
            if tables.is_gone(message.home) and tables.is_over_from(message.home):
                return []  # It has died with its home while it waited.
            registration = Registration(message.connection, message.home)
            for other in self._from(tables, message.topic):
                if other.ended.get((message.topic, message.publisher), -1) >= message.connection:
                    continue  # Its end took another path in the later epoch and came first.
                if other is not tables and not other.takes_over(tables, message.topic, message.home):
                    continue
                known = other.registered.get(message.topic, {}).get(message.publisher)
                if known is not None:  # The earlier stay may still publish there: its end there is another message.
                    if known.connection < message.connection:
                        self._let_wait(other, replace(message, epoch=other.epoch))
                    continue
                other.registered.setdefault(message.topic, {})[message.publisher] = registration
                self._trees.entered(other, message.topic, effects)
            effects += self._ring.on_registered(tables, message)
        ack = RegisterAck(tables.epoch, message.home, message.publisher, message.connection)
        return effects + self._ring.route_onward(tables, ack)

    def _let_wait(self, tables: RingTables, message: Register) -> None:
        """Let a stay wait for the end of the earlier one, unless a later stay waits."""
        waiting = tables.successors.get((message.topic, message.publisher))
        if waiting is None or waiting.connection < message.connection:
            tables.successors[message.topic, message.publisher] = message

    def confirm_publisher(self, publisher: str, connection: int, epoch: int) -> list[Effect]:
        """Note that an epoch's rendezvous knows a local publisher; let it publish once all live epochs' do."""
        local = self.here.get(publisher)
        if local is None or local.connection != connection:
            return []
        local.unconfirmed_epochs.discard(epoch)
        if local.unconfirmed_epochs or local.may_publish or local.waits:
            return []
        local.may_publish = True
        return [AdvertiseConfirmed(publisher, connection)]

    def forget_epoch(self, epoch: int) -> list[Effect]:
        """Wait for no more confirmations of an epoch that is retired or aborted.

        Stays that waited for a repair register in the epoch in force: by now its rendezvous knows every earlier stay
        that may have published.
        """
        effects: list[Effect] = []
        for publisher, local in sorted(self.here.items()):
            if local.waits and epoch < self._core.epoch:
                effects += self.register(self._core.tables[self._core.epoch], publisher)
            if local.waits or epoch in local.unconfirmed_epochs:
                local.waits = False
                effects += self.confirm_publisher(publisher, local.connection, epoch)
        return effects

    def unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        """Notify the rendezvous of every live epoch that a local publisher has ended."""
        local = self.here.get(request.publisher)
        if local is None or local.connection != request.connection:
            return []
        del self.here[request.publisher]
        effects: list[Effect] = []
        for tables in self._core.epochs():
            root = tables.rendezvous(local.topic)
            newest = max(self._core.tables)
            message = Unregister(tables.epoch, root, local.topic, request.publisher, local.connection, newest)
            effects += self._ring.route_onward(tables, message)
        return effects

    def accept_unregistration(self, tables: RingTables, message: Unregister) -> list[Effect]:
        """End a publisher's stay at its rendezvous; the next one under its name may begin."""
        topic, publisher = message.topic, message.publisher
        effects: list[Effect] = []
        if tables.epoch > min(self._core.tables):
            tables.ended[topic, publisher] = max(message.connection, tables.ended.get((topic, publisher), -1))
        for other in self._from(tables, topic):
            publishers = other.registered.get(topic, {})
            known = publishers.get(publisher)
            if other is not tables and other.epoch <= message.issued_max:
                continue
            successor = other.successors.get((topic, publisher))
            if successor is not None and successor.connection == message.connection:
                del other.successors[topic, publisher]  # It has ended while it waited.
                continue
            if known is None or known.connection != message.connection:
                continue
            del publishers[publisher]
            if not publishers:
                other.registered.pop(topic, None)
            entry = other.topics.get(topic)
            effects += [] if entry is None else self._trees.consider_leaving(other, entry)
            effects += self._next_stay(other, topic, publisher)
        return effects

    def end_lost_stays(self, tables: RingTables) -> list[Effect]:
        """End the stays of publishers whose homes are dead, behind everything that came from them in any live epoch.

        A flush of the newer epoch is granted without them, and also releases subscriptions of the older one.
        """
        newest = max(self._core.tables)
        older = [one for one in self._core.epochs() if one.epoch < tables.epoch and not one.is_outside]
        over = [
            Unregister(tables.epoch, self.broker, topic, publisher, known.connection, newest)
            for topic, publishers in sorted(tables.registered.items())
            for publisher, known in sorted(publishers.items())
            if tables.is_gone(known.home) and tables.is_over_from(known.home)
            if all(one.is_over_from(known.home) for one in older if known.home in one.configuration.place_of)
        ]
        return [effect for message in over for effect in self.accept_unregistration(tables, message)]

    def _next_stay(self, tables: RingTables, topic: str, publisher: str) -> list[Effect]:
        waiting = tables.successors.pop((topic, publisher), None)
        return [] if waiting is None else self.accept_registration(tables, waiting)

    def _from(self, tables: RingTables, topic: str) -> list[RingTables]:
        """Return this epoch and the later ones in which this broker is still the topic's rendezvous.

        The registrations of the later ones are derived from this one.
        """
        later = [other for other in self._core.epochs() if other.epoch > tables.epoch]
        return [tables, *(other for other in later if other.rendezvous(topic) == self.broker)]
