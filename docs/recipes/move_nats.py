"""A client of NATS that moves to another broker: two connections overlap, and copies are recognised. Copy it."""

import asyncio
import time
from collections import defaultdict, deque
from functools import partial
from typing import Any

import nats

HEADER = "Regraft-Carried-regraft"  # Its end is the overlay's namespace (kafka.namespace).


class MovingClient:
    """``brokers`` are addresses by name; ``pause_s`` exceeds what a message, or an interest, takes to all brokers."""

    def __init__(self, brokers: dict[str, str], pause_s: float = 1.0) -> None:
        self.brokers, self.pause_s = brokers, pause_s
        self.messages = asyncio.Queue[Any]()  # What was delivered, in order and without copies.
        self.kept, self.publishing = list[tuple[float, Any]](), asyncio.Lock()
        self.seen: defaultdict[Any, deque[float]] = defaultdict(deque)  # When the old broker delivered what.

    async def start(self, broker: str, subjects: list[str]) -> None:
        """Connect for the first time."""
        self.subjects, self.pair, self.is_moving = subjects, (broker, broker), False
        self.connection = await nats.connect(self.brokers[broker])
        await self._subscribe(self.connection, broker)

    async def publish(self, subject: str, data: bytes) -> None:
        """Publish where the client is; during a move wait until all earlier messages have arrived everywhere."""
        async with self.publishing:
            await self.connection.publish(subject, data)

    async def move(self, broker: str) -> None:
        """Return when the client is at another broker."""
        arriving = await nats.connect(self.brokers[broker])
        self.pair, self.is_moving = (self.pair[1], broker), True
        await asyncio.sleep(self.pause_s)  # What is on its way to the next broker is seen here.
        await self._subscribe(arriving, broker)
        await asyncio.sleep(self.pause_s)  # The overlay confirms the subscriptions.
        async with self.publishing:
            leaving, self.connection = self.connection, arriving
            await leaving.flush()
            await asyncio.sleep(self.pause_s)
        await leaving.drain()
        self.is_moving = False
        for time_s, message in self.kept:
            self._take_new(time_s, message)
        self.kept.clear()
        await asyncio.sleep(self.pause_s)  # Some copies take longer to the next broker.
        self.seen.clear()

    async def _subscribe(self, connection: Any, broker: str) -> None:
        for subject in self.subjects:
            await connection.subscribe(subject, cb=partial(self._take, broker))
        await connection.flush()

    async def _take(self, broker: str, message: Any) -> None:
        if not self.is_moving:
            self._take_new(time.monotonic(), message)
        elif broker == self.pair[1]:
            self.kept.append((time.monotonic(), message))
        else:
            self.seen[self._identity(message)].append(time.monotonic())
            self.messages.put_nowait(message)

    def _take_new(self, time_s: float, message: Any) -> None:
        seen = self.seen[self._identity(message)] if self.seen else deque[float]()
        while seen and seen[0] < time_s - self.pause_s:
            seen.popleft()  # An earlier one that equals this.
        if seen and seen[0] <= time_s + self.pause_s:
            seen.popleft()
        else:
            self.messages.put_nowait(message)

    def _identity(self, message: Any) -> tuple[str, Any]:
        """Return publisher and number, or subject and payload: what is published at a broker has no stamp there."""
        stamp = (message.headers or {}).get(HEADER, "- - - - ")
        number, _, _, publisher, home, *_ = stamp.split(" ")
        return (publisher, number) if home and home not in self.pair else (message.subject, message.data)
