"""What one broker knows of subscriptions and publishers and how that travels: tables, advertisements, acknowledgements.

In: requests of local clients and control messages of neighbours. Out: effects. Every table belongs to an epoch; while
two are live, both are kept. Notifications and the transition between epochs belong to :mod:`producers.broker_core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from overlay.configuration import Configuration
from producers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    Cancelled,
    CancelRequest,
    Confirmed,
    Effect,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    Unadvertise,
    Unsubscribe,
    UnsubscribeAck,
)
from producers.match_content import Filter, intersects
from producers.routing_tables import LOCAL, Entry, RoutingTables
from producers.two_epochs import ProtocolError, TwoEpochBroker

GONE_PUBLISHERS_MAX = 10_000  # Tombstones that keep a late advertisement from reviving its publisher.


@dataclass(slots=True)
class LocalSubscription:
    """A subscription of a local client: when it became owed, when it ended, which epochs are still to confirm."""

    subscription: str
    unconfirmed_epochs: set[int]
    confirmed_ms: float | None = None
    cancelled_ms: float | None = None

    def wants(self, publish_ms: float) -> bool:
        """Tell whether a notification published then is owed: confirmed before it, not cancelled before it."""
        if self.confirmed_ms is None or self.confirmed_ms >= publish_ms:
            return False
        return self.cancelled_ms is None or self.cancelled_ms >= publish_ms


@dataclass(slots=True)
class Advertisement:
    """A known publisher, who told us, and what we wait for before we say that all beyond us know it."""

    publisher: str
    home: str
    filter_: Filter
    told_by: str
    unanswered: set[str]
    unsettled: set[str]


class BrokerRouting(TwoEpochBroker[RoutingTables]):
    """Tables of all live epochs and what is under way to build them. Deterministic."""

    def __init__(self, broker: str, configuration: Configuration) -> None:
        super().__init__(broker, RoutingTables(broker, configuration))
        self.locals: dict[str, LocalSubscription] = {}
        self.advertisements: dict[str, Advertisement] = {}
        self.lost_peers: set[str] = set()
        self.covered_forwards = 0
        self._unconfirmed_advertisements: dict[str, Advertisement] = {}
        self._gone_publishers: dict[str, None] = {}

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        return tuple(sorted({peer for tables in self.tables.values() for peer in tables.neighbours}))

    # --- local clients -----------------------------------------------------------------------------------------------

    def _subscribe(self, request: SubscribeRequest, now_ms: float) -> list[Effect]:
        name = request.subscription
        if name in self.locals:
            raise ProtocolError(f"subscription {name} exists at {self.broker} already: ids are never used again")
        self.locals[name] = LocalSubscription(name, set(self.tables))
        effects: list[Effect] = []
        for tables in self._epochs():
            meets = self._meets(request.filter_)
            entry = Entry(name, self.broker, request.filter_, LOCAL, meets, max(self.tables))
            tables.install(entry)
            effects += self._forward(tables, entry)
        return effects + self._settle((name,), now_ms)

    def _cancel(self, request: CancelRequest, now_ms: float) -> list[Effect]:
        name = request.subscription
        local = self.locals.get(name)
        if local is None or local.cancelled_ms is not None:
            return []
        local.cancelled_ms = request.cancelled_ms
        effects: list[Effect] = []
        for tables in self._epochs():
            effects += self._begin_leaving(tables, name)
        return effects + self._settle((name,), now_ms)

    # --- neighbours --------------------------------------------------------------------------------------------------

    def _accept_subscription(
        self, tables: RoutingTables, source: str, message: Subscribe, now_ms: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        if entry is None:
            meets = self._meets(message.filter_)
            issued_max = message.epoch_issued_max
            entry = Entry(message.subscription, message.home, message.filter_, source, meets, issued_max)
            tables.install(entry)
            effects += self._forward(tables, entry)
            effects += self._derive_later(tables, (entry,))
        entry.waiting.add(source)
        return effects + self._settle((message.subscription,), now_ms)

    def _release_subscription(
        self, tables: RoutingTables, source: str, message: Unsubscribe, now_ms: float
    ) -> list[Effect]:
        """Begin to leave in this epoch, and in a later one where the subscription also comes from ``source``."""
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        if entry is None:
            effects.append(Send(source, UnsubscribeAck(tables.epoch, message.subscription)))
        for other in self._epochs():
            held = other.entries.get(message.subscription)
            if held is not None and held.towards == source and other.epoch >= tables.epoch:
                effects += self._begin_leaving(other, message.subscription)
        return effects + self._settle((message.subscription,), now_ms)

    def _begin_leaving(self, tables: RoutingTables, name: str) -> list[Effect]:
        entry = tables.entries.get(name)
        if entry is None or entry.leaving:
            return []
        entry.leaving = True
        entry.unreleased = (entry.forwarded | entry.perhaps_derived) - self.lost_peers
        return [Send(peer, Unsubscribe(tables.epoch, name)) for peer in sorted(entry.unreleased)]

    def _forward(self, tables: RoutingTables, entry: Entry, derived_from: Entry | None = None) -> list[Effect]:
        """Send the subscription to every neighbour with an advertisement it meets that does not hold it yet.

        When the entry is derived, a neighbour to which the older one was sent derives it too (:meth:`_derive_later`),
        since the way to the home is the same there, so no message is needed.
        """
        if entry.leaving:
            return []
        homes = self._homes_met(tables, entry) - {self.broker}
        wanted = {tables.next_hop[home] for home in homes}
        effects: list[Effect] = []
        for peer in sorted(wanted - entry.forwarded - {entry.towards}):
            self.covered_forwards += tables.note_forward(entry, peer)
            if peer not in self.lost_peers and (derived_from is None or peer not in derived_from.forwarded):
                entry.unconfirmed.add(peer)
                message = Subscribe(tables.epoch, entry.subscription, entry.home, entry.filter_, entry.epoch_issued_max)
                effects.append(Send(peer, message))
        return effects

    # --- advertisements ----------------------------------------------------------------------------------------------

    def _meets(self, filter_: Filter) -> set[str]:
        return {name for name, known in self.advertisements.items() if intersects(known.filter_, filter_)}

    def _learn_advertisement(self, source: str, message: Advertise) -> list[Effect]:
        if message.publisher in self.advertisements or message.publisher in self._gone_publishers:
            return [] if source == LOCAL else [Send(source, AdvertiseAck(message.publisher))]
        peers = [peer for peer in self.live_neighbours if peer != source and peer not in self.lost_peers]
        known = Advertisement(message.publisher, message.home, message.filter_, source, set(peers), set())
        self.advertisements[message.publisher] = known
        self._unconfirmed_advertisements[message.publisher] = known
        effects: list[Effect] = [Send(peer, message) for peer in peers]
        for tables in self._epochs():
            met = [entry for entry in tables.entries.values() if intersects(message.filter_, entry.filter_)]
            for entry in met:
                entry.meets.add(message.publisher)
                effects += self._forward(tables, entry)
            effects += self._derive_later(tables, met)
        known.unsettled = {
            name
            for tables in self._epochs()
            for name, entry in tables.entries.items()
            if entry.unconfirmed and message.publisher in entry.meets
        }
        return effects

    def _forget_advertisement(self, source: str, publisher: str) -> list[Effect]:
        """Forget a publisher; subscriptions sent towards it stay there until they end or the next epoch.

        Withdrawing them now could overtake its last notifications on another link.
        """
        if publisher in self._gone_publishers:
            return []
        self._gone_publishers[publisher] = None
        while len(self._gone_publishers) > GONE_PUBLISHERS_MAX:
            del self._gone_publishers[next(iter(self._gone_publishers))]
        if self.advertisements.pop(publisher, None) is not None:
            for tables in self._epochs():
                for entry in tables.entries.values():
                    entry.meets.discard(publisher)
        return [Send(peer, Unadvertise(publisher)) for peer in self.live_neighbours if peer != source]

    # --- settling: acknowledgements and confirmations ----------------------------------------------------------------

    def _settle(self, names: Iterable[str], now_ms: float) -> list[Effect]:
        """Send every acknowledgement and confirmation that has become true for these subscriptions."""
        effects: list[Effect] = []
        for name in names:
            effects += self._settle_subscription(name, now_ms)
        for known in list(self._unconfirmed_advertisements.values()):
            known.unsettled = {name for name in known.unsettled if not self._is_settled(name, min(self.tables))}
            if not known.unanswered and not known.unsettled:
                del self._unconfirmed_advertisements[known.publisher]
                if known.told_by == LOCAL:
                    effects.append(AdvertiseConfirmed(known.publisher))
                else:
                    effects.append(Send(known.told_by, AdvertiseAck(known.publisher)))
        return effects + self._tell_prepared(now_ms)

    def _settle_subscription(self, name: str, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for tables in self._epochs():
            entry = tables.entries.get(name)
            if entry is None:
                continue
            if self._is_settled(name, tables.epoch):
                effects += [Send(peer, SubscribeAck(tables.epoch, name)) for peer in sorted(entry.waiting)]
                entry.waiting.clear()
            if entry.leaving and not entry.unreleased:
                effects += self._finish_leaving(tables, entry)
        local = self.locals.get(name)
        if local is not None:
            effects += self._settle_local(local, now_ms)
        return effects

    def _finish_leaving(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        effects: list[Effect] = [
            Send(peer, SubscribeAck(tables.epoch, entry.subscription)) for peer in sorted(entry.waiting)
        ]
        tables.remove(entry.subscription)
        if entry.towards != LOCAL:
            effects.append(Send(entry.towards, UnsubscribeAck(tables.epoch, entry.subscription)))
        return effects

    def _settle_local(self, local: LocalSubscription, now_ms: float) -> list[Effect]:
        name = local.subscription
        if local.cancelled_ms is not None:
            if any(name in tables.entries for tables in self.tables.values()):
                return []
            del self.locals[name]
            return [Cancelled(name)]
        local.unconfirmed_epochs = {
            epoch for epoch in local.unconfirmed_epochs if epoch in self.tables and not self._is_settled(name, epoch)
        }
        if local.confirmed_ms is None and not local.unconfirmed_epochs:
            local.confirmed_ms = now_ms
            return [Confirmed(name)]
        return []

    def _is_settled(self, name: str, epoch: int) -> bool:
        """Tell whether the subscription is acknowledged in this epoch and in every later live one."""
        return not any(
            tables.epoch >= epoch and name in tables.entries and tables.entries[name].unconfirmed
            for tables in self.tables.values()
        )

    # --- two epochs --------------------------------------------------------------------------------------------------

    def _derive_later(self, older: RoutingTables, entries: Iterable[Entry]) -> list[Effect]:
        """Take entries over into the next epoch's tables where the way home is the same and they are needed.

        Needed means that an advertisement they meet lies beyond this broker, seen from their home.
        """
        effects: list[Effect] = []
        for tables in self._epochs():
            if tables.epoch <= older.epoch:
                continue
            for entry in list(entries):
                if entry.leaving or entry.subscription in tables.entries or entry.epoch_issued_max >= tables.epoch:
                    continue
                if not self._same_way(tables, entry):
                    continue
                derived = Entry(
                    entry.subscription,
                    entry.home,
                    entry.filter_,
                    entry.towards,
                    set(entry.meets),
                    entry.epoch_issued_max,
                )
                derived.perhaps_derived = entry.forwarded.intersection(tables.neighbours)
                tables.install(derived)
                effects += self._forward(tables, derived, derived_from=entry)
        return effects

    def _same_way(self, tables: RoutingTables, entry: Entry) -> bool:
        if entry.towards == LOCAL:
            return True
        homeward = tables.next_hop[entry.home]
        if homeward != entry.towards:
            return False
        homes = self._homes_met(tables, entry)
        return any(home == self.broker or tables.next_hop[home] != homeward for home in homes)

    def _homes_met(self, tables: RoutingTables, entry: Entry) -> set[str]:
        """Return the homes, in this epoch, of the publishers that an entry meets."""
        return {tables.moved.get(name, self.advertisements[name].home) for name in entry.meets}
