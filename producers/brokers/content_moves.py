"""Subscribers that a plan moves: notified at the old home, issued at the next one, held there until k is over.

In: the plan under way, messages from clients. Out: effects. The same on a tree and on a structured cyclic overlay. A
subscription that moves is in the tables of k with its old home and in those of k' with the next one, and neither is
derived from the other. The old home notifies the client when it prepares; the client brings the subscription to the
next home, which issues it in k' alone. The old home is prepared once all brokers have it. The next home holds back
notifications stamped k' for it until k is retired: by then the old home has handed over all of k, because it is drained
only when nothing of k can reach it any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from regraft.producers.brokers.broker_messages import (
    ArriveRequest,
    Cancelled,
    CancelRequest,
    ClientDropped,
    Deliver,
    Effect,
    ReadyRequest,
    SubscribeRequest,
    SubscriberMoves,
    SubscriberTaken,
)
from regraft.producers.brokers.broker_reports import ProtocolError
from regraft.producers.brokers.broker_state import BrokerState, ContentPlanUnderWay, EpochTables


@dataclass(slots=True)
class LocalSubscription:
    """A subscription of a local client: whether it is confirmed or has ended, and which epochs have yet to confirm it.

    A subscription that ``has_arrived`` by the plan under way is confirmed to the old home first.

    Notifications published after the confirmation arrive after it, and those published before the end arrive before the
    subscription is released; so everything that arrives between the two is handed over, without comparing publish
    times.
    """

    subscription: str
    client: str
    connection: int
    unconfirmed_epochs: set[int]
    is_confirmed: bool = False
    has_ended: bool = False
    has_arrived: bool = False


def subscribers_here(locals_: Mapping[str, LocalSubscription], under_way: ContentPlanUnderWay | None) -> dict[str, int]:
    """Return the subscribers at home here in the epoch that the broker stamps, with the number of their stay."""
    moved: set[str] = set()
    if under_way is not None:
        moved = under_way.going if under_way.is_active else under_way.arrived
    here = (one for name, one in locals_.items() if not one.has_ended and name not in moved)
    return {one.client: one.connection for one in here}


def are_ready(locals_: Mapping[str, LocalSubscription], under_way: ContentPlanUnderWay) -> bool:
    """Return True if each subscription that moves away is confirmed here and at its next home, or has ended."""
    here = [locals_[name] for name in under_way.going if name in locals_]
    return all(one.has_ended or (one.is_confirmed and one.subscription in under_way.ready) for one in here)


Tables = TypeVar("Tables", bound=EpochTables)
Plan = TypeVar("Plan", bound=ContentPlanUnderWay)


class ContentInterests(ABC, Generic[Tables, Plan]):
    """The subscriptions of local clients, and what a broker knows of others."""

    def __init__(self, state: BrokerState[Tables, Plan]) -> None:
        self._state = state
        self.broker = state.broker
        self.locals: dict[str, LocalSubscription] = {}

    @abstractmethod
    def publishers_here(self) -> dict[str, int]:
        """Return the publishers whose home this broker is in the epoch that it stamps, or will be, with their stays."""

    @abstractmethod
    def clients_here(self) -> dict[str, int]:
        """Return the publishers and subscribers whose home this broker is, with the number of their stay."""

    @abstractmethod
    def issue_arrived(self, tables: Tables, request: ArriveRequest) -> list[Effect]:
        """Issue a subscription that a plan brings here, in the tables of its epoch alone."""

    @abstractmethod
    def is_ready_to_switch(self, under_way: Plan) -> bool:
        """Return True if no subscription or publisher keeps this broker from being prepared."""

    @abstractmethod
    def _end(self, subscription: str) -> list[Effect]:
        """Release a subscription that has just ended."""

    def _add_local(self, request: SubscribeRequest | ArriveRequest, epochs: set[int]) -> None:
        """Note a subscription that these epochs have yet to confirm; raise ProtocolError if its name is in use."""
        name, has_arrived = request.subscription, isinstance(request, ArriveRequest)
        if name in self.locals:
            raise ProtocolError(f"subscription {name} already exists at {self.broker}: ids are never reused")
        stay = request.client, request.connection
        self.locals[name] = LocalSubscription(name, *stay, epochs, has_arrived=has_arrived)

    def cancel(self, request: CancelRequest) -> list[Effect]:
        """End a subscription: behind its ArriveRequest if that is kept here until its epoch is prepared."""
        name = request.subscription
        local = self.locals.get(name)
        if local is None:
            epoch = self._state.early.epoch_of(name)
            return [] if epoch is None else self._state.keep_early(epoch, None, request)
        if local.has_ended:
            return []
        local.has_ended = True
        return self._end(name)


class MovingSubscribers(Generic[Tables, Plan]):
    """The subscriptions that the plan under way brings here or moves elsewhere."""

    def __init__(self, state: BrokerState[Tables, Plan], interests: ContentInterests[Tables, Plan]) -> None:
        self._state = state
        self._interests = interests
        self.broker = state.broker

    # --- at the old home ---------------------------------------------------------------------------------------------

    def notify_leaving(self, under_way: Plan) -> list[Effect]:
        """Notify the clients of subscriptions to be moved; one that has ended stays here until it is released."""
        effects: list[Effect] = []
        for name, local in sorted(self._interests.locals.items()):
            home_to = under_way.home_after(name, self.broker)
            if home_to and not local.has_ended:
                under_way.going.add(name)
                effects.append(SubscriberMoves(name, home_to, under_way.epoch_to))
        return effects

    def note_ready(self, request: ReadyRequest) -> list[Effect]:
        """Note that the next home of a subscription has it; nothing follows but what the plan may wait for."""
        under_way = self._state.under_way
        if under_way is not None and under_way.epoch_to == request.epoch:
            under_way.ready.add(request.subscription)
        return []

    # --- at the next home --------------------------------------------------------------------------------------------

    def arrive(self, request: ArriveRequest) -> list[Effect]:
        """Accept a subscription that the plan under way brings here; ignore one of another plan."""
        under_way, name = self._state.under_way, request.subscription
        if request.epoch not in self._state.tables:
            return self._state.keep_early(request.epoch, None, request)
        if under_way is None or request.epoch != under_way.epoch_to or name in self._interests.locals:
            return []
        if not under_way.may_bring(name, self.broker):
            return []
        under_way.arrived.add(name)
        return self._interests.issue_arrived(self._state.tables[request.epoch], request)

    def take_over(self, under_way: Plan) -> list[Effect]:
        """Notify the clients of arrived subscriptions that this is their home; this broker has just switched."""
        return [SubscriberTaken(name, under_way.epoch_to) for name in sorted(under_way.arrived)]

    def split_moved(self, subscriptions: Sequence[str]) -> list[tuple[str, ...]]:
        """Split subscriptions into those already here and those that the plan under way brought; omit empty parts."""
        under_way = self._state.under_way
        arrived = set() if under_way is None else under_way.arrived
        both = [tuple(one for one in subscriptions if (one in arrived) is has_arrived) for has_arrived in (False, True)]
        return [part for part in both if part]

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if the old home may still hand over earlier notifications."""
        under_way = self._state.under_way
        return under_way is not None and delivery.subscriptions[0] in under_way.arrived

    # --- the end of the plan -----------------------------------------------------------------------------------------

    def drop_stranded(self, under_way: Plan, dead: Collection[str]) -> list[Effect]:
        """End the stays of subscribers whose next home has died: nobody has them once the old epoch is retired."""
        going = (self._interests.locals[name] for name in sorted(under_way.going) if name in self._interests.locals)
        return [
            ClientDropped(one.client, one.connection, is_over=True)
            for one in going
            if not one.has_ended and under_way.home_after(one.subscription, self.broker) in dead
        ]

    def finish(self, under_way: Plan) -> None:
        """Treat arrived subscriptions like any others, and hold back nothing for them."""
        for name in under_way.arrived & self._interests.locals.keys():
            self._interests.locals[name].has_arrived = False
        under_way.arrived.clear()

    def release(self, names: set[str]) -> list[Effect]:
        """Forget subscriptions whose home is elsewhere: they have moved, or their move was aborted."""
        gone = [self._interests.locals.pop(name) for name in sorted(names) if name in self._interests.locals]
        return [Cancelled(one.subscription) for one in gone if one.has_ended]
