"""Count messages by kind, with their bytes and cost, and the notifications that cross links next to them.

For protocols of any paper that brokers run among themselves on an emulated overlay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Generic, TypeVar

from regraft.api.emulation import CONTROL_BYTES, EmulatedOverlay

Kind = TypeVar("Kind", bound=StrEnum)


class MessageTally(Generic[Kind]):
    """Messages, their bytes, and their cost in units of the overlay's cost: c of the link plus p of the receiver."""

    def __init__(self) -> None:
        self.messages: Counter[Kind] = Counter()
        self.bytes: Counter[Kind] = Counter()
        self.cost: defaultdict[Kind, float] = defaultdict(float)

    def note(self, kind: Kind, size_bytes: int, cost: float, count: int = 1) -> None:
        """Add ``count`` messages of this size and cost each."""
        self.messages[kind] += count
        self.bytes[kind] += count * size_bytes
        self.cost[kind] += count * cost

    def totals(self, kinds: Iterable[Kind]) -> tuple[int, int, float]:
        """Return the messages, bytes and cost of these kinds in total."""
        chosen = tuple(kinds)
        return (
            sum(self.messages[kind] for kind in chosen),
            sum(self.bytes[kind] for kind in chosen),
            sum(self.cost[kind] for kind in chosen),
        )


def notifications_on_links(overlay: EmulatedOverlay) -> tuple[int, int]:
    """Return how many times notifications have crossed links so far, and the bytes of these crossings."""
    counters = [end.counters for end in overlay.link_ends.values()]
    messages = sum(counter.notifications_out for counter in counters)
    control = sum(counter.messages_out for counter in counters) - messages
    return messages, sum(counter.bytes_out for counter in counters) - CONTROL_BYTES * control
