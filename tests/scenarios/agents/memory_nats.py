"""A NATS server in memory: what a client and a leaf node see of one, by the real protocols, as far as Regraft uses it.

In: bytes of clients and of the leaf. Out: bytes for them. It handles what arrives at once and in order. Messages of two
clients may reach the leaf in another order than the other clients, as between two threads of a real server.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import lru_cache
from typing import Any
from zlib import crc32

from regraft.producers.agents.nats_frames import Frame, FrameReader, message_frame
from tests.scenarios.agents.wires import Wires

CLIENT_PORT, LEAF_PORT = 4222, 7422
INFO = b'INFO {"headers":true,"max_payload":1048576}\r\n'
RACES_OF_TEN = 3  # How often a message overtakes one of another client on its way to the leaf.


@lru_cache(maxsize=10_000)
def matches(pattern: bytes, subject: bytes) -> bool:
    """Return True if a subject matches what is subscribed."""
    wanted, words = pattern.split(b"."), subject.split(b".")
    for place, word in enumerate(wanted):
        if word == b">":
            return len(words) > place
        if place >= len(words) or word not in (b"*", words[place]):
            return False
    return len(wanted) == len(words)


class _Connection(asyncio.Protocol):
    def __init__(self, server: MemoryNats) -> None:
        self.server = server
        self.end: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.end = transport
        self.end.write(INFO)

    def close(self) -> None:
        """End the connection as a server that dies does."""
        self.end.abort()


class ClientConnection(_Connection):
    """A client's connection: what it has subscribed, by sid."""

    def __init__(self, server: MemoryNats) -> None:
        super().__init__(server)
        self.subscribed: dict[bytes, tuple[bytes, bytes]] = {}
        self._reader, self._is_refused = FrameReader(), False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.clients.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.server.clients:
            self.server.clients.remove(self)
            for sid in list(self.subscribed):
                self._unsubscribe(sid)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if not self._is_refused:
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        words = frame.words
        match words[0]:
            case b"CONNECT" if self.server.refuses_logins:
                self._is_refused = True
                self.end.write(b"-ERR 'Authorization Violation'\r\n")
                self.end.close()
                self.connection_lost(None)
            case b"PING":
                self.end.write(b"PONG\r\n")
            case b"SUB":
                if words[-1] not in self.subscribed:
                    self.subscribed[words[-1]] = words[1], words[2] if len(words) == 4 else b""
                    self.server.count_interest(self.subscribed[words[-1]], 1)
            case b"UNSUB":
                self._unsubscribe(words[1])
            case b"PUB" | b"HPUB":
                self.server.publish(words[1], frame.headers_size, frame.payload, self)

    def _unsubscribe(self, sid: bytes) -> None:
        if sid in self.subscribed:
            self.server.count_interest(self.subscribed.pop(sid), -1)

    def deliver(self, sid: bytes, subject: bytes, headers_size: int, payload: bytes) -> None:
        self.end.write(message_frame(subject, sid, b"", headers_size, payload))


class LeafConnection(_Connection):
    """The node's connection to the leaf port."""

    def __init__(self, server: MemoryNats) -> None:
        super().__init__(server)
        self.asked: set[bytes] = set()
        self._data = bytearray()
        self._is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.server.leaf = self

    def connection_lost(self, exc: Exception | None) -> None:
        if self.server.leaf is self:
            self.server.leaf = None

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (at := self._data.find(b"\r\n")) >= 0:
            words = bytes(self._data[:at]).split(b" ")
            size = int(words[-1]) + 2 if words[0] in (b"LMSG", b"HMSG") else 0
            if len(self._data) < at + 2 + size:
                return
            payload = bytes(self._data[at + 2 : at + max(size, 2)])
            del self._data[: at + 2 + size]
            self._take(words, payload)

    def _take(self, words: list[bytes], payload: bytes) -> None:
        match words[0]:
            case b"CONNECT":
                self._is_known = True
                for key in self.server.interest:
                    self.note_interest(key, is_wanted=True)
            case b"PING":
                self.end.write(b"PONG\r\n")
            case b"LS+":
                self.asked.add(words[1])
            case b"LS-":
                self.asked.discard(words[1])
            case b"LMSG":
                self._hand_over(words[1], words[2:-1], 0, payload)
            case b"HMSG":
                self._hand_over(words[1], words[2:-2], int(words[-2]), payload)

    def _hand_over(self, subject: bytes, names: list[bytes], headers_size: int, payload: bytes) -> None:
        groups = names[1:] if names[:1] == [b"|"] else []
        for client in self.server.clients:
            for sid, (wanted, queue) in list(client.subscribed.items()):
                if (not queue or queue in groups) and matches(wanted, subject):
                    client.deliver(sid, subject, headers_size, payload)

    def note_interest(self, key: tuple[bytes, bytes], *, is_wanted: bool) -> None:
        """Say that a first client wants a subject, in a group or not, or that the last one does not any more."""
        if self._is_known:
            subject, queue = key
            self.end.write(b"LS%b %b\r\n" % (b"+" if is_wanted else b"-", subject + (b" " + queue if queue else b"")))

    def deliver(self, subject: bytes, headers_size: int, payload: bytes, source: object, *, overtakes: bool) -> None:
        """Send what a client has published if the node has asked for it."""
        if not any(matches(wanted, subject) for wanted in self.asked):
            return
        head = b"HMSG %b %d %d" % (subject, headers_size, len(payload)) if headers_size else (
            b"LMSG %b %d" % (subject, len(payload))
        )  # fmt: skip
        self.end.write_from(source, head + b"\r\n" + payload + b"\r\n", overtakes=overtakes)


class MemoryNats:
    """One server; ``interest`` counts who wants a subject in a group, "" for none."""

    def __init__(self, name: str, wires: Wires) -> None:
        self.name, self._wires = name, wires
        self.clients: list[ClientConnection] = []
        self.leaf: LeafConnection | None = None
        self.interest: Counter[tuple[bytes, bytes]] = Counter()
        self.refuses_logins = self.refuses_notes = self.has_races = False
        self._listeners: list[Any] = []
        self.start()

    def start(self) -> None:
        """Accept connections."""
        ways = ((lambda: ClientConnection(self), CLIENT_PORT), (lambda: LeafConnection(self), LEAF_PORT))
        self._listeners = [self._wires.listen(make, self.name, port) for make, port in ways]

    @property
    def is_down(self) -> bool:
        """Return True while the server is stopped."""
        return not self._listeners

    def stop(self) -> None:
        """Die: some of what has been sent may still arrive."""
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        gone, leaf, self.clients, self.leaf = self.clients, self.leaf, [], None
        self.interest.clear()
        for client in gone:
            client.close()
        if leaf is not None:
            leaf.close()

    def cut_node(self) -> bool:
        """End the connection of the server's node; return False if there is none."""
        if self.leaf is None:
            return False
        self.leaf.close()
        return True

    def count_interest(self, key: tuple[bytes, bytes], change: int) -> None:
        """Note that one more client, or one less, wants a subject."""
        before = self.interest[key]
        self.interest[key] += change
        if not self.interest[key]:
            del self.interest[key]
        if self.leaf is not None and (not before or not self.interest.get(key)):
            self.leaf.note_interest(key, is_wanted=change > 0)

    def publish(self, subject: bytes, headers_size: int, payload: bytes, source: ClientConnection) -> None:
        """Deliver what a client has published, to one of each group, and to the leaf."""
        for client in self.clients:
            for sid, (wanted, _) in list(client.subscribed.items()):  # Each group here has one member.
                if matches(wanted, subject):
                    client.deliver(sid, subject, headers_size, payload)
        if self.leaf is not None:
            overtakes = self.has_races and crc32(payload) % 10 < RACES_OF_TEN
            self.leaf.deliver(subject, headers_size, payload, source, overtakes=overtakes)
