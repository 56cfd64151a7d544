"""Publishers of a Chord ring at their homes and at the rendezvous of their topics.

In: requests of local publishers and control messages. Out: effects. A publisher may publish once the rendezvous of its
topic knows it in every live epoch; until it ends, the rendezvous stays in the topic's tree. While a plan is under way,
the rendezvous holds back what a publisher sends in the new epoch if END of the old one has yet to come by another path.
Trees belong to :mod:`producers.brokers.ring_trees`, END itself to :mod:`producers.brokers.ring_endings`.
"""

from __future__ import annotations

from dataclasses import replace

from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Effect,
    Notification,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_state import PublisherRequest
from regraft.producers.brokers.epoch_change import rejected
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_descent import TopicDescent
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import (
    AskEndPublisher,
    EndPublisher,
    ProbeBack,
    PublisherMessage,
    Register,
    RegisterAck,
    Unregister,
)
from regraft.producers.brokers.ring_tables import LocalPublisher, Registration, RingTables
from regraft.producers.brokers.ring_trees import TopicTrees, topic_of


class TopicPublishers:
    """The publishers whose home this broker is, and those registered here, in all live epochs."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._descent = TopicDescent(state)
        self._endings = TopicEndings(state)
        self._trees = TopicTrees(state)
        self.broker = state.broker

    def serve(self, request: PublisherRequest) -> list[Effect]:
        """Handle a request of a local publisher."""
        if isinstance(request, UnadvertiseRequest):
            self._state.drop_postponed(request)
            return self._unadvertise(request)
        if not self._state.takes_clients:
            return rejected(request)
        if self._state.under_way is not None:
            # A broker that drains an epoch must know all its publishers.
            return self._state.postpone(request)
        return self._advertise(request)

    def serve_postponed(self) -> list[Effect]:
        """Serve the postponed requests; those that must wait longer are kept again, in order."""
        return [effect for request in self._state.take_postponed() for effect in self.serve(request)]

    def accept(self, tables: RingTables, message: PublisherMessage) -> list[Effect]:
        """Accept a message about a publisher that has reached its target."""
        match message:
            case Register():
                return self.accept_registration(tables, message)
            case RegisterAck():
                return self.confirm_publisher(message.publisher, message.connection, tables.epoch)
            case Unregister():
                return self._accept_end_of_stay(tables, message)
            case EndPublisher():
                return self.accept_end_of_publisher(message)
            case AskEndPublisher():
                return self._endings.accept_publisher_end_request(message)

    def _pass_on(self, tables: RingTables, message: PublisherMessage) -> list[Effect]:
        """Send a message one hop towards its target, or accept it if this broker is the target."""
        return (
            self.accept(tables, message) if message.target == self.broker else self._state.send_onward(tables, message)
        )

    def _accept_end_of_stay(self, tables: RingTables, message: Unregister) -> list[Effect]:
        if self._state.must_keep_at_root(message.topic, message):
            return self._endings.keep_at_root(message.topic, message)  # Behind earlier publications.
        return self._release_behind(message) + self.accept_unregistration(tables, message)

    def _advertise(self, request: AdvertiseRequest) -> list[Effect]:
        """Accept a local publisher; it may publish once its rendezvous knows it."""
        self._state.here[request.publisher] = LocalPublisher(topic_of(request.filter_), request.connection)
        return self.register(self._state.tables[self._state.epoch], request.publisher)

    def register(self, tables: RingTables, publisher: str) -> list[Effect]:
        """Send a local publisher's registration to its rendezvous in one epoch."""
        local = self._state.here[publisher]
        local.unconfirmed_epochs.add(tables.epoch)
        root = tables.rendezvous(local.topic)
        message = Register(tables.epoch, root, local.topic, publisher, local.connection, self.broker)
        return self._pass_on(tables, message)

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
                registered = other.registered.get(message.topic, {}).get(message.publisher)
                if registered is not None:  # The earlier stay may publish there still: its end is another message.
                    if registered.connection < message.connection:
                        self._let_wait(other, replace(message, epoch=other.epoch))
                    continue
                other.registered.setdefault(message.topic, {})[message.publisher] = registration
                self._trees.entered(other, message.topic, effects)
            effects += self._endings.on_registered(tables, message)
        ack = RegisterAck(tables.epoch, message.home, message.publisher, message.connection)
        return effects + self._pass_on(tables, ack)

    def _let_wait(self, tables: RingTables, message: Register) -> None:
        """Let a stay wait for the end of the earlier one, unless a later stay waits."""
        waiting = tables.successors.get((message.topic, message.publisher))
        if waiting is None or waiting.connection < message.connection:
            tables.successors[message.topic, message.publisher] = message

    def confirm_publisher(self, publisher: str, connection: int, epoch: int) -> list[Effect]:
        """Note that an epoch's rendezvous knows a local publisher; let it publish once all live epochs' do."""
        local = self._state.here.get(publisher)
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
        for publisher, local in sorted(self._state.here.items()):
            if local.waits and epoch < self._state.epoch:
                effects += self.register(self._state.tables[self._state.epoch], publisher)
            if local.waits or epoch in local.unconfirmed_epochs:
                local.waits = False
                effects += self.confirm_publisher(publisher, local.connection, epoch)
        return effects

    def _unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        """Notify the rendezvous of every live epoch that a local publisher has ended."""
        local = self._state.here.get(request.publisher)
        if local is None or local.connection != request.connection:
            return []
        del self._state.here[request.publisher]
        effects: list[Effect] = []
        for tables in self._state.epochs():
            root = tables.rendezvous(local.topic)
            newest = max(self._state.tables)
            message = Unregister(tables.epoch, root, local.topic, request.publisher, local.connection, newest)
            effects += self._pass_on(tables, message)
        return effects

    def accept_unregistration(self, tables: RingTables, message: Unregister) -> list[Effect]:
        """End a publisher's stay at its rendezvous; the next one under its name may begin."""
        topic, publisher = message.topic, message.publisher
        effects: list[Effect] = []
        if tables.epoch > min(self._state.tables):
            tables.ended[topic, publisher] = max(message.connection, tables.ended.get((topic, publisher), -1))
        for other in self._from(tables, topic):
            publishers = other.registered.get(topic, {})
            registration = publishers.get(publisher)
            if other is not tables and other.epoch <= message.issued_max:
                continue
            successor = other.successors.get((topic, publisher))
            if successor is not None and successor.connection == message.connection:
                del other.successors[topic, publisher]  # It has ended while it waited.
                continue
            if registration is None or registration.connection != message.connection:
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
        newest = max(self._state.tables)
        older = [one for one in self._state.epochs() if one.epoch < tables.epoch and not one.is_outside]
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
        later = [other for other in self._state.epochs() if other.epoch > tables.epoch]
        return [tables, *(other for other in later if other.rendezvous(topic) == self.broker)]

    # --- what waits here, as the rendezvous, for END in the old epoch ------------------------------------------------

    def end_publishers(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Send END once for the local publishers whose END another broker needs; after a death, for all of them.

        A broker that needs END may be unable to ask: its request takes paths of the new epoch, which a death may have
        cut.
        """
        is_first, under_way.has_ended_publishing = not under_way.has_ended_publishing, True
        has_deaths = any(self._state.tables[one].ended_behind for one in (under_way.epoch_from, under_way.epoch_to))
        if not is_first and not has_deaths:
            return []
        old, effects = self._state.tables[under_way.epoch_from], list[Effect]()
        for publisher, local in sorted(self._state.here.items()):
            is_wanted = (
                has_deaths
                or publisher in under_way.requested_ends
                or self._state.end_goes_to_all(under_way, local.topic)
            )
            if is_wanted or self._state.is_publisher_rerouted(under_way, local.topic, self.broker):
                effects += self._endings.end_publisher(under_way, publisher)
                if old.rendezvous(local.topic) == self.broker:
                    effects += self._release_if_over(under_way, local.topic, publisher)
        return effects

    def accept_end_of_publisher(self, message: EndPublisher) -> list[Effect]:
        """Release what a publisher has sent in the new epoch: nothing more of it follows in the old one."""
        under_way = self._state.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        under_way.publishers_over.add((message.topic, message.publisher, message.connection))
        return self._release_if_over(under_way, message.topic, message.publisher)

    def _release_if_over(self, under_way: RingPlanUnderWay, topic: str, publisher: str) -> list[Effect]:
        """Release what waits for END of a publisher, unless that was of a later stay than the one still publishing."""
        return [] if self._state.waits_at_root(topic, publisher) else self._release_at_root(under_way, topic, publisher)

    def _release_behind(self, message: Unregister) -> list[Effect]:
        """Release what waits for a publisher that has left in the old epoch: nothing more of it follows there."""
        under_way = self._state.under_way
        if under_way is None or message.epoch != under_way.epoch_from:
            return []
        registration = self._state.tables[under_way.epoch_from].registered.get(message.topic, {}).get(message.publisher)
        if registration is None or registration.connection != message.connection:
            return []  # It is about another stay than the known one, whose END may have come.
        under_way.publishers_over.add((message.topic, message.publisher, message.connection))
        return self._release_at_root(under_way, message.topic, message.publisher)

    def release_waiting(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Release everything that waits at this rendezvous, even though END has not come."""
        effects: list[Effect] = []
        registered = self._state.tables[under_way.epoch_from].registered
        for topic, publisher in list(under_way.waiting_at_root):
            registration = registered.get(topic, {}).get(publisher)
            if registration is not None:
                under_way.publishers_over.add((topic, publisher, registration.connection))
            effects += self._release_at_root(under_way, topic, publisher)
        return effects

    def _release_at_root(self, under_way: RingPlanUnderWay, topic: str, publisher: str) -> list[Effect]:
        """Release what waited for END of a publisher, in order."""
        effects: list[Effect] = []
        for message in under_way.waiting_at_root.pop((topic, publisher), ()):
            if isinstance(message, Notification):
                effects += self._descent.pass_down(self._state.tables[under_way.epoch_to], message)
            elif isinstance(message, ProbeBack):
                effects += self._trees.accept_of_flush(self._state.tables[under_way.epoch_to], message)
            else:
                effects += self._accept_end_of_stay(self._state.tables[under_way.epoch_to], message)
        return effects

    def release_ended_behind(self, tables: RingTables) -> list[Effect]:
        """Release what waits for END of publishers that had to come over a dead broker: nothing more has crossed it."""
        under_way, effects = self._state.under_way, list[Effect]()
        if under_way is not None and tables.epoch == under_way.epoch_from:
            for stay in [one for one in under_way.waiting_at_root if not self._state.waits_at_root(*one)]:
                effects += self._release_at_root(under_way, *stay)
        return effects
