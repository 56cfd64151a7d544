"""Drive a paho-mqtt client from an asyncio event loop, without another thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from paho.mqtt import client as paho

MAINTAIN_S = 1.0
PACKETS_MAX = 100


class PahoDriver:
    """The driver of one client, in the running loop; ``reconnect`` does not block it."""

    def __init__(self, client: paho.Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        client.on_socket_open, client.on_socket_close = self._watch, self._unwatch
        client.on_socket_register_write, client.on_socket_unregister_write = self._await_writable, self._stop_awaiting

    async def reconnect(self) -> None:
        """Connect to the address given to ``connect_async``; raise OSError if that fails."""
        await self._loop.run_in_executor(None, self._client.reconnect)

    async def maintain(self) -> None:
        """Run the client's periodic work, such as pings, until cancelled."""
        while True:
            await asyncio.sleep(MAINTAIN_S)
            self._client.loop_misc()

    def _call(self, act: Callable[..., Any], *arguments: Any) -> None:
        # While it connects, the library calls from another thread.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *arguments)

    def _watch(self, _client: Any, _data: Any, sock: Any) -> None:
        self._call(self._loop.add_reader, sock.fileno(), self._read, sock)

    def _read(self, sock: Any) -> None:
        """Read the available packets, because the library reads one at a time; at most ``PACKETS_MAX`` per turn."""
        for _ in range(PACKETS_MAX):
            self._client.loop_read()
            is_current: bool = id(self._client.socket()) == id(sock)
            if not is_current or not _has_more(sock):
                return
        if isinstance(sock, ssl.SSLSocket):  # Decrypted bytes do not make the socket ready.
            self._call(self._read, sock)

    def _unwatch(self, _client: Any, _data: Any, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.remove_reader(sock.fileno())
            self._loop.remove_writer(sock.fileno())

    def _await_writable(self, _client: Any, _data: Any, sock: Any) -> None:
        self._call(self._add_writer, sock)

    def _add_writer(self, sock: Any) -> None:
        if sock.fileno() >= 0 and self._client.want_write():
            self._loop.add_writer(sock.fileno(), self._client.loop_write)

    def _stop_awaiting(self, _client: Any, _data: Any, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._loop.remove_writer(sock.fileno())


def _has_more(sock: Any) -> bool:
    if isinstance(sock, ssl.SSLSocket):
        return sock.pending() > 0
    try:
        sock.recv(1, socket.MSG_PEEK)
    except OSError:  # Nothing more for now; an error will show in the next turn.
        return False
    return True
