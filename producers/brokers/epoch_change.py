"""What a kind of overlay gives a broker's core: how its tables change from one epoch to the next, and how it routes.

Also the steps that kinds share: switching, and holding deliveries back until they may be released.

The core (:mod:`producers.brokers.two_epochs`) calls these two; they work on the same state
(:mod:`producers.brokers.broker_state`) and do not know the core. On a tree they are
:mod:`producers.brokers.tree_change` and :mod:`producers.brokers.tree_routing`, on a ring
:mod:`producers.brokers.ring_change` and :mod:`producers.brokers.ring_routing`, on a structured cyclic overlay
:mod:`producers.brokers.scot_change` and :mod:`producers.brokers.scot_routing`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from regraft.producers.brokers.answer_commands import answer_late
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientDropped,
    ClientRequest,
    ControlMessage,
    Deliver,
    Dropped,
    Effect,
    Message,
    Notification,
    SubscribeRequest,
)
from regraft.producers.brokers.broker_reports import HOLD_OVERFLOW
from regraft.producers.brokers.broker_state import HELD_MAX, BrokerState, Plan, PlanUnderWay, Tables
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.texts import name_some

CLIENTS_NAMED_MAX = 3
CLIENT_WAIT_MS_MAX = 10_000.0  # How long a plan waits for one client's answer; checked when a command repeats.


def reason_to_stay(clients_here: Iterable[str], command: Command) -> str:
    """Return which clients a broker would leave behind, empty if the plan moves all of its clients."""
    moved = {move.client for move in command.moves if move.home_from == command.broker}
    left = sorted(set(clients_here) - moved)
    named = name_some(left, CLIENTS_NAMED_MAX)
    return f"cannot leave: the plan does not move these clients of this broker: {named}" if left else ""


def pop_late(waiting: dict[str, float], now_ms: float) -> list[str]:
    """Remove from ``waiting`` (client -> since when) the clients awaited for too long, and return them."""
    late = sorted(client for client, since_ms in waiting.items() if now_ms - since_ms > CLIENT_WAIT_MS_MAX)
    for client in late:
        del waiting[client]
    return late


def rejected(request: SubscribeRequest | AdvertiseRequest) -> list[Effect]:
    """Notify a client that this broker is not its home."""
    client = request.client if isinstance(request, SubscribeRequest) else request.publisher
    return [ClientDropped(client, request.connection)]


PlanIn = TypeVar("PlanIn", bound=PlanUnderWay, contravariant=True)


class EpochChange(Protocol[Tables, PlanIn]):
    """How tables change from epoch to epoch: preparing, switching and draining on a kind of overlay."""

    def prepare(self, command: Command) -> str | list[Effect]:
        """Begin the plan that a prepare asks for, with tables of its epoch, and begin to fill them.

        If the plan is impossible, or this broker cannot take part, change nothing and return why, never an empty text.
        """

    def tables_outside(self, command: Command) -> Tables:
        """Return an outsider's tables of the overlay that an install names; raise ValueError if that is invalid."""

    def is_ready_to_switch(self, under_way: PlanIn) -> bool:
        """Return True if nothing is outstanding that the new tables need."""

    def begin_switch(self, under_way: PlanIn) -> list[Effect]:
        """Switch to the new epoch, at once or as soon as nothing prevents it."""

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if an earlier notification may still be on its way here in an older epoch."""

    def take_over_clients(self, under_way: PlanIn) -> list[Effect]:
        """Return the messages to clients that are due after this broker has switched."""

    def continue_drain(self, under_way: PlanIn) -> list[Effect]:
        """Return the markers of draining that have become due."""

    def is_drained(self, under_way: PlanIn) -> bool:
        """Return True if this broker no longer needs the old epoch's tables."""

    def drop_unresponsive(self, under_way: PlanIn) -> list[Effect]:
        """End the stay of clients that others wait for and that did not answer in time."""

    def kept_notifications(self) -> list[Notification]:
        """Return the notifications, other than deliveries, that wait for the old epoch to end."""

    def release_waiting(self, under_way: PlanIn) -> list[Effect]:
        """Release everything, other than deliveries, that waits for the old epoch to end."""

    def finish_moves(self, under_way: PlanIn) -> None:
        """Make the moves of clients final when the old epoch is retired."""

    def forget_epoch(self, gone: Tables, under_way: PlanIn | None) -> list[Effect]:
        """Return the effects of forgetting an epoch: nothing waits for it any more."""

    def is_of_plan(self, message: Message, under_way: PlanIn) -> bool:
        """Return True if a control message is sent because of the plan."""

    def note_deaths(self, command: Command) -> list[Effect]:
        """Accept which brokers the controller reports dead, before its command is obeyed."""

    def lose_peer(self, peer: str, epoch_end: float) -> list[Effect]:
        """Return the effects of losing a neighbour in all epochs before ``epoch_end``, after everything it had sent."""


class Routing(Protocol[Tables, PlanIn]):
    """How a broker handles notifications, client requests and control messages on a kind of overlay."""

    @property
    def change(self) -> EpochChange[Tables, PlanIn]:
        """How its tables change from one epoch to the next."""

    @property
    def covered_forwards(self) -> int:
        """Number of subscriptions sent to a neighbour that already had a wider one from here."""

    def clients_here(self) -> dict[str, int]:
        """Return the clients whose home this broker is, as far as it knows, with the number of their stay."""

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but may still be owed something."""

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on and hand it over; its publisher is local if ``source`` is None."""

    def serve(self, request: ClientRequest) -> list[Effect]:
        """Handle a request of a local client."""

    def converse(self, source: str, message: ControlMessage) -> list[Effect]:
        """Handle a control message from a neighbour."""

    def release_ended(self) -> list[Effect]:
        """Return the effects of forgetting the subscriptions that ended long ago."""


def switch(state: BrokerState[Tables, Plan], change: EpochChange[Tables, Plan], under_way: Plan) -> list[Effect]:
    """Stamp the new epoch from now on, and take over the clients that have moved here."""
    under_way.is_active = True
    state.epoch = under_way.epoch_to
    activated = answer_late(state, under_way, CommandPhase.ACTIVATE, Outcome.ACTIVATED)
    taken = change.take_over_clients(under_way)
    return [activated, *taken, *release_held(state, change.must_hold)]


def deliver_or_hold(
    state: BrokerState[Tables, Plan], must_hold: Callable[[Deliver], bool], delivery: Deliver, effects: list[Effect]
) -> None:
    """Deliver at once, unless earlier notifications may still come in an older epoch."""
    if not must_hold(delivery):
        effects.append(delivery)
    elif len(state.held) >= HELD_MAX:
        effects.append(Dropped(delivery.notification, HOLD_OVERFLOW))
    else:
        state.held.append(delivery)
        state.held_count_max = max(state.held_count_max, len(state.held))


def release_held(state: BrokerState[Tables, Plan], must_hold: Callable[[Deliver], bool]) -> list[Effect]:
    """Return the deliveries that need not be held any longer."""
    released: list[Effect] = []
    kept: deque[Deliver] = deque()
    for delivery in state.held:
        if must_hold(delivery):
            kept.append(delivery)
        else:
            released.append(delivery)
    state.held = kept
    return released
