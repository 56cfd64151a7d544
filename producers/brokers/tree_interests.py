"""What one broker of a tree knows of subscriptions and publishers, and how it spreads: tables and acknowledgements.

In: requests of local clients and control messages from neighbours. Out: effects. Every table belongs to an epoch; while
two are live, both are kept. Notifications belong to :mod:`producers.brokers.tree_routing`, the change from one epoch to
the next to :mod:`producers.brokers.tree_change`.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.producers.brokers.broker_messages import (
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
    Unsubscribe,
    UnsubscribeAck,
)
from regraft.producers.brokers.broker_reports import ProtocolError
from regraft.producers.brokers.content_moves import LocalSubscription, are_ready, subscribers_here
from regraft.producers.brokers.tree_publishers import TreePublishers
from regraft.producers.brokers.tree_tables import (
    LOCAL,
    Advertisement,
    Entry,
    RoutingTables,
    TreePlanUnderWay,
    TreeState,
)


class TreeInterests(TreePublishers):
    """Subscriptions and advertisements in the tables of all live epochs, and the messages that build these."""

    def __init__(self, state: TreeState) -> None:
        super().__init__(state)
        self.covered_forwards = 0

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but are not yet gone from every broker."""
        return sum(local.has_ended for local in self.locals.values())

    # --- local clients -----------------------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest) -> list[Effect]:
        """Install a subscription of a local client in all live epochs.

        Raises ProtocolError if its name is already in use.
        """
        name, effects = request.subscription, list[Effect]()
        self._add_local(request, set(self._state.tables))
        for tables in self._state.epochs():
            matching = self._matching(tables, request.filter_)
            entry = Entry(name, self.broker, request.filter_, LOCAL, matching, max(self._state.tables))
            tables.install(entry)
            effects += self._forward(tables, entry)
        return effects + self.settle((name,))

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and subscribers whose home this broker is, with the number of their stay."""
        return self.publishers_here() | subscribers_here(self.locals, self._state.under_way)

    def _end(self, subscription: str) -> list[Effect]:
        effects: list[Effect] = []
        for tables in self._state.epochs():
            if tables.is_home_of(subscription):
                effects += self._begin_leaving(tables, subscription)
        return effects + self.settle((subscription,))

    def issue_arrived(self, tables: RoutingTables, request: ArriveRequest) -> list[Effect]:
        """Install a subscription that a plan brings here, in the tables of its epoch alone."""
        name, epoch = request.subscription, tables.epoch
        self._add_local(request, {epoch})
        if name in tables.entries:
            return []  # From a rival's plan for the same epoch: both will be aborted.
        entry = Entry(name, self.broker, request.filter_, LOCAL, self._matching(tables, request.filter_), epoch)
        tables.install(entry)
        return self._forward(tables, entry) + self.settle((name,))

    # --- neighbours --------------------------------------------------------------------------------------------------

    def accept_subscription(self, tables: RoutingTables, source: str, message: Subscribe) -> list[Effect]:
        """Install a neighbour's subscription, and acknowledge it once the brokers beyond have.

        Raises ProtocolError if it arrives again before its release was acknowledged.
        """
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        is_in_force = tables.epoch <= self._state.epoch  # Before, a neighbour may hold a rival's plan.
        if entry is not None and entry.leaving and entry.towards == source and is_in_force:
            raise ProtocolError(f"{self.broker} got {message.subscription} again before {source} knew it was released")
        if entry is None:
            matching = self._matching(tables, message.filter_)
            issued_max = message.epoch_issued_max
            entry = Entry(message.subscription, message.home, message.filter_, source, matching, issued_max)
            tables.install(entry)
            tables.await_withdrawn(entry)
            effects += self._forward(tables, entry)
            effects += self.derive_later((entry,))
        entry.waiting.add(source)
        return effects + self.settle((message.subscription,))

    def release_subscription(self, tables: RoutingTables, source: str, message: Unsubscribe) -> list[Effect]:
        """Begin to release a subscription in this epoch, and in a later one that derives it from this one.

        Its home may have ended it before it had the later epoch's tables, and then reports that in this one only.
        """
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        if entry is None:
            return [Send(source, UnsubscribeAck(tables.epoch, message.subscription))]
        for other in self._state.epochs():
            is_derived = other.epoch > tables.epoch and entry.home in other.same_path_to and not other.is_moved(entry)
            if other is tables or is_derived:
                effects += self._begin_leaving(other, message.subscription)
        return effects + self.settle((message.subscription,))

    def accept_release(self, tables: RoutingTables, source: str, name: str) -> list[Effect]:
        """Note that a neighbour no longer holds a subscription; send it again if it is wanted there by now."""
        effects: list[Effect] = []
        entry = tables.entries.get(name)
        tables.withdrawn.discard((name, source))
        if entry is not None and source in entry.unreleased:
            entry.unreleased.discard(source)
            if not entry.leaving:
                tables.note_release(entry, source)
                effects += self._forward(tables, entry)
        return effects + self.settle((name,))

    def _begin_leaving(self, tables: RoutingTables, name: str) -> list[Effect]:
        entry = tables.entries.get(name)
        if entry is None or entry.leaving:
            return []
        entry.leaving = True
        return self._release(tables, entry, entry.forwarded)

    def _release(self, tables: RoutingTables, entry: Entry, peers: Iterable[str]) -> list[Effect]:
        """Ask neighbours to release the subscription."""
        asked = sorted(set(peers) - entry.unreleased - tables.dead)
        entry.unreleased.update(asked)
        return [Send(peer, Unsubscribe(tables.epoch, entry.subscription)) for peer in asked]

    def _forward(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        """Send the subscription to each neighbour towards a matching advertisement that does not hold it yet."""
        if entry.leaving:
            return []
        wanted = self._wanted(tables, entry)
        effects: list[Effect] = []
        for peer in sorted(wanted - entry.forwarded):
            self.covered_forwards += tables.note_forward(entry, peer)
            if peer not in tables.dead:
                entry.unconfirmed.add(peer)
                message = Subscribe(tables.epoch, entry.subscription, entry.home, entry.filter_, entry.epoch_issued_max)
                effects.append(Send(peer, message))
                effects += self._note_derived(tables, entry, peer)
        return effects

    def _wanted(self, tables: RoutingTables, entry: Entry) -> set[str]:
        """Return the neighbours towards the homes of publishers that the subscription matches."""
        homes = self._matching_homes(tables, entry) - {self.broker}
        # The home of a publisher whose stay is about to end may no longer be in the tree.
        return {tables.next_hop[home] for home in homes if home in tables.next_hop} - {entry.towards}

    # --- settling: acknowledgements and confirmations ----------------------------------------------------------------

    def settle(self, names: Iterable[str]) -> list[Effect]:
        """Send every acknowledgement and confirmation of these subscriptions that is due."""
        effects: list[Effect] = []
        for name in names:
            effects += self._settle_subscription(name)
        for known in list(self.unconfirmed_advertisements.values()):
            if not known.unanswered and self._are_settled(known):
                del self.unconfirmed_advertisements[known.publisher]
                if known.announcer == LOCAL:
                    effects.append(AdvertiseConfirmed(known.publisher, known.connection))
                else:
                    ack = AdvertiseAck(known.epoch, known.publisher, known.connection)
                    effects.append(Send(known.announcer, ack))
        return effects

    def _settle_subscription(self, name: str) -> list[Effect]:
        effects: list[Effect] = []
        # What a later epoch has released no longer unsettles an older one.
        for tables in reversed(self._state.epochs()):
            entry = tables.entries.get(name)
            if entry is None:
                continue
            if self.is_settled(name, tables.epoch):
                effects += [Send(peer, SubscribeAck(tables.epoch, name)) for peer in sorted(entry.waiting)]
                entry.waiting.clear()
            if entry.leaving and not entry.unreleased:
                effects += self._finish_leaving(tables, entry)
        local = self.locals.get(name)
        if local is not None:
            effects += self._settle_local(local)
        return effects

    def _finish_leaving(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        effects: list[Effect] = [
            Send(peer, SubscribeAck(tables.epoch, entry.subscription)) for peer in sorted(entry.waiting)
        ]
        tables.remove(entry.subscription)
        if tables.epoch > min(self._state.tables):
            tables.released.add(entry.subscription)
        if entry.towards != LOCAL:
            effects.append(Send(entry.towards, UnsubscribeAck(tables.epoch, entry.subscription)))
        return effects

    def _settle_local(self, local: LocalSubscription) -> list[Effect]:
        name = local.subscription
        if local.has_ended:
            if any(tables.is_home_of(name) for tables in self._state.tables.values()):
                return []
            del self.locals[name]
            return [Cancelled(name)]
        live = local.unconfirmed_epochs & self._state.tables.keys()
        local.unconfirmed_epochs = {epoch for epoch in live if not self.is_settled(name, epoch)}
        if not local.is_confirmed and not local.unconfirmed_epochs:
            local.is_confirmed = True
            return [SubscriberAwaited(name, max(self._state.tables)) if local.has_arrived else Confirmed(name)]
        return []

    def _are_settled(self, known: Advertisement) -> bool:
        """Return True if all subscriptions that an advertisement waits for are settled.

        Checks the one in ``awaited`` first: there may be thousands, and this runs for each message.
        """
        epoch = min(self._state.tables)
        if known.awaited and not self.is_settled(known.awaited, epoch):
            return False
        known.unsettled = {name for name in known.unsettled if not self.is_settled(name, epoch)}
        known.awaited = min(known.unsettled, default="")
        return not known.unsettled

    def is_settled(self, name: str, epoch: int) -> bool:
        """Return True if the subscription is acknowledged in this epoch and in every later live one."""
        return all(
            tables.entries[name].is_settled
            for tables in self._state.tables.values()
            if tables.epoch >= epoch and name in tables.entries
        )

    def own_unconfirmed(self) -> set[str]:
        """Return the unconfirmed publishers that only this broker awaits: local ones, and those the dead announced."""
        dead = self._state.tables[self._state.epoch].dead
        unconfirmed = self.unconfirmed_advertisements
        return {name for name, one in unconfirmed.items() if one.announcer == LOCAL or one.announcer in dead}

    def is_ready(self, name: str) -> bool:
        """Return True if a subscription or publisher no longer keeps this broker from being prepared."""
        if name in self.unconfirmed_advertisements:
            return False
        local = self.locals.get(name)
        if local is not None and not local.is_confirmed and not local.has_ended:
            return False
        return self.is_settled(name, max(self._state.tables))

    def is_ready_to_switch(self, under_way: TreePlanUnderWay) -> bool:
        """Return True if no subscription or publisher keeps this broker from being prepared."""
        if under_way.awaited and not self.is_ready(under_way.awaited):
            return False  # There may be thousands, and this runs for each message.
        under_way.waiting_for = {name for name in under_way.waiting_for if not self.is_ready(name)}
        under_way.awaited = min(under_way.waiting_for, default="")
        return not under_way.waiting_for and not under_way.unacknowledged and are_ready(self.locals, under_way)

    # --- two epochs --------------------------------------------------------------------------------------------------

    def derive_later(self, entries: Iterable[Entry]) -> list[Effect]:
        """Derive entries of the newer epoch's tables from those of the older one if the path to their home is the same.

        Whether it is depends on the two trees alone, so all brokers on the path do the same and no message is needed.
        If it depended on the publishers that a broker knows, two neighbours could disagree about who holds what,
        because they learn of a publisher's end at different times. The neighbour towards the home withdraws a derived
        entry that is of no use.
        """
        effects: list[Effect] = []
        for tables in self._state.epochs()[1:]:
            if tables.is_outside:
                continue  # What stays here ends with the older epoch.
            for entry in list(entries):
                if entry.leaving or not self._is_derived(tables, entry):
                    continue
                if entry.subscription in tables.entries or entry.subscription in tables.released:
                    continue
                derived = Entry(
                    entry.subscription,
                    entry.home,
                    entry.filter_,
                    entry.towards,
                    entry.matching | self._matching(tables, entry.filter_, tables.epoch),
                    entry.epoch_issued_max,
                )
                tables.install(derived)
                for peer in sorted((entry.forwarded - entry.unreleased) & tables.shared):
                    self.covered_forwards += tables.note_forward(derived, peer)
                effects += self._release(tables, derived, derived.forwarded - self._wanted(tables, derived))
                effects += self._forward(tables, derived)
        return effects

    def _is_derived(self, tables: RoutingTables, entry: Entry) -> bool:
        """Return True if a later epoch's tables derive the entry from the older epoch's."""
        is_old = entry.epoch_issued_max < tables.epoch
        return is_old and entry.home in tables.same_path_to and not tables.is_moved(entry)

    def _note_derived(self, older: RoutingTables, entry: Entry, peer: str) -> list[Effect]:
        """Record that a neighbour which gets an entry of the older epoch derives the newer one's from it.

        If the derived entry is of no use there, or has been withdrawn from this broker, it is withdrawn from the
        neighbour.
        """
        effects: list[Effect] = []
        for tables in self._state.epochs():
            if tables.epoch <= older.epoch or peer not in tables.shared or not self._is_derived(tables, entry):
                continue
            derived = tables.entries.get(entry.subscription)
            if derived is None and entry.subscription in tables.released:
                tables.withdrawn.add((entry.subscription, peer))
                effects.append(Send(peer, Unsubscribe(tables.epoch, entry.subscription)))
            elif derived is not None and peer not in derived.forwarded:
                self.covered_forwards += tables.note_forward(derived, peer)
                if derived.leaving or peer not in self._wanted(tables, derived):
                    effects += self._release(tables, derived, (peer,))
        return effects
