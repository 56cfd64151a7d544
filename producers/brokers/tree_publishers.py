"""What one broker of a tree knows of publishers: advertisements, how they are flooded, and how they end.

A part of :mod:`producers.brokers.tree_interests`, which sends the subscriptions that publishers attract.
"""

from __future__ import annotations

from abc import abstractmethod

from producers.brokers.broker_messages import Advertise, AdvertiseAck, Effect, Send, Unadvertise
from producers.brokers.match_content import Filter, intersects
from producers.brokers.tree_tables import Advertisement, Entry, RoutingTables, TreePlanUnderWay
from producers.brokers.two_epochs import TwoEpochBroker

TreeBroker = TwoEpochBroker[RoutingTables, TreePlanUnderWay]


class TreePublishers:
    """The publishers that a broker knows, by name, and those of them that it has not said to know yet."""

    def __init__(self, core: TreeBroker) -> None:
        self._core = core
        self.broker = core.broker
        self.advertisements: dict[str, Advertisement] = {}
        self.unconfirmed_advertisements: dict[str, Advertisement] = {}

    @abstractmethod
    def _forward(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        """Send a subscription to every neighbour with an advertisement it meets that does not hold it yet."""

    def _meets(self, tables: RoutingTables, filter_: Filter, epoch_min: int = -1) -> set[str]:
        """Return the publishers of an epoch that a filter meets; one that was advertised later publishes later.

        With ``epoch_min`` only those that were advertised in that epoch or later.
        """
        return {
            name
            for name, known in self.advertisements.items()
            if epoch_min <= known.epoch <= tables.epoch and intersects(known.filter_, filter_)
        }

    def learn_advertisement(self, source: str, message: Advertise) -> list[Effect]:
        """Take note of a publisher, flood that on, and send the subscriptions that it attracts.

        The next stay of a publisher waits for the end of the one before, which comes behind all that was published in
        it: so order holds across stays, and a late end cannot be taken for that of the next stay.
        """
        earlier = self.advertisements.get(message.publisher)
        if earlier is not None and earlier.connection < message.connection:
            if earlier.successor is None or earlier.successor[1].connection < message.connection:
                earlier.successor = (source, message)  # Else its client has come again since.
            return []
        if earlier is not None:
            return [Send(source, AdvertiseAck(message.epoch, message.publisher, message.connection))]
        peers = self._flood_on(message.epoch, source)
        known = Advertisement(
            message.epoch, message.publisher, message.connection, message.home, message.filter_, source, set(peers)
        )
        self.advertisements[message.publisher] = known
        self.unconfirmed_advertisements[message.publisher] = known
        effects: list[Effect] = [Send(peer, message) for peer in peers]
        met = [
            (tables, entry)
            for tables in self._core.epochs()
            if tables.epoch >= message.epoch  # It publishes in no older one, which neighbours may have retired.
            for entry in tables.entries.values()
            if intersects(message.filter_, entry.filter_)
        ]
        for _, entry in met:
            entry.meets.add(message.publisher)
        for tables, entry in met:
            effects += self._forward(tables, entry)
        known.unsettled = {
            name
            for tables in self._core.epochs()
            for name, entry in tables.entries.items()
            if not entry.is_settled and message.publisher in entry.meets
        }
        return effects

    def forget_advertisement(self, source: str, message: Unadvertise) -> list[Effect]:
        """Forget a publisher; subscriptions sent towards it stay there until they end or the next epoch."""
        known = self.advertisements.get(message.publisher)
        if known is None or known.connection != message.connection:
            later = None if known is None else known.successor
            if known is not None and later is not None and later[1].connection == message.connection:
                known.successor = None  # It has ended before its turn came.
            return []
        del self.advertisements[message.publisher]
        self.unconfirmed_advertisements.pop(message.publisher, None)
        for tables in self._core.epochs():
            for entry in tables.entries.values():
                entry.meets.discard(message.publisher)
        effects: list[Effect] = [Send(peer, message) for peer in self._flood_on(message.epoch, source)]
        return effects if known.successor is None else effects + self.learn_advertisement(*known.successor)

    def _flood_on(self, epoch: int, source: str) -> list[str]:
        """Return the living neighbours in the tree of an epoch, but for the one that a message came from."""
        neighbours, lost = self._core.tables[epoch].neighbours, self._core.lost_peers
        return [peer for peer in neighbours if peer != source and peer not in lost]

    def _homes_met(self, tables: RoutingTables, entry: Entry) -> set[str]:
        """Return the homes, in this epoch, of the publishers that an entry meets."""
        return {self.home_in(tables, name) for name in entry.meets}

    def is_advertised_here(self, publisher: str) -> bool:
        """Return True if this broker is a publisher's home in a live epoch; from others it takes no notification."""
        if publisher not in self.advertisements:
            return False
        return any(self.home_in(tables, publisher) == self.broker for tables in self._core.tables.values())

    def home_in(self, tables: RoutingTables, publisher: str) -> str:
        """Return a publisher's home in an epoch; a stay that was advertised in it has been moved by no plan to it."""
        known = self.advertisements[publisher]
        return tables.moved.get(publisher, known.home) if known.epoch < tables.epoch else known.home
