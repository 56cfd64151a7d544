"""The steps from one epoch to the next that any message may make possible: prepared, switched, drained, released.

Core and kind call these functions; none of them knows who did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from regraft.producers.brokers.answer_commands import answer_late
from regraft.producers.brokers.broker_messages import Deliver, Dropped, Effect
from regraft.producers.brokers.broker_reports import HOLD_OVERFLOW
from regraft.producers.brokers.broker_state import HELD_MAX, BrokerState, Plan, PlanUnderWay, Tables
from regraft.schemas.command import CommandPhase, Outcome

PlanIn = TypeVar("PlanIn", bound=PlanUnderWay, contravariant=True)


class Draining(Protocol[PlanIn]):
    """What a kind of overlay decides about the end of the old epoch."""

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if an earlier notification may still be on its way here in an older epoch."""

    def take_over_clients(self, under_way: PlanIn) -> list[Effect]:
        """Return the messages to clients that are due after this broker has switched."""

    def continue_drain(self, under_way: PlanIn) -> list[Effect]:
        """Return the markers of draining that have become due."""

    def is_drained(self, under_way: PlanIn) -> bool:
        """Return True if this broker no longer needs the old epoch's tables."""


def answer_prepare(state: BrokerState[Tables, Plan], is_ready: Callable[[Plan], bool], now_ms: float) -> list[Effect]:
    """Answer the prepare, once, when everything that the new tables need has arrived."""
    under_way = state.under_way
    if under_way is None or under_way.is_prepared or not is_ready(under_way):
        return []
    under_way.is_prepared = True
    return [answer_late(state, under_way, CommandPhase.PREPARE, Outcome.PREPARED, now_ms)]


def switch(state: BrokerState[Tables, Plan], change: Draining[Plan], under_way: Plan, now_ms: float) -> list[Effect]:
    """Stamp the new epoch from now on, and take over the clients that have moved here."""
    under_way.is_active = True
    state.epoch = under_way.epoch_to
    activated = answer_late(state, under_way, CommandPhase.ACTIVATE, Outcome.ACTIVATED, now_ms)
    taken = change.take_over_clients(under_way)
    return [activated, *taken, *release_held(state, change.must_hold), *drain(state, change, now_ms)]


def drain(state: BrokerState[Tables, Plan], change: Draining[Plan], now_ms: float) -> list[Effect]:
    """Send the markers that are due, and report once nothing of the old epoch can arrive any more."""
    under_way = state.under_way
    if under_way is None or not under_way.is_active:
        return []
    effects = change.continue_drain(under_way)
    if change.is_drained(under_way) and not under_way.is_drained_reported:
        under_way.is_drained_reported = True
        effects.append(answer_late(state, under_way, CommandPhase.ACTIVATE, Outcome.DRAINED, now_ms))
    return effects


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
