"""One connection of the pika library on the running event loop, with awaitable answers instead of callbacks.

What is sent over them belongs to :mod:`producers.nodes.amqp.amqp_connector`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from pika import BasicProperties, ConnectionParameters, spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import AMQPError


class ClosedError(RuntimeError):
    """A connection or channel is closed; the message says why."""


UNREADABLE = "Regraft-Headers-Unreadable"
CANCELLED = "the broker has cancelled a consumer of the node: its queue was deleted, or has no leader"


class TolerantProperties(BasicProperties):  # type: ignore[misc]
    """A message's properties; where the library cannot read them, the message has one header UNREADABLE instead.

    Else one message, such as one with a time in ms in its headers, would end the connection whenever it is sent.
    """

    def decode(self, encoded: bytes, offset: int = 0) -> BasicProperties:
        """Read the properties from a frame's bytes."""
        try:
            return super().decode(encoded, offset)
        except Exception as error:  # As many types as there are odd values.
            BasicProperties.__init__(self, headers={UNREADABLE: repr(error)})
            return self


spec.props[BasicProperties.INDEX] = TolerantProperties


class PikaChannel:
    """A channel; ``closed`` completes when it closes, or a watched consumer ends, with the reason."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.channel: Channel

    async def ask(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Call a method of the channel; return the answer, or raise ClosedError if the channel closes first."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            method(callback=partial(_settle, answer), **arguments)
        except AMQPError as error:
            raise ClosedError(_reason_text(error)) from error
        await _first_of(answer, self.closed)
        if not answer.done():
            raise ClosedError(self.closed.result())
        return answer.result()

    def note_closed(self, _channel: Channel, reason: BaseException) -> None:
        """Note that the channel is closed."""
        if not self.closed.done():
            self.closed.set_result(_reason_text(reason))

    def watch_consumers(self) -> None:
        """From now on, a channel whose consumer the broker ends counts as closed."""
        self.channel.add_on_cancel_callback(self.note_cancelled)

    def note_cancelled(self, _cancel: Any) -> None:
        """Note that the broker has ended a consumer."""
        if not self.closed.done():
            self.closed.set_result(CANCELLED)


class PikaConnection:
    """A connection; ``closed`` completes when it closes or cannot be opened, with the reason."""

    def __init__(self, parameters: ConnectionParameters) -> None:
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = loop.create_future()
        self._opened: asyncio.Future[Any] = loop.create_future()
        self._channels: list[PikaChannel] = []
        self._connection = AsyncioConnection(
            parameters,
            on_open_callback=partial(_settle, self._opened),
            on_open_error_callback=self._note_closed,
            on_close_callback=self._note_closed,
            custom_ioloop=loop,
        )

    async def channel(self) -> PikaChannel:
        """Return a new channel; raise ClosedError if the connection or the channel cannot be opened."""
        await _first_of(self._opened, self.closed)
        if self.closed.done():
            raise ClosedError(self.closed.result())
        made = PikaChannel()
        self._channels.append(made)
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        channel = self._connection.channel(on_open_callback=partial(_settle, opened))
        channel.add_on_close_callback(made.note_closed)
        await _first_of(opened, made.closed, self.closed)
        if not opened.done():
            raise ClosedError((made.closed if made.closed.done() else self.closed).result())
        made.channel = channel
        return made

    async def close(self, wait_s_max: float) -> None:
        """Close the connection, cleanly if the broker answers within ``wait_s_max``."""
        if self._connection.is_open:
            self._connection.close()
            await asyncio.wait({self.closed}, timeout=wait_s_max)

    def _note_closed(self, _connection: Any, reason: BaseException | str) -> None:
        text = _reason_text(reason)
        for channel in self._channels:
            if not channel.closed.done():
                channel.closed.set_result(text)
        if not self.closed.done():
            self.closed.set_result(text)


def _settle(answer: asyncio.Future[Any], *results: Any) -> None:
    if not answer.done():
        answer.set_result(results[0] if results else None)


async def _first_of(*awaited: asyncio.Future[Any]) -> None:
    await asyncio.wait(set(awaited), return_when=asyncio.FIRST_COMPLETED)


def _reason_text(reason: BaseException | str) -> str:
    return str(reason) or type(reason).__name__
