"""Durable ingress under way: which messages the broker may forget because all peers that should get them have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regraft.producers.nodes.connectors.connector import LocalMessage


@dataclass(slots=True)
class _UnderWay:
    """A message, and how many frames must be over at each peer before it is safe."""

    message: LocalMessage
    frames: Mapping[str, int]


class Receipts:
    """Messages in the order in which they were published; each is safe no sooner than those before it.

    ``owed`` returns how many frames were ever put for each peer, ``over`` how many of a peer's are acknowledged or were
    for an incarnation that has ended.
    """

    def __init__(
        self, owed: Callable[[], Mapping[str, int]], over: Callable[[str], int], release: Callable[[int], None]
    ) -> None:
        self._owed, self._over, self._release = owed, over, release
        self._under_way: deque[_UnderWay] = deque()
        self._unpublished: deque[LocalMessage] = deque()

    def __len__(self) -> int:
        return len(self._under_way) + len(self._unpublished)

    def note_published(self, message: LocalMessage) -> None:
        """Note that the core has sent a message to every peer that should get it."""
        self._under_way.append(_UnderWay(message, self._owed()))

    def note_failed(self, message: LocalMessage) -> None:
        """Note that the core could not send a message: it must be published again."""
        self._unpublished.append(message)

    def begin_incarnation(self) -> None:
        """Note that messages under way in the former incarnation may be lost: all must be published again."""
        self._unpublished.extend(each.message for each in self._under_way)
        self._under_way.clear()

    def settle(self) -> list[LocalMessage]:
        """Release safe messages; return those to publish again."""
        while self._under_way:
            first = self._under_way[0]
            if any(self._over(peer) < count for peer, count in first.frames.items()):
                break
            self._under_way.popleft()
            self._release(first.message.receipt)
        unpublished, self._unpublished = list(self._unpublished), deque()
        return unpublished
