"""What a door is: the way between a node and the real broker next to it, whose clients know nothing of nodes.

In: what local clients want and publish. Out: what others have published. Each kind of broker has its own door: NATS in
:mod:`producers.nodes.nats_door`, none at all in :class:`MemoryDoor`. What an overlay does with it belongs to the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LocalMessage:
    """What a client has published: ``headers`` is the block as the broker has it, empty where there is none.

    ``receipt`` is what to confirm to the door once the message is safe, 0 if nobody waits for that.
    """

    subject: str
    payload: bytes
    reply: str = ""
    headers: bytes = b""
    receipt: int = 0


class DoorError(RuntimeError):
    """The real broker cannot be used; the message says why and what to do."""


class Door(Protocol):
    """The way to one real broker.

    ``on_interest`` hears of each subject that some local client begins to want, and of the end of that: once each, and
    of what stood before the door was opened, too. ``on_message`` takes what local clients publish, never what came
    through the door itself. ``counts`` holds what was dropped, by reason.
    """

    counts: Counter[str]

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the door; raise DoorError when the broker is not there."""
        ...

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the local clients that want it; False if it was dropped, as the broker is away."""
        ...

    def release(self, receipt: int) -> None:
        """Note that a message with a receipt is safe: its broker may forget it."""
        ...

    @property
    def is_open(self) -> bool:
        """Return True if the broker is there."""
        ...

    async def close(self) -> None:
        """Close the door."""
        ...


def _ignore_interest(_subject: str, _wanted: bool) -> None:
    pass


def _ignore_message(_message: LocalMessage) -> None:
    pass


@dataclass(eq=False)
class MemoryDoor:
    """A broker in this process, which keeps what it was handed. ``want`` and ``say`` are what its clients do."""

    counts: Counter[str] = field(default_factory=Counter)
    handed: list[LocalMessage] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    wanted: Counter[str] = field(default_factory=Counter)
    is_open: bool = False
    _on_interest: Callable[[str, bool], None] = _ignore_interest
    _on_message: Callable[[LocalMessage], None] = _ignore_message

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the door and report what is wanted already."""
        self._on_interest, self._on_message, self.is_open = on_interest, on_message, True
        for subject in self.wanted:
            on_interest(subject, True)

    def publish(self, message: LocalMessage) -> bool:
        """Keep the message."""
        self.handed.append(message)
        return True

    def release(self, receipt: int) -> None:
        """Keep the receipt."""
        self.released.append(receipt)

    async def close(self) -> None:
        """Close the door."""
        self.is_open = False

    def want(self, subject: str) -> None:
        """Let one more client want a subject."""
        self.wanted[subject] += 1
        if self.wanted[subject] == 1:
            self._on_interest(subject, True)

    def leave(self, subject: str) -> None:
        """Let one client less want a subject."""
        self.wanted[subject] -= 1
        if not self.wanted[subject]:
            del self.wanted[subject]
            self._on_interest(subject, False)

    def say(self, message: LocalMessage) -> None:
        """Let a client publish."""
        self._on_message(message)
