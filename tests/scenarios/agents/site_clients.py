"""The clients of a site in memory: ordinary clients, beside an agent or at a broker; here those of NATS.

In: deeds. Out: bytes, and a ledger of what has come. A client publishes numbers under its own name. Clients of MQTT are
in :mod:`tests.scenarios.agents.mqtt_site_clients`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from regraft.producers.agents.nats_frames import FrameReader, publish_frame
from tests.scenarios.agents.agents_ledger import ClientLedger

SUBJECT = "data"


class SiteClient(asyncio.Protocol):
    """One connection of a client, in the ledger ``stay``; ``on_end`` is called when somebody else ends it.

    ``subscriptions`` are their names in the ledger, by what the protocol calls them.
    """

    def __init__(self, name: str, stay: str, ledger: ClientLedger, on_end: Callable[[SiteClient], None]) -> None:
        self.name, self.stay, self.ledger, self._on_end = name, stay, ledger, on_end
        ledger.strike(stay)
        self.is_over = self.is_known = False
        self.subscriptions: dict[Any, str] = {}
        self._end: Any = None
        self._count = 0
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._end = transport

    def _take(self, subscription: str, payload: bytes) -> None:
        publisher, _, number = payload.decode().partition("/")
        self.ledger.take(subscription, publisher, int(number))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        if not self.is_over:
            self._on_end(self)

    def _write(self, data: bytes) -> None:
        if self.is_known:
            self._end.write(data)
        else:
            self._early.append(data)

    def subscribe(self, place: int) -> None:
        """Subscribe everything, in one of two ways, or only what it publishes itself."""
        raise NotImplementedError

    def _note_subscribed(self, key: Any, only_of: str) -> None:
        self._count += 1
        name = self.subscriptions[key] = f"{self.stay}:{self._count}"
        self.ledger.subscribe(name, only_of)

    def unsubscribe(self) -> None:
        """End the oldest subscription; what is on its way may still come and is ignored."""
        key = next(iter(self.subscriptions))
        self.ledger.end(self.subscriptions.pop(key))
        self._say_unsubscribed(key)

    def _say_unsubscribed(self, key: Any) -> None:
        raise NotImplementedError

    def publish(self, count: int) -> None:
        """Publish some numbers at once."""
        raise NotImplementedError

    @property
    def unanswered(self) -> set[int]:
        """The numbers that may be published again if their broker dies."""
        return set()

    @property
    def is_answered(self) -> bool:
        """Return True if brokers have answered all that the client has published and wants an answer to."""
        return True

    @property
    def reads(self) -> bool:
        """Return True unless the client has stopped reading."""
        return bool(self._end.reads)

    def read(self, is_reading: bool, agents_end: Any) -> None:
        """Stop reading, or read again; its agent notices that its buffer is full, or empty again."""
        self._end.reads = is_reading
        if not agents_end.is_over:
            (agents_end.protocol.resume_writing if is_reading else agents_end.protocol.pause_writing)()

    @property
    def other_end(self) -> Any:
        """Return the agent's, or the broker's, end of the connection."""
        return self._end.peer

    @property
    def is_connected(self) -> bool:
        """Return True once there is a connection."""
        return self._end is not None

    def end(self) -> None:
        """Note in the ledger that nothing more is owed: what the client has just published may be lost, too."""
        self.is_over = True
        for name in self.subscriptions.values():
            self.ledger.end(name)
        self.ledger.strike(self.stay)

    def drop(self) -> None:
        """End the connection, as a client whose machine dies."""
        self._end.abort()


class NatsSiteClient(SiteClient):
    """One of NATS."""

    def __init__(self, name: str, stay: str, ledger: ClientLedger, on_end: Callable[[SiteClient], None]) -> None:
        super().__init__(name, stay, ledger, on_end)
        self._reader = FrameReader()

    def data_received(self, data: bytes) -> None:
        """Take messages; introduce itself once the other side has said what it is."""
        for frame in self._reader.feed(data):
            match frame.words[0]:
                case b"INFO" if not self.is_known:
                    self.is_known = True
                    self._end.write(b'CONNECT {"headers":true}\r\n' + b"".join(self._early))
                case b"PING":
                    self._write(b"PONG\r\n")
                case b"MSG" | b"HMSG" if not self.is_over and frame.words[2] in self.subscriptions:
                    self._take(self.subscriptions[frame.words[2]], frame.payload[frame.headers_size :])

    def subscribe(self, place: int) -> None:
        """Subscribe everything, in one of two ways, or only what it publishes itself."""
        last, sid = (">", "*", self.stay)[place % 3], b"%d" % (self._count + 1)
        self._note_subscribed(sid, self.stay if last == self.stay else "")
        self._write(f"SUB {SUBJECT}.{last} ".encode() + sid + b"\r\n")

    def _say_unsubscribed(self, key: Any) -> None:
        self._write(b"UNSUB %b\r\n" % key)

    def publish(self, count: int) -> None:
        """Publish some numbers at once."""
        subject = f"{SUBJECT}.{self.stay}".encode()
        numbers = [self.ledger.write(self.stay) for _ in range(count)]
        self._write(b"".join(publish_frame(subject, f"{self.stay}/{number}".encode()) for number in numbers))
