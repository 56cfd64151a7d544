"""What the plans of brokers that route by content share: publishers that leave, and how brokers learn of deaths.

What is in the tables belongs to the kind's own change: :mod:`producers.brokers.tree_change`,
:mod:`producers.brokers.scot_change`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.brokers.broker_messages import (
    ClientDropped,
    Deliver,
    Dropped,
    Effect,
    End,
    FlowEnd,
    LeaveRequest,
    Message,
    Notification,
    PublisherLeaves,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_reports import EPOCH_UNKNOWN, FROM_THE_DEAD, OUTSIDE
from regraft.producers.brokers.broker_state import BrokerState, ContentPlanUnderWay, EpochTables
from regraft.producers.brokers.content_moves import ContentInterests, MovingSubscribers
from regraft.producers.brokers.epoch_change import (
    EpochChange,
    deliver_or_hold,
    pop_late,
    reason_to_stay,
    switch,
)
from regraft.schemas.command import Command


class ContentTables(EpochTables, Protocol):
    """Everything that a broker knows for one epoch, including which brokers are lost and dead in it."""

    lost: frozenset[str]
    dead: set[str]

    @property
    def is_drained(self) -> bool:
        """Whether nothing of the epoch can arrive any more."""

    def lose_peer(self, peer: str) -> None:
        """Stop waiting for a dead broker: everything that it sent in this epoch has arrived."""


Tables = TypeVar("Tables", bound=ContentTables)
Plan = TypeVar("Plan", bound=ContentPlanUnderWay)


class ContentChange(EpochChange[Tables, Plan]):
    """The part of a :class:`producers.brokers.epoch_change.EpochChange` that both kinds share."""

    def __init__(self, state: BrokerState[Tables, Plan], interests: ContentInterests[Tables, Plan]) -> None:
        self._state = state
        self._clients = interests
        self.broker = state.broker
        self.movers: MovingSubscribers[Tables, Plan] = MovingSubscribers(state, interests)

    def lose_peer(self, peer: str, epoch_end: float) -> list[Effect]:
        """Treat everything from a dead neighbour as ended, and wait for none of its answers."""
        return self._note_deaths({(epoch, peer) for epoch in self._state.tables if epoch < epoch_end})

    def note_deaths(self, command: Command) -> list[Effect]:
        """Accept which brokers the controller reports dead, in the epochs that the report covers.

        A broker that the prepare of an epoch names as lost and that is in its overlay rejoins by that plan: it lives in
        that epoch, unless a later command of the plan says that this incarnation is over, too.
        """
        deaths = {
            (epoch, peer)
            for epoch, tables in self._state.tables.items()
            for peer in set(command.lost_brokers) - tables.dead - {self.broker}
            if epoch < command.epoch_to or (epoch == command.epoch_to and peer not in tables.lost)
        }
        self._state.note_reported({peer for epoch, peer in deaths if epoch == min(self._state.tables)})
        return self._note_deaths(deaths) if deaths else []

    # --- notifications -----------------------------------------------------------------------------------------------

    def tables_for(self, source: str | None, notification: Notification) -> Tables | Dropped:
        """Return the tables by which a notification is routed, or that it goes no further."""
        tables = self._state.tables.get(notification.epoch)
        if tables is None:
            return Dropped(notification, EPOCH_UNKNOWN)
        if source in tables.dead:
            return Dropped(notification, FROM_THE_DEAD)
        return Dropped(notification, OUTSIDE) if tables.is_outside else tables

    def hand_over(self, notification: Notification, wanted: Iterable[str], effects: list[Effect]) -> None:
        """Deliver a notification to the confirmed ones of subscriptions, or hold it for them."""
        here = self._clients.locals
        confirmed = tuple(sorted(name for name in wanted if name in here and here[name].is_confirmed))
        for part in self.movers.split_moved(confirmed):
            deliver_or_hold(self._state, self.must_hold, Deliver(notification, part), effects)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def _reason_to_stay(self, command: Command, target: OverlayConfiguration) -> str:
        """Return which subscribers cannot move, or which clients a leaving broker still has; empty if none."""
        for one in command.subscribers_moved:
            if one.home_to not in target.brokers:
                return f"subscribers of {one.home_from} cannot move to {one.home_to}: it is not in the overlay"
        if self.broker in command.brokers_left and not self._state.leaves_clients:
            is_emptied = any(one.home_from == self.broker for one in command.subscribers_moved)
            here = self._clients.publishers_here() if is_emptied else self._clients.clients_here()
            return reason_to_stay(here, command)
        return ""

    def _begin_plan(self, command: Command, under_way: Plan, tables: Tables) -> None:
        """Begin a plan, in whose epoch the lost neighbours that do not rejoin are dead."""
        lost_peers = self._state.lost_peers
        self._state.begin_plan(under_way, tables)
        lost_peers -= tables.lost.intersection(tables.neighbours).union(command.brokers_joined)  # They rejoin.
        for peer in lost_peers.intersection(tables.neighbours):
            tables.lose_peer(peer)

    def is_ready_to_switch(self, under_way: Plan) -> bool:
        """Return True if no subscription or publisher keeps this broker from being prepared."""
        return self._clients.is_ready_to_switch(under_way)

    def is_of_plan(self, message: Message, under_way: Plan) -> bool:
        """Return True for markers of draining and for messages that fill the new tables."""
        return isinstance(message, End | FlowEnd) or getattr(message, "epoch", None) == under_way.epoch_to

    def is_drained(self, under_way: Plan) -> bool:
        """Return True if nothing of the old epoch can arrive any more."""
        return self._state.tables[under_way.epoch_from].is_drained

    # --- publishers that the plan moves ------------------------------------------------------------------------------

    @abstractmethod
    def stays_to_move(self, under_way: Plan) -> dict[str, int]:
        """Return the stays, at home here in the older epoch, of the publishers that the plan moves elsewhere."""

    @abstractmethod
    def unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        """Note that a local publisher has ended."""

    def begin_switch(self, under_way: Plan) -> list[Effect]:
        """Ask the publishers to be moved to leave; switch at once if there are none."""
        if under_way.leaving is not None:
            return []  # The answer follows when the publishers have left.
        stays = self.stays_to_move(under_way)
        under_way.leaving = dict.fromkeys(stays, self._state.now_ms)
        if not stays:
            return self._switch(under_way)
        return [PublisherLeaves(name, under_way.moves[name].home_to, stay) for name, stay in stays.items()]

    def note_leave(self, request: LeaveRequest | UnadvertiseRequest) -> list[Effect]:
        """Note that a publisher hands over nothing more here; switch once the last one has left."""
        under_way = self._state.under_way
        if under_way is None or not under_way.leaving:
            return []
        if self.stays_to_move(under_way).get(request.publisher) != request.connection:
            return []
        if under_way.leaving.pop(request.publisher, None) is None:
            return []
        has_left = isinstance(request, LeaveRequest)
        dropped = self._drop_stranded({request.publisher: request.connection}, under_way) if has_left else []
        return dropped if under_way.leaving else [*dropped, *self._switch(under_way)]

    def _switch(self, under_way: Plan) -> list[Effect]:
        """Switch to the new epoch, behind the ends of the publishers that stay here if this broker leaves the overlay.

        These ends follow what was published and precede END, so that all know them before the old epoch is retired.
        """
        effects: list[Effect] = []
        if self._state.tables[under_way.epoch_to].is_outside:
            stays, moved = self._clients.publishers_here(), self.stays_to_move(under_way)
            for name in sorted(stays.keys() - moved.keys()):
                effects.append(ClientDropped(name, stays[name], is_over=True))
                effects += self.unadvertise(UnadvertiseRequest(name, stays[name]))
        return effects + switch(self._state, self, under_way)

    def _end_subscriptions(self) -> list[Effect]:
        """End the subscriptions that stay at this broker, which has left the overlay: nothing more comes for them."""
        if self._state.takes_clients:
            return []
        here = self._clients.locals
        left = [here.pop(name) for name in sorted(here) if not here[name].has_ended]
        return [ClientDropped(one.client, one.connection, is_over=True) for one in left]

    def drop_unresponsive(self, under_way: Plan) -> list[Effect]:
        """End the stay of publishers that did not leave in time: later notifications from them are refused."""
        if not under_way.leaving:
            return []
        stays = self.stays_to_move(under_way)
        effects: list[Effect] = []
        for name in pop_late(dict(under_way.leaving), self._state.now_ms):
            effects.append(ClientDropped(name, stays[name], is_over=True))
            effects += self.unadvertise(UnadvertiseRequest(name, stays[name]))
        return effects

    def drop_stranded(self) -> list[Effect]:
        """End the stays of publishers that have left for a broker that has died: it may never accept them.

        It may be alive and only count as dead, so that the publishers themselves notice nothing.
        """
        under_way = self._state.under_way
        if under_way is None or under_way.leaving is None:
            return []
        stays = self.stays_to_move(under_way).items()
        return self._drop_stranded({name: stay for name, stay in stays if name not in under_way.leaving}, under_way)

    def _drop_stranded(self, left: Mapping[str, int], under_way: Plan) -> list[Effect]:
        dead, moves = self._state.tables[under_way.epoch_to].dead, under_way.moves
        # All brokers forget such a stay with its next home; nothing of it is on its way here any more.
        return [ClientDropped(name, left[name], is_over=True) for name in left if moves[name].home_to in dead]

    # --- deaths ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _note_deaths(self, deaths: Collection[tuple[int, str]]) -> list[Effect]:
        """Treat the incarnations of brokers as over; ``deaths`` holds epoch and broker."""

    def kept_notifications(self) -> list[Notification]:
        """Return nothing: only deliveries wait on these overlays."""
        return []

    def release_waiting(self, under_way: Plan) -> list[Effect]:
        """Return nothing: only deliveries wait on these overlays."""
        return []
