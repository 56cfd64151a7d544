"""Declare a connector's queue at a RabbitMQ, and bind it to what others want, and to nothing else.

So the broker still knows what nobody wants: it returns mandatory messages, and passes others to the alternate exchange.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from regraft.producers.nodes.amqp.amqp_keys import binding_key_of
from regraft.producers.nodes.amqp.drive_pika import ClosedError, PikaChannel
from regraft.producers.nodes.connectors.wanted_subjects import AskedSubjects

EVERYTHING = "#"
KEPT_MS = 7 * 24 * 3_600_000  # The broker keeps a durable queue for this long while a node is away.
UNDER_WAY_MAX = 500  # Unacknowledged messages of a durable queue.


async def declare_queue(main: PikaChannel, own: str, *, is_durable: bool) -> str:
    """Declare and return the node's queue; a durable one outlasts the connection. Raises ClosedError."""
    if not is_durable:
        queue = f"{own}.{secrets.token_hex(4)}"
        await main.ask(main.channel.queue_declare, queue=queue, exclusive=True)
        return queue
    await main.ask(main.channel.basic_qos, prefetch_count=UNDER_WAY_MAX)
    kind = {"x-queue-type": "quorum", "x-expires": KEPT_MS}
    await main.ask(main.channel.queue_declare, queue=own, durable=True, arguments=kind)
    return own


class AmqpBindings:
    """The bindings of one queue to one exchange; ``own`` is a subject of the node, which is always bound."""

    def __init__(self, exchange: str, own: str) -> None:
        self._exchange, self._own, self._queue = exchange, own, ""
        self._asked = AskedSubjects(EVERYTHING)
        self._asking: asyncio.Future[None] | None = None
        self._main: PikaChannel | None = None

    async def begin(self, main: PikaChannel, queue: str) -> None:
        """Bind a queue to all that is wanted; done again for each connection. Raises ClosedError."""
        self._queue, self._main = queue, main  # From now on, further keys are bound at once.
        await self._change(main, [*self._asked.asked, self._own])
        if EVERYTHING not in self._asked.asked:  # A former incarnation, or version, may have asked for it.
            await self._change(main, (), [EVERYTHING])

    @property
    def _open_main(self) -> PikaChannel | None:
        """The channel, None if it is closed: the next connection begins with all keys."""
        return None if self._main is None or self._main.closed.done() else self._main

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Bind further keys; what is returned completes once the broker has them."""
        new = self._asked.add({binding_key_of(subject) for subject in subjects})
        main = self._open_main
        if main is None:
            return None
        if new:
            self._asking = asyncio.ensure_future(self._try(main, new))
        return None if self._asking is None or self._asking.done() else self._asking

    def repair(self, queue: str, key: str) -> None:
        """Bind a key again whose binding was removed, unless the node no longer asks for it."""
        main = self._open_main
        if main is not None and queue == self._queue and (key in self._asked.asked or key == self._own):
            self._asking = asyncio.ensure_future(self._try(main, [key]))

    def ask_only(self, subjects: Collection[str]) -> None:
        """Bind these keys, and unbind others."""
        new, old = self._asked.replace({binding_key_of(subject) for subject in subjects})
        if (main := self._open_main) is not None:
            self._asking = asyncio.ensure_future(self._try(main, new, old))

    async def _try(self, main: PikaChannel, new: Sequence[str], old: Sequence[str] = ()) -> None:
        with suppress(ClosedError):  # The next connection begins with all keys.
            await self._change(main, new, old)

    async def _change(self, main: PikaChannel, new: Sequence[str], old: Sequence[str] = ()) -> None:
        at = {"queue": self._queue, "exchange": self._exchange}
        calls = [partial(main.ask, main.channel.queue_bind, routing_key=key, **at) for key in new]
        calls += [partial(main.ask, main.channel.queue_unbind, routing_key=key, **at) for key in old]
        await asyncio.gather(*(call() for call in calls))
