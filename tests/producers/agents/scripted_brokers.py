"""Brokers of NATS that say what a test has them say, a client of an agent beside them, and nodes' notes to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from regraft.producers.agents.agent import Agent
from regraft.producers.agents.nats_frames import Frame, FrameReader, message_frame
from regraft.producers.agents.nats_session import NatsSession
from regraft.producers.agents.nats_upstream import BrokerAddress
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes, note_of
from tests.wait_until import PATIENCE_S

INFO = b'INFO {"headers":true,"max_payload":1048576}\r\n'


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


class ScriptedConnection(asyncio.Protocol):
    """One connection to a broker: what it has subscribed, by sid."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker, self.reader = broker, FrameReader()
        self.subscribed: dict[bytes, tuple[bytes, bytes]] = {}
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.broker.is_closing:
            self.transport.close()
            return
        self.broker.connections.append(self)
        if not self.broker.is_silent:
            self.transport.write(INFO)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self.reader.feed(data):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        match frame.words:
            case [b"PING"]:
                self.transport.write(b"PONG\r\n")
            case [b"SUB", subject, sid]:
                self.subscribed[sid] = subject, b""
            case [b"SUB", subject, queue, sid]:
                self.subscribed[sid] = subject, queue
            case [b"UNSUB", sid, *_]:
                self.subscribed.pop(sid, None)
            case [b"PUB", subject, *_]:
                note = note_of(frame.payload) if subject.startswith(b"_REGRAFT.agent.") else None
                if note is not None:
                    self.broker.notes.append(note)
                self.deliver(subject, frame.payload)

    def deliver(self, subject: bytes, payload: bytes) -> None:
        for sid, (wanted, _) in self.subscribed.items():
            if wanted == subject or (wanted.endswith(b">") and subject.startswith(wanted[:-1])):
                self.transport.write(message_frame(subject, sid, b"", 0, payload))


class ScriptedBroker:
    """``notes`` are those that came from agents; a silent broker accepts connections and says nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[ScriptedConnection] = []
        self.notes: list[AgentNote] = []
        self.is_silent = self.is_closing = False
        self.server: Any = None

    async def start(self) -> BrokerAddress:
        self.server = await asyncio.get_running_loop().create_server(lambda: ScriptedConnection(self), "127.0.0.1", 0)
        return BrokerAddress(self.name, "127.0.0.1", self.server.sockets[0].getsockname()[1])

    @property
    def groups(self) -> dict[bytes, bytes]:
        """The queue groups of agents by subject."""
        every = [pair for each in self.connections for pair in each.subscribed.values()]
        return {subject: queue for subject, queue in every if queue}

    def publish(self, subject: bytes, payload: bytes) -> None:
        for each in list(self.connections):
            each.deliver(subject, payload)

    def cut(self) -> None:
        gone, self.connections = self.connections, []
        for each in gone:
            each.transport.abort()

    def stop(self) -> None:
        self.server.close()
        self.cut()


class ScriptedSite:
    """Brokers b01, where the client begins, to b03; a client that subscribes; what nodes say to its agent.

    ``is_old``: nodes are of 0.3.0, and write notes where agents do.
    """

    def __init__(self, *, is_old: bool = False) -> None:
        self.is_old = is_old
        self.brokers = {name: ScriptedBroker(name) for name in ("b01", "b02", "b03")}
        self.got: list[tuple[bytes, bytes]] = []

    async def start(self, *subjects: str) -> None:
        addresses = {name: await broker.start() for name, broker in self.brokers.items()}
        self.agent = Agent("web1", addresses, "b01")
        await self.agent.start("127.0.0.1", 0)
        reader, self.writer = await asyncio.open_connection("127.0.0.1", self.agent.port)
        await reader.readline()
        self.writer.write(b'CONNECT {"headers":true}\r\n')
        for sid, subject in enumerate(subjects, 1):
            self.writer.write(f"SUB {subject} {sid}\r\n".encode())
        self._reading = asyncio.create_task(self._read(reader))
        await until(lambda: len(self.brokers["b01"].groups) == len(subjects))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(65_536):
            self.got += [
                (frame.words[1], frame.payload) for frame in frames.feed(data) if frame.words[0] in (b"MSG", b"HMSG")
            ]

    async def close(self) -> None:
        self._reading.cancel()
        self.writer.close()
        await self.agent.close()
        for broker in self.brokers.values():
            broker.stop()

    @property
    def session(self) -> NatsSession:
        return self.agent.sessions[0]

    @property
    def counts(self) -> Counter[str]:
        return self.agent.counts

    def say(self, broker: str, kind: NoteKind, number: int, epoch: int = 1, to: str = "", **more: Any) -> None:
        """Let the node of a broker send a note about a subscription of the client."""
        name = self.session.client.name
        note = AgentNote(kind, f"{name}.{number}~0badcafe-{number}", epoch, to or broker, overlay="regraft", **more)
        place = f"_REGRAFT.agent.{name}" if self.is_old else f"_REGRAFT.to.{name}.{number}"
        self.brokers[broker].publish(place.encode(), note_bytes(note))

    def heard(self, broker: str, kind: NoteKind) -> int:
        """Return how many notes of a kind the agent has sent to a broker's node."""
        return sum(note.kind is kind for note in self.brokers[broker].notes)

    async def bring(self, number: int, subject: bytes, epoch: int = 1, to: str = "b02") -> None:
        """Move a subscription from b01 up to where both homes count."""
        self.say("b01", NoteKind.MOVE, number, epoch, to)
        await until(lambda: self.brokers[to].groups.get(subject, b"").endswith(b"@%d" % epoch))
        ready = self.heard("b01", NoteKind.READY)
        self.say(to, NoteKind.AWAITED, number, epoch)
        self.say(to, NoteKind.COUNTING, number, epoch)
        await until(lambda: self.heard("b01", NoteKind.READY) > ready)

    async def complete(self, number: int, epoch: int = 1, to: str = "b02") -> None:
        self.say("b01", NoteKind.SWITCHED, number, epoch)
        self.say(to, NoteKind.SWITCHED, number, epoch)
        self.say("b01", NoteKind.DRAINED, number, epoch)
        self.say(to, NoteKind.DRAINED, number, epoch)
