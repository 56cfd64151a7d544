"""Connectors next to real brokers whose clients publish and want anything that the broker lets them.

In: a kind of broker, a seed and a number of messages. Out: how many the connector passed on, and how many it counted.
Together they are what a witness, another client of that broker, received; the connector stays open all the time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import broker_of

KINDS = ("nats", "mqtt", "amqp")
PIECES = (
    "a",
    "b.c",
    "é",
    "\U0001f980",
    "x y",
    "\x01",
    "\x7f",
    "*",
    ">",
    "$",
    "$JS.API",
    "_REGRAFT",
    "\u202e",
    "\ufdd0",
    "/",
)
BLOCKS = (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: \xff\r\n\r\n", b"NATS/1.0\r\nA: b\nC: d\r\n\r\n", b"xx")
BAD_BYTES = ("\udcff", "\udc80")  # As surrogates; only NATS lets them through.
LAST = "last.one"
WAIT_S_MAX = 120.0


async def feed_connector(kind: str, rng: random.Random, count: int, directory: Path) -> Counter[str]:
    """Let a client publish this many messages, and others want odd things; assert that each is accounted for."""
    received = Received()
    async with broker_of(kind, received, directory) as broker:
        connector = broker.connector
        await connector.start(lambda *one: received.interest.append(one), received.messages.append)
        publish = {"mqtt": _Mqtt, "amqp": _Amqp}.get(kind, _Nats)(broker, rng)
        await publish.begin()
        for number in range(count):
            await publish.send()
            if number % 200 == 0:
                await asyncio.sleep(0.01)
        await publish.last()
        async with asyncio.timeout(WAIT_S_MAX):
            while not received.messages or received.messages[-1].subject != LAST:
                await asyncio.sleep(0.01)
        assert connector.is_open
        assert connector.counts["refused"] == 0
        refused = sum(
            connector.counts[what] for what in ("bad_subject", "bad_headers", "own_subject", "message_unreadable")
        )
        witnessed = await publish.witnessed(len(received.messages) + refused)
        assert len(received.messages) + refused == witnessed, (len(received.messages), connector.counts, witnessed)
        await publish.end()
        return Counter(passed_on=len(received.messages), refused=refused)


def _subject(rng: random.Random, pieces: tuple[str, ...], joint: str) -> str:
    if rng.random() < 0.3:
        return f"a{joint}b"
    return rng.choice(("", joint)).join(rng.choice(pieces) for _ in range(rng.randrange(1, 4)))


class _Nats:
    """A client that speaks the protocol itself, as no library sends such subjects, and a witness that does, too."""

    def __init__(self, broker: Any, rng: random.Random) -> None:
        self._broker, self._rng = broker, rng
        self._seen = self._sent = 0

    async def begin(self) -> None:
        self._reader, self._writer = await self._connection()
        reader, self._witness = await self._connection()
        self._witness.write(b"SUB > 1\r\nPING\r\n")
        while not (await reader.readline()).startswith(b"PONG"):
            pass
        self._counting = asyncio.create_task(self._count(reader))

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._broker.server.client_port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"pedantic":false,"lang":"x","version":"1","headers":true}\r\n')
        return reader, writer

    async def _count(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line.startswith((b"MSG ", b"HMSG ")):
                await reader.readexactly(int(line.split()[-1]) + 2)
                # The server itself keeps JetStream's API from leaf links.
                self._seen += not line.split(b" ")[1].startswith(b"$JS.API.")

    async def send(self) -> None:
        rng = self._rng
        subject = _subject(rng, (*PIECES, *BAD_BYTES), ".").replace(" ", "").encode(errors="surrogateescape")
        if rng.random() < 0.05:
            self._writer.write(b"SUB %b %d\r\nUNSUB %d\r\n" % (subject, self._sent + 9, self._sent + 9))
        if rng.random() < 0.5:
            reply = rng.choice((b"", b"r ", b"\xff ", b"_REGRAFT.x "))
            self._writer.write(b"PUB %b %b1\r\nx\r\n" % (subject, reply))
        else:
            block = rng.choice(BLOCKS)
            self._writer.write(b"HPUB %b %d %d\r\n%bx\r\n" % (subject, len(block), len(block) + 1, block))
        self._sent += 1
        if self._sent % 50 == 0:
            await self._writer.drain()

    async def last(self) -> None:
        self._writer.write(f"PUB {LAST} 1\r\nx\r\nPING\r\n".encode())
        while b"PONG" not in await self._reader.read(1 << 16):
            pass

    async def witnessed(self, expected: int) -> int:
        return await _settled(lambda: self._seen, expected)

    async def end(self) -> None:
        assert not self._counting.done(), self._counting
        self._counting.cancel()
        self._writer.close()
        self._witness.close()


async def _settled(count: Callable[[], int], expected: int) -> int:
    """Return the count once it is as expected and stays so, or after some seconds."""
    for _ in range(500):
        if count() >= expected:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    return count()


class _Mqtt:
    """A client of paho, whose own checks of topics are left out; the broker's count."""

    def __init__(self, broker: Any, rng: random.Random) -> None:
        self._broker, self._rng = broker, rng
        self._received = broker.received

    async def begin(self) -> None:
        await self._broker.want(">")

    async def send(self) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        rng, pieces = self._rng, tuple(piece for piece in PIECES if piece not in ("\x01", "\x7f", "\ufdd0"))
        topic = _subject(rng, pieces, "/").lstrip("$") or "a"
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [(rng.choice(("a", "ü", "c d", "Mqtt-Qos", "")), rng.choice(("x", "", "é y", "1")))]
        self._broker.client.paho.publish(topic, b"x", rng.choice((0, 1)), properties=properties)

    async def last(self) -> None:
        self._broker.client.paho.publish(LAST.replace(".", "/"), b"x", 1)

    async def witnessed(self, expected: int) -> int:
        return await _settled(lambda: sum(map(len, self._received.got.values())), expected)

    async def end(self) -> None:
        pass


class _Amqp(_Mqtt):
    """A client of pika with odd keys, headers and replies."""

    async def begin(self) -> None:
        await self._broker.client.bind("#")

    async def send(self) -> None:
        rng = self._rng
        headers = {
            rng.choice(("a", "ü", "c d", "Amqp-Type")): rng.choice(("x", "\r\n", 1, None, True, ["x"], {"b": 1}))
        }
        reply = rng.choice((None, "r", "r 0\r\n\r\nPUB x 1", "$JS.ACK.x", "r" * 255))
        await self._broker.client.publish(_subject(rng, PIECES, "."), b"x", headers=headers, reply_to=reply)

    async def last(self) -> None:
        await self._broker.client.publish(LAST, b"x")


def feed_connectors(rng: random.Random, count: int, directory: Path, kind: str) -> Counter[str]:
    """Run one kind on its own loop."""
    return asyncio.run(feed_connector(kind, rng, count, directory))
