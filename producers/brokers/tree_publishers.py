"""What one broker of a tree knows of publishers: advertisements, how they are flooded, and how they end.

A part of :mod:`producers.brokers.tree_interests`, which sends the subscriptions that publishers attract.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from regraft.producers.brokers.broker_messages import Advertise, AdvertiseAck, Effect, PublisherTaken, Send, Unadvertise
from regraft.producers.brokers.content_moves import ContentInterests
from regraft.producers.brokers.match_content import Filter, intersects
from regraft.producers.brokers.tree_repairs import TreeRepairs
from regraft.producers.brokers.tree_tables import (
    LOCAL,
    Advertisement,
    Entry,
    RoutingTables,
    TreePlanUnderWay,
    TreeState,
)


class TreePublishers(ContentInterests[RoutingTables, TreePlanUnderWay]):
    """The publishers that a broker knows, by name, and those that it has not acknowledged yet."""

    def __init__(self, state: TreeState) -> None:
        super().__init__(state)
        self.advertisements: dict[str, Advertisement] = {}
        self.unconfirmed_advertisements: dict[str, Advertisement] = {}
        self.repairs = TreeRepairs(state, self.advertisements)

    @abstractmethod
    def _forward(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        """Send a subscription to each neighbour towards a matching advertisement that does not hold it yet."""

    def _matching(self, tables: RoutingTables, filter_: Filter, epoch_min: int = -1) -> set[str]:
        """Return the publishers of an epoch that match a filter, without those advertised in later epochs.

        With ``epoch_min``, return only those that were advertised in that epoch or later.
        """
        return {
            name
            for name, known in self.advertisements.items()
            if epoch_min <= known.epoch <= tables.epoch and intersects(known.filter_, filter_)
        }

    def learn_advertisement(self, source: str, message: Advertise) -> list[Effect]:
        """Note a publisher, flood its advertisement, and send the subscriptions that it attracts.

        The next stay of a publisher waits for the end of the previous one, which comes behind everything published in
        it. So order holds across stays, and a late end cannot be mistaken for that of the next stay.
        """
        if message.epoch not in self._state.tables:  # It has waited for the end of the earlier stay.
            message = replace(message, epoch=min(self._state.tables))
        earlier, effects = self.advertisements.get(message.publisher), list[Effect]()
        waiting = None if earlier is None else earlier.successor
        if message.home in self._state.tables[message.epoch].dead:
            return [Send(source, AdvertiseAck(message.epoch, message.publisher, message.connection))]
        self.repairs.note_announced(message)
        if earlier is not None and self.repairs.supersedes(earlier, message):
            effects += self._replace_stay(earlier, source, message)
            earlier = None
        if earlier is not None and earlier.connection < message.connection:
            if waiting is None or _order(waiting[1]) < _order(message):
                earlier.successor = (source, message)  # Else a later stay waits.
            return []
        if earlier is not None:
            ack = Send(source, AdvertiseAck(message.epoch, message.publisher, message.connection))
            return [ack, *self.repairs.pass_late_announcement(earlier, message, source)]
        sends = self.repairs.flood(message, source) + self.repairs.forward(message)
        asked = {send.peer for send in sends} - {source}  # Its announcer already knows it.
        advertisement = Advertisement(
            message.epoch, message.publisher, message.connection, message.home, message.filter_, source, asked
        )
        advertisement.successor = (
            waiting if waiting is not None and waiting[1].connection > message.connection else None
        )
        self.advertisements[message.publisher] = advertisement
        self.unconfirmed_advertisements[message.publisher] = advertisement
        effects += sends
        effects += self._send_matching(message)
        if source != LOCAL and message.home == self.broker and message.epoch <= self._state.epoch:
            # It was unknown when this broker took over the clients that moved here, and may have ended since.
            effects.append(PublisherTaken(message.publisher, message.connection))
        advertisement.unsettled = {
            name
            for tables in self._state.epochs()
            for name, entry in tables.entries.items()
            if not entry.is_settled and message.publisher in entry.matching
        }
        return effects

    def _send_matching(self, message: Advertise) -> list[Effect]:
        """Send the subscriptions that a publisher matches towards it."""
        met = [
            (tables, entry)
            for tables in self._state.epochs()
            if tables.epoch >= message.epoch  # It does not publish in older ones, which neighbours may have retired.
            for entry in tables.entries.values()
            if intersects(message.filter_, entry.filter_)
        ]
        for _, entry in met:
            entry.matching.add(message.publisher)
        return [effect for tables, entry in met for effect in self._forward(tables, entry)]

    def forget_advertisement(self, source: str, message: Unadvertise) -> list[Effect]:
        """Forget a publisher; subscriptions sent towards it stay there until they end or the epoch does."""
        advertisement = self.advertisements.get(message.publisher)
        self.repairs.note_end(message)
        if advertisement is None or advertisement.connection != message.connection:
            later = None if advertisement is None else advertisement.successor
            if advertisement is not None and later is not None and later[1].connection == message.connection:
                advertisement.successor = None  # It has ended while it waited.
            return [*self.repairs.flood(message, source)]  # A newer epoch, even an aborted one, may have announced it.
        is_awaited = advertisement.epoch < message.epoch and message.publisher in self.unconfirmed_advertisements
        self.forget_stay(message.publisher)
        self.repairs.keep_for_abort(advertisement, message.epoch)
        effects: list[Effect] = [*self.repairs.flood(message, source), *self.repairs.forward(message)]
        effects += self.repairs.return_end(source, message)
        if is_awaited and advertisement.announcer != LOCAL:  # In that epoch its announcer may not learn of the end.
            effects.append(
                Send(advertisement.announcer, AdvertiseAck(advertisement.epoch, message.publisher, message.connection))
            )
        return (
            effects if advertisement.successor is None else effects + self.learn_advertisement(*advertisement.successor)
        )

    def _replace_stay(self, earlier: Advertisement, source: str, message: Advertise) -> list[Effect]:
        """Replace a known stay by the announced one; an earlier stay is ended on all brokers that know it."""
        if earlier.connection < message.connection:
            earlier.successor = None
            return self.forget_advertisement(source, Unadvertise(message.epoch, message.publisher, earlier.connection))
        was_awaited = message.publisher in self.unconfirmed_advertisements
        self.forget_stay(message.publisher)
        ack = AdvertiseAck(earlier.epoch, message.publisher, earlier.connection)
        return [Send(earlier.announcer, ack)] if was_awaited else []

    def forget_stay(self, publisher: str) -> None:
        """Forget a publisher that has ended, or whose home has died."""
        advertisement = self.advertisements.pop(publisher)
        self.unconfirmed_advertisements.pop(publisher, None)
        self.repairs.forget(publisher, advertisement.connection)
        for tables in self._state.epochs():
            for entry in tables.entries.values():
                entry.matching.discard(publisher)

    def forget_dead_homes(self) -> list[Effect]:
        """Forget the publishers whose home has died, unless the plan under way gives them another one."""
        effects: list[Effect] = []
        oldest, newest = self._state.epochs()[0], self._state.epochs()[-1]
        self.repairs.forget_announced_late(oldest.dead)
        for name, known in list(self.advertisements.items()):
            tables = self._state.tables[max(known.epoch, oldest.epoch)]
            home = self.home_in(newest, name)
            if known.home in tables.dead and (home == known.home or home in newest.dead):
                self.forget_stay(name)
                effects += [] if known.successor is None else self.learn_advertisement(*known.successor)
        return effects

    def restore(self, known: Advertisement) -> None:
        """Restore a publisher as it was known before an aborted plan."""
        self.advertisements[known.publisher] = known
        for tables in self._state.epochs():
            for entry in tables.entries.values():
                if intersects(known.filter_, entry.filter_):
                    entry.matching.add(known.publisher)

    def begin_repair(self) -> list[Effect]:
        """Announce all known publishers over new links, and drop earlier stays whose end can no longer come."""
        repair = self.repairs.repair
        if repair is None:
            return []
        effects: list[Effect] = []
        for known in list(self.advertisements.values()):
            if known.successor is not None and known.home not in repair.near:
                effects += self.learn_advertisement(*known.successor)
        for name, known in sorted(self.advertisements.items()):
            sends = self.repairs.forward(
                Advertise(repair.epoch_from, name, known.connection, known.home, known.filter_)
            )
            repair.unacknowledged |= {(send.peer, name, known.connection) for send in sends}
            effects += sends
        return effects

    def forget_ended(self) -> list[Effect]:
        """Forget the stays that have ended, on all brokers that know them."""
        effects: list[Effect] = []
        for peer, name, connection in self.repairs.ended:
            end = Unadvertise(self._state.epoch, name, connection)
            effects += self.forget_advertisement(peer, end)
        self.repairs.ended = []
        return effects

    def abort_repair(self, gone: RoutingTables, under_way: TreePlanUnderWay) -> list[Effect]:
        """Revert what was announced in an aborted epoch; admit stays of the older one that waited for it."""
        waiting: list[tuple[str, Advertise]] = []
        for name, known in list(self.advertisements.items()):
            if known.successor is not None and known.successor[1].epoch == gone.epoch:
                known.successor = None
            if known.epoch == gone.epoch:
                self.forget_stay(name)
                waiting += [] if known.successor is None else [known.successor]
            known.unanswered -= gone.fresh
        for name, known in under_way.superseded.items():
            if name not in self.advertisements:
                self.restore(known)
        return [effect for one in waiting for effect in self.learn_advertisement(*one)]

    def forget_publishers(self) -> None:
        """Forget all publishers: an outsider is not notified of their ends."""
        self.advertisements.clear()
        self.unconfirmed_advertisements.clear()
        self.repairs.announced_late.clear()

    def publishers_here(self) -> dict[str, int]:
        """Return the publishers whose home this broker is in the epoch that it stamps, or will be, with their stays."""
        live = [tables for tables in self._state.epochs() if tables.epoch >= self._state.epoch]
        return {
            name: one.connection
            for name, one in self.advertisements.items()
            if any(self.home_in(tables, name) == self.broker for tables in live)
        }

    def _matching_homes(self, tables: RoutingTables, entry: Entry) -> set[str]:
        """Return the homes, in this epoch, of the publishers that an entry matches."""
        return {self.home_in(tables, name) for name in entry.matching}

    def is_advertised_here(self, publisher: str) -> bool:
        """Return True if this broker is a publisher's home in a live epoch; it refuses notifications of all others."""
        if publisher not in self.advertisements:
            return False
        return any(self.home_in(tables, publisher) == self.broker for tables in self._state.tables.values())

    def home_in(self, tables: RoutingTables, publisher: str) -> str:
        """Return a publisher's home in an epoch; the plan to an epoch does not move stays advertised in it."""
        advertisement = self.advertisements[publisher]
        home = advertisement.home
        return tables.moved.get(publisher, home) if advertisement.epoch < tables.epoch else home


def _order(message: Advertise) -> tuple[int, int]:
    """Return the precedence of an advertisement: the later stay, then the one that no abort reverts."""
    return message.connection, -message.epoch
