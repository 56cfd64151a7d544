"""Which subscribers of brokers stay and why, for all who show it or ask before they order a drain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from regraft.schemas.live_view import ShownBroker
from regraft.schemas.stay_reasons import reasons_text, total_staying


class Subscribers(NamedTuple):
    """How many subscribers a broker has, how many of them may move, and the others by why they stay, if known."""

    total: int
    movable: int
    staying: Mapping[str, int]


def subscribers_of(brokers: Iterable[ShownBroker]) -> dict[str, Subscribers]:
    """Return the subscribers of each broker; empty unless clients stay."""
    return {
        each.broker: Subscribers(each.subscribers, each.movable, each.staying)
        for each in brokers
        if each.subscribers is not None and each.movable is not None
    }


def left_behind_text(brokers: Sequence[str], subscribers: Mapping[str, Subscribers]) -> str:
    """Return what drains do to clients that stay."""
    names = ", ".join(dict.fromkeys(brokers))
    if set(brokers) <= subscribers.keys():
        counts = [subscribers[broker] for broker in dict.fromkeys(brokers)]
        total, staying = sum(each.total for each in counts), sum(each.total - each.movable for each in counts)
        why = reasons_text(total_staying(each.staying for each in counts), staying)
        who = f"{staying} of {total} subscribers at {names} cannot move{why}"
    else:
        who = f"How many subscribers at {names} cannot move is unknown here"
    return (
        f"{who}: after the drain, clients that stay get only what is published at their own broker, and what they "
        "publish reaches no other."
    )
