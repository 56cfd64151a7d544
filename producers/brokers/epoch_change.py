"""What a kind of overlay gives a broker's core: how its tables change from one epoch to the next, and how it routes.

The core (:mod:`producers.brokers.two_epochs`) owns the epochs, the plan under way and the phases, and asks these two at
the right moments; they use the core's public methods. On a tree they are :mod:`producers.brokers.tree_change` and
:mod:`producers.brokers.tree_routing`, on a ring :mod:`producers.brokers.chord_change` and
:mod:`producers.brokers.chord_routing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.plan_digest import overlay_digest
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientDropped,
    Deliver,
    Effect,
    Message,
    Notification,
    SubscribeRequest,
)
from regraft.schemas.command import Command
from regraft.schemas.plan import ClientMove

CLIENTS_NAMED_MAX = 3


@dataclass(slots=True)
class PlanUnderWay:
    """The plan under way at this broker; ``moves`` by client."""

    plan: str
    epoch_from: int
    epoch_to: int
    moves: Mapping[str, ClientMove] = field(default_factory=dict)
    is_prepared: bool = False
    is_active: bool = False
    is_drained_reported: bool = False
    control_messages: int = 0


def change_asked(command: Command, present: OverlayConfiguration) -> BrokerChange:
    """Return which brokers a prepare adds to the present overlay and removes from it; lost ones may be long gone."""
    lost = frozenset(command.lost_brokers).intersection(present.brokers)
    return BrokerChange(frozenset(command.brokers_joined), frozenset(command.brokers_left), lost)


def digest_mismatch(command: Command, target: OverlayConfiguration) -> str:
    """Return how the target that a broker has worked out differs from the command's, empty when it does not."""
    given = overlay_digest(command.digest)
    if given == target.digest:
        return ""
    return f"the target's digest is {target.digest} here, {given or 'missing'} in the command"


def reason_to_stay(clients_here: Iterable[str], command: Command) -> str:
    """Return which clients a broker would leave behind, empty when the plan moves all that are at home there."""
    moved = {move.client for move in command.moves if move.home_from == command.broker}
    left = sorted(set(clients_here) - moved)
    more = f" and {len(left) - CLIENTS_NAMED_MAX} more" if len(left) > CLIENTS_NAMED_MAX else ""
    named = ", ".join(left[:CLIENTS_NAMED_MAX]) + more
    return f"cannot leave: clients are at home here that the plan does not move: {named}" if left else ""


def turned_away(request: SubscribeRequest | AdvertiseRequest) -> list[Effect]:
    """Notify a client that a broker is not its home."""
    client = request.client if isinstance(request, SubscribeRequest) else request.publisher
    return [ClientDropped(client, request.connection)]


class EpochTables(Protocol):
    """All that a broker knows for one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch."""
        ...

    @property
    def configuration(self) -> OverlayConfiguration:
        """The whole overlay of the epoch."""
        ...

    @property
    def neighbours(self) -> Collection[str]:
        """The brokers that this one is linked to; none when it is outside."""
        ...

    @property
    def is_outside(self) -> bool:
        """Is this broker no part of the overlay?"""
        ...


Tables = TypeVar("Tables", bound=EpochTables)
PlanIn = TypeVar("PlanIn", bound=PlanUnderWay, contravariant=True)


class EpochChange(Protocol[Tables, PlanIn]):
    """How tables change from epoch to epoch: what preparing, switching and draining mean on a kind of overlay."""

    def target_of(self, command: Command) -> OverlayConfiguration:
        """Return the configuration that a prepare asks for; raise ValueError when it cannot be."""
        ...

    def tables_outside(self, command: Command) -> Tables:
        """Return tables of the overlay that an install names, from outside; raise ValueError when it is none."""
        ...

    def reason_against(self, command: Command, target: OverlayConfiguration) -> str:
        """Return why this broker cannot take part, empty when it can."""
        ...

    def open_tables(self, command: Command, target: OverlayConfiguration, now_ms: float) -> list[Effect]:
        """Begin the plan at the core, with tables of the target epoch, and begin to fill them."""
        ...

    def is_ready_to_switch(self, under_way: PlanIn) -> bool:
        """Return True if nothing is outstanding that the new tables need."""
        ...

    def begin_switch(self, under_way: PlanIn, now_ms: float) -> list[Effect]:
        """Let the core switch to the new epoch, at once or when what stands in its way is over."""
        ...

    def taken_over(self, under_way: PlanIn) -> list[Effect]:
        """Return what to send clients when this broker has switched."""
        ...

    def drain_on(self, under_way: PlanIn) -> list[Effect]:
        """Return the markers of draining that have become due."""
        ...

    def is_drained(self, under_way: PlanIn) -> bool:
        """Return True if the old epoch's tables are needed here no longer."""
        ...

    def drop_silent(self, under_way: PlanIn, now_ms: float) -> list[Effect]:
        """End the stay of clients that others wait for and that have not answered in time."""
        ...

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if something published before it may still be on its way here in an older epoch."""
        ...

    def kept_notifications(self) -> list[Notification]:
        """Return what waits for something of the old epoch, besides deliveries."""
        ...

    def release_waiting(self, under_way: PlanIn) -> list[Effect]:
        """Release everything that waits for something of the old epoch, besides deliveries."""
        ...

    def finish_moves(self, under_way: PlanIn) -> None:
        """Take the clients that have moved for good, when the old epoch is retired."""
        ...

    def forget_epoch(self, gone: Tables, under_way: PlanIn | None, now_ms: float) -> list[Effect]:
        """Return what follows from an epoch having gone; what waited for it no longer does."""
        ...

    def is_of_plan(self, message: Message, under_way: PlanIn) -> bool:
        """Return True if a control message is sent because of the plan."""
        ...

    def heed_deaths(self, command: Command, now_ms: float) -> list[Effect]:
        """Take the controller's word for who is dead, before its command is obeyed."""
        ...

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Return what follows from a neighbour's being gone for good, after all that it had sent."""
        ...


class Routing(Protocol[Tables, PlanIn]):
    """What a broker does with notifications, requests of clients and control messages on a kind of overlay."""

    @property
    def change(self) -> EpochChange[Tables, PlanIn]:
        """How its tables change from one epoch to the next."""
        ...

    @property
    def covered_forwards(self) -> int:
        """How many subscriptions were sent to a neighbour that had a wider one from here."""
        ...

    def clients_here(self) -> dict[str, int]:
        """Return the clients whose home this broker is, as far as it knows them, with the number of their stay."""
        ...

    @property
    def ended_count(self) -> int:
        """How many subscriptions have ended and may still be owed something."""
        ...

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on and hand it over; without ``source`` its publisher is here."""
        ...

    def serve(self, request: Any, now_ms: float) -> list[Effect]:
        """Take what a local client asks for."""
        ...

    def converse(self, source: str, message: Any, now_ms: float) -> list[Effect]:
        """Take a control message of a neighbour."""
        ...

    def look_around(self, now_ms: float) -> list[Effect]:
        """Return what any message or command may have made possible."""
        ...
