"""What the drain of a broker does to clients that stay there, for all who ask before they order one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def subscribers_of(rows: Iterable[tuple[str, int | None, int | None]]) -> dict[str, list[int]]:
    """Return how many subscribers are at each broker and how many of them may move; empty unless clients stay.

    The rows are those of a :class:`schemas.live_view.ShownBroker`: ``broker``, ``subscribers`` and ``movable``.
    """
    return {
        broker: [subscribers, movable]
        for broker, subscribers, movable in rows
        if subscribers is not None and movable is not None
    }


def left_behind_text(brokers: Sequence[str], counts_of: Mapping[str, Sequence[int]]) -> str:
    """Return what drains do to clients that stay; by broker, how many subscribers there are and how many may move."""
    names = ", ".join(dict.fromkeys(brokers))
    if set(brokers) <= counts_of.keys():
        counts = [counts_of[broker] for broker in dict.fromkeys(brokers)]
        total, movable = (sum(each) for each in zip(*counts, strict=True))
        who = f"{total - movable} of {total} subscribers at {names} cannot move"
    else:
        who = f"How many subscribers at {names} cannot move is unknown here"
    return (
        f"{who}: after the drain, clients that stay get only what is published at their own broker, and what they "
        "publish reaches no other."
    )
