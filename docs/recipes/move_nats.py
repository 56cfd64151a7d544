"""A client of NATS that moves to another broker: two connections overlap, and copies are recognised. Copy it."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import nats

HEADER = "Regraft-Carried-regraft"  # Its end is the overlay's namespace (kafka.namespace).


class MovingClient:
    """``brokers`` are addresses by name; ``pause_s`` exceeds what a message, or an interest, takes to all brokers."""

    def __init__(self, brokers: dict[str, str], handle: Callable[[Any], Awaitable[None]], pause_s: float = 1.0) -> None:
        self.brokers, self.handle, self.pause_s = brokers, handle, pause_s
        self.kept, self.publishing = deque[tuple[float, Any]](), asyncio.Lock()
        self.seen: defaultdict[Any, deque[float]] = defaultdict(deque)  # When the old broker delivered what.

    async def start(self, broker: str, subjects: list[str]) -> None:
        """Connect for the first time."""
        self.subjects, self.pair, self.is_moving = subjects, (broker, broker), False
        self.connection = await self._open(broker)

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish where the client is; during a move wait until all earlier messages have arrived everywhere."""
        async with self.publishing:
            await self.connection.publish(subject, data)

    async def move(self, broker: str) -> None:
        """Return when the client is at another broker."""
        self.pair, self.is_moving = (self.pair[1], broker), True
        await asyncio.sleep(self.pause_s)  # What is on its way to the next broker is seen here.
        arriving = await self._open(broker)
        await asyncio.sleep(self.pause_s)  # The overlay confirms the subscriptions.
        async with self.publishing:
            await self.connection.flush()
            await asyncio.sleep(self.pause_s)
            await self.connection.drain()
            while self.kept:
                await self._handle_new(*self.kept.popleft())
            self.is_moving, self.connection = False, arriving
        await asyncio.sleep(self.pause_s)  # Some copies take longer to the next broker.
        self.seen.clear()

    async def _open(self, broker: str) -> Any:
        connection = await nats.connect(self.brokers[broker])
        for subject in self.subjects:
            await connection.subscribe(subject, cb=partial(self._take, broker))
        await connection.flush()
        return connection

    async def _take(self, broker: str, message: Any) -> None:
        if not self.is_moving:
            await self._handle_new(time.monotonic(), message)
        elif broker == self.pair[1]:
            self.kept.append((time.monotonic(), message))
        else:
            self.seen[self._identity(message)].append(time.monotonic())
            await self.handle(message)

    async def _handle_new(self, time_s: float, message: Any) -> None:
        seen = self.seen[self._identity(message)] if self.seen else deque[float]()
        while seen and seen[0] < time_s - self.pause_s:
            seen.popleft()  # An earlier one that equals this.
        if not seen or seen.popleft() > time_s + self.pause_s:
            await self.handle(message)

    def _identity(self, message: Any) -> tuple[str, Any]:
        """Return publisher and number, or subject and payload: what is published at a broker has no stamp there."""
        stamp = (message.headers or {}).get(HEADER, "- - - - ")
        number, _, _, publisher, home, *_ = stamp.split(" ")
        return (publisher, number) if home and home not in self.pair else (message.subject, message.data)
