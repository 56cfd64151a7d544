"""What one broker of a structured cyclic overlay knows of subscriptions and publishers, and how that knowledge spreads.

In: requests of local clients and control messages from neighbours. Out: effects. A subscription goes to all brokers of
its cluster, an advertisement only to those of its home's region. Every table belongs to an epoch; while two are live,
both are kept, and each is filled by its own messages. Only a plan that moves publishers alone keeps the subscriptions:
one table of them serves both epochs, and a message about one counts for both. Notifications belong to
:mod:`producers.brokers.scot_routing`, the change from one epoch to the next to :mod:`producers.brokers.scot_change`.
"""

from __future__ import annotations

from collections import deque

from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    ArriveRequest,
    Cancelled,
    Confirmed,
    Effect,
    Send,
    Subscribe,
    SubscribeAck,
    SubscriberAwaited,
    SubscribeRequest,
    Unadvertise,
    Unsubscribe,
    VectorAck,
    VectorBit,
)
from regraft.producers.brokers.content_moves import ContentInterests, are_ready, subscribers_here
from regraft.producers.brokers.match_content import Filter, intersects
from regraft.producers.brokers.scot_tables import (
    LOCAL,
    Entry,
    Hosted,
    Remote,
    ScotPlanUnderWay,
    ScotState,
    ScotTables,
    Stay,
)

LINGER_MS = 30_000.0  # Ended subscriptions are served this long: longer than any path over congested links takes.


class ScotInterests(ContentInterests[ScotTables, ScotPlanUnderWay]):
    """Subscriptions and publishers in the tables of all live epochs, and the local clients across them."""

    def __init__(self, state: ScotState) -> None:
        super().__init__(state)
        self.may_publish: set[Stay] = set()  # Local publishers that know they may.
        self._ended: deque[tuple[float, str]] = deque()

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended and are served a while longer."""
        return len(self._ended)

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and subscribers whose home this broker is, with the number of their stay."""
        return subscribers_here(self.locals, self._state.under_way) | self.publishers_here()

    def publishers_here(self) -> dict[str, int]:
        """Return the publishers whose home this broker is in the epoch that it stamps, or will be."""
        live = [tables for tables in self._state.epochs() if tables.epoch >= self._state.epoch]
        return {name: one.connection for tables in live for name, one in tables.hosted.items()}

    def only_subscribes(self, client: str) -> bool:
        """Return True for a subscription here whose name no publisher here has: clients choose names."""
        return client in self.locals and client not in self.publishers_here()

    # --- local subscriptions -----------------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest) -> list[Effect]:
        """Issue a subscription of a local client in all live epochs.

        Raises ProtocolError if its name is already in use.
        """
        name, interests = request.subscription, self._interests()
        self._add_local(request, {tables.interest for tables in interests})
        return [effect for tables in interests for effect in self.issue(tables, name, request.filter_)]

    def issue_arrived(self, tables: ScotTables, request: ArriveRequest) -> list[Effect]:
        """Issue a subscription that a plan brings here, in the tables of its epoch alone."""
        self._add_local(request, {tables.epoch})
        return self.issue(tables, request.subscription, request.filter_)

    def issue(self, tables: ScotTables, name: str, filter_: Filter) -> list[Effect]:
        """Announce a local subscription in the cluster of an epoch."""
        return self.learn(tables, LOCAL, name, filter_, self.broker)

    def _end(self, subscription: str) -> list[Effect]:
        """Serve it a while longer; a plan stops waiting to move it."""
        self._ended.append((self._state.now_ms, subscription))
        return []

    def release_ended(self) -> list[Effect]:
        """Forget, on all brokers, the subscriptions that ended long ago."""
        effects: list[Effect] = []
        while self._ended and self._state.now_ms - self._ended[0][0] > LINGER_MS:
            subscription = self._ended.popleft()[1]
            if self.locals.pop(subscription, None) is None:
                continue  # It has moved elsewhere.
            for tables in self._interests():
                effects += self.forget(tables, LOCAL, subscription)
            effects.append(Cancelled(subscription))
        return effects

    # --- subscriptions of the cluster --------------------------------------------------------------------------------

    def learn(self, tables: ScotTables, source: str, name: str, filter_: Filter, home: str) -> list[Effect]:
        """Install a subscription, pass it on in the cluster, and notify the hosts of matching publishers."""
        if name in tables.entries:
            return []  # From a rival's plan for the same epoch: both will be aborted.
        beyond = {peer for peer in tables.within if peer != source and peer not in tables.dead}
        tables.index.add(name, filter_, source)
        entry = tables.entries[name] = Entry(filter_, source, set(beyond), set())
        message = Subscribe(tables.interest, name, home, filter_, tables.interest)
        effects: list[Effect] = [Send(peer, message) for peer in sorted(beyond)]
        for live in self._epochs_with(tables):
            for stay, remote in live.remotes.items():
                if intersects(remote.filter_, filter_):
                    effects += [] if remote.is_wanted else self.report_wanted(live, stay)
                    if remote.unanswered:
                        entry.awaited_bits.add((live.epoch, stay))
        return effects + self.acknowledge(tables, name)

    def accept_ack(self, tables: ScotTables, source: str, name: str) -> list[Effect]:
        """Note that a subscription has reached all brokers beyond a neighbour and the hosts that it concerns."""
        if name in tables.entries:
            tables.entries[name].awaited.discard(source)
        return self.acknowledge(tables, name)

    def acknowledge(self, tables: ScotTables, name: str) -> list[Effect]:
        """Acknowledge a subscription to its sender once it waits for nothing more."""
        entry = tables.entries.get(name)
        if entry is None or entry.is_confirmed or entry.awaited or entry.awaited_bits:
            return []
        entry.is_confirmed = True
        if entry.source == LOCAL:
            return self.confirm_in(tables.interest, name)
        return [Send(entry.source, SubscribeAck(tables.interest, name))]

    def confirm_in(self, epoch: int, name: str) -> list[Effect]:
        """Note that an issue of a local subscription is confirmed, or is gone; confirm it once none is outstanding."""
        local = self.locals.get(name)
        if local is None or local.is_confirmed:
            return []
        local.unconfirmed_epochs.discard(epoch)
        if local.unconfirmed_epochs:
            return []
        local.is_confirmed = True
        if local.has_arrived:
            return [SubscriberAwaited(name, epoch)]
        return [Confirmed(name)]

    def forget(self, tables: ScotTables, source: str, name: str) -> list[Effect]:
        """Forget a subscription that has ended, here and beyond, in one epoch."""
        if tables.entries.pop(name, None) is None:
            return []
        tables.index.remove(name)
        message = Unsubscribe(tables.interest, name)
        effects: list[Effect] = [Send(peer, message) for peer in tables.within if peer not in (source, *tables.dead)]
        for live in self._epochs_with(tables):
            for stay in live.remotes:
                effects += self.report_wanted(live, stay)
        return effects

    def leave_epoch(self, gone: ScotTables) -> list[Effect]:
        """Let no subscription wait for an epoch that is gone, nor for its publishers if another one continues it."""
        if not self._epochs_with(gone):
            return [effect for name in list(self.locals) for effect in self.confirm_in(gone.interest, name)]
        return [effect for stay in gone.remotes for effect in self._stop_awaiting(gone, stay)]

    def _interests(self) -> list[ScotTables]:
        """Return tables of all live epochs, but only one of those that have the same subscriptions, oldest first."""
        return list({tables.interest: tables for tables in self._state.epochs()}.values())

    def _epochs_with(self, tables: ScotTables) -> list[ScotTables]:
        """Return the tables of all live epochs that have these subscriptions, oldest first."""
        return [one for one in self._state.epochs() if one.interest == tables.interest]

    # --- publishers at home here -------------------------------------------------------------------------------------

    def host(
        self, tables: ScotTables, publisher: str, filter_: Filter, connection: int, *, is_brought: bool = False
    ) -> list[Effect]:
        """Become the home of a publisher in an epoch and announce it to its region; :meth:`allow` lets it publish.

        If a plan brings it, the end of an earlier stay here, and what was published before that, may be still to come.
        """
        entry, effects = tables.hosted.get(publisher), list[Effect]()
        if entry is not None and entry.connection >= connection:
            return []  # An earlier stay, announced late.
        if entry is not None and is_brought:
            tables.earlier[publisher] = entry
        elif entry is not None:
            effects += self.unhost(tables, publisher, entry.connection)
        peers = {peer for peer in tables.region if peer != self.broker and peer not in tables.dead}
        tables.hosted[publisher] = Hosted(filter_, connection, awaited=set(peers))
        message = Advertise(tables.epoch, publisher, connection, self.broker, filter_)
        return [*effects, *(Send(peer, message) for peer in sorted(peers))]

    def unhost(self, tables: ScotTables, publisher: str, connection: int) -> list[Effect]:
        """Stop being the home of a publisher's stay in an epoch, and notify its region."""
        stay = tables.hosted_stay(publisher, connection)
        if stay is None:
            return []
        del (tables.hosted if stay is tables.hosted.get(publisher) else tables.earlier)[publisher]
        message = Unadvertise(tables.epoch, publisher, connection)
        return [Send(peer, message) for peer in tables.region if peer not in (self.broker, *tables.dead)]

    def note_known(self, tables: ScotTables, source: str, publisher: str, connection: int) -> list[Effect]:
        """Note that a broker of the region knows a publisher and has reported whether its cluster wants it."""
        stay = tables.hosted_stay(publisher, connection)
        if stay is None:
            return []
        stay.awaited.discard(source)
        return self.allow(publisher)

    def allow(self, publisher: str) -> list[Effect]:
        """Let a publisher publish, once, when its region knows it in all live epochs in which it is at home here."""
        hosted = [entry for tables in self._state.epochs() if (entry := tables.hosted.get(publisher)) is not None]
        if not hosted or any(entry.awaited for entry in hosted):
            return []
        stay = publisher, hosted[-1].connection
        if stay in self.may_publish or (stay == self.stay_brought(publisher) and publisher in self._moves()):
            return []  # One that the plan moves here may already publish.
        self.may_publish.add(stay)
        return [AdvertiseConfirmed(*stay)]

    def stay_brought(self, publisher: str) -> Stay | None:
        """Return the stay of a publisher that the plan under way has brought here: the older epoch has another or none.

        An earlier stay here may have ended without this broker knowing yet.
        """
        older, newer = self._state.epochs()[0].hosted.get(publisher), self._state.epochs()[-1].hosted.get(publisher)
        is_brought = newer is not None and (older is None or older.connection != newer.connection)
        return (publisher, newer.connection) if newer is not None and is_brought else None

    def forget_departed(self) -> None:
        """Forget the permissions of publishers that are no longer at home here."""
        here = {(name, one.connection) for tables in self._state.epochs() for name, one in tables.hosted.items()}
        self.may_publish &= here

    def _moves(self) -> set[str]:
        under_way = self._state.under_way
        return set() if under_way is None else set(under_way.moves)

    def set_bit(self, tables: ScotTables, source: str, message: VectorBit) -> list[Effect]:
        """Note whether another cluster wants what a local publisher publishes, and acknowledge that."""
        host = tables.hosted_stay(message.publisher, message.connection)
        if host is not None and source in tables.region:
            bit = 1 << tables.region.index(source) & tables.others
            host.vector = host.vector | bit if message.is_on else host.vector & ~bit
        return [Send(source, VectorAck(tables.epoch, message.publisher, message.connection))]

    # --- publishers of the region ------------------------------------------------------------------------------------

    def learn_publisher(self, tables: ScotTables, source: str, message: Advertise) -> list[Effect]:
        """Note a publisher of the region; before acknowledging it, report whether this cluster wants it."""
        stay = message.publisher, message.connection
        tables.remotes[stay] = Remote(message.home, message.filter_)
        return [*self.report_wanted(tables, stay), Send(source, AdvertiseAck(tables.epoch, *stay))]

    def report_wanted(self, tables: ScotTables, stay: Stay) -> list[Effect]:
        """Report to a publisher's host whether this cluster wants what it publishes, if that has changed."""
        remote = tables.remotes[stay]
        is_wanted = any(intersects(remote.filter_, known.filter_) for known in tables.entries.values())
        if is_wanted == remote.is_wanted or remote.host in tables.dead:
            return []
        remote.is_wanted = is_wanted
        remote.unanswered += 1
        return [Send(remote.host, VectorBit(tables.epoch, *stay, is_wanted))]

    def note_bit_set(self, tables: ScotTables, message: VectorAck) -> list[Effect]:
        """Note that the host has acknowledged a report."""
        remote = tables.remotes.get((message.publisher, message.connection))
        if remote is None:
            return []
        remote.unanswered -= 1
        return [] if remote.unanswered else self._stop_awaiting(tables, (message.publisher, message.connection))

    def forget_publisher(self, tables: ScotTables, stay: Stay) -> list[Effect]:
        """Forget a publisher of the region that has ended, or whose home has died."""
        if tables.remotes.pop(stay, None) is None:
            return []
        return self._stop_awaiting(tables, stay)

    def _stop_awaiting(self, tables: ScotTables, stay: Stay) -> list[Effect]:
        effects: list[Effect] = []
        for name, entry in list(tables.entries.items()):
            if (tables.epoch, stay) in entry.awaited_bits:
                entry.awaited_bits.discard((tables.epoch, stay))
                effects += self.acknowledge(tables, name)
        return effects

    # --- preparing ---------------------------------------------------------------------------------------------------

    def is_ready_to_switch(self, under_way: ScotPlanUnderWay) -> bool:
        """Return True if all homes' subscriptions and publishers are known in the new epoch."""
        under_way.waiting_for = {name for name in under_way.waiting_for if self._is_awaited(under_way, name)}
        return not under_way.waiting_for and not under_way.expected and are_ready(self.locals, under_way)

    def _is_awaited(self, under_way: ScotPlanUnderWay, name: str) -> bool:
        tables = self._state.tables[under_way.epoch_to]
        entry, hosted = tables.entries.get(name), tables.hosted.get(name)
        return (entry is not None and not entry.is_confirmed) or (hosted is not None and bool(hosted.awaited))

    # --- deaths ------------------------------------------------------------------------------------------------------

    def note_death(self, tables: ScotTables, peer: str) -> list[Effect]:
        """Stop waiting for a dead broker in one epoch, and forget its publishers."""
        tables.lose_peer(peer)
        effects: list[Effect] = []
        for stay, remote in list(tables.remotes.items()):
            if remote.host == peer:
                effects += self.forget_publisher(tables, stay)
        for name in list(tables.entries):
            effects += self.acknowledge(tables, name)
        for publisher in list(tables.hosted):
            effects += self.allow(publisher)
        return effects
