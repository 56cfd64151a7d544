"""The nearest broker is that which answers first, if it is clearly nearer than the present one and answers at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from regraft.producers.agents import measure_brokers
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.measure_brokers import NearestBroker
from regraft.producers.agents.mqtt_frames import MQTT_5, connect_of
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes, note_of, reported_brokers
from tests.wait_until import PATIENCE_S


class Servers:
    """Servers that greet after a while, by name; ``now_s`` is the time, which passes only while one lets wait."""

    def __init__(self, delays_s: dict[str, float]) -> None:
        self.delays_s, self.now_s = delays_s, 0.0
        self.listening: dict[str, asyncio.Server] = {}

    async def start(self) -> dict[str, BrokerAddress]:
        for name in self.delays_s:
            self.listening[name] = await asyncio.start_server(
                lambda reader, writer, name=name: self._greet(name, writer, reader), "127.0.0.1", 0
            )
        ports = {name: server.sockets[0].getsockname()[1] for name, server in self.listening.items()}
        return {name: BrokerAddress(name, "127.0.0.1", port) for name, port in ports.items()}

    async def _greet(self, name: str, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self.now_s += self.delays_s[name]
        writer.write(b"INFO {}\r\n")
        writer.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_brokers, "ANSWER_S_MAX", PATIENCE_S)


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Servers], None]:
    """Return a function that lets brokers be measured one at a time, by the time that passes at their servers."""

    def clock(servers: Servers) -> None:
        monkeypatch.setattr(measure_brokers, "AT_ONCE_MAX", 1)
        monkeypatch.setattr(measure_brokers, "time", SimpleNamespace(perf_counter=lambda: servers.now_s))

    return clock


async def measured(near: NearestBroker, rounds: int = 1) -> str:
    for _ in range(rounds * -(-len(near._brokers) // measure_brokers.AT_ONCE_MAX)):
        await near.measure()
    return near.nearest


def test_the_nearest_follows_where_the_agent_is(clocked: Callable[[Servers], None]) -> None:
    asyncio.run(_follow(clocked))


async def _follow(clocked: Callable[[Servers], None]) -> None:
    servers = Servers({"b01": 0.3, "b02": 0.0, "b03": 0.6})
    clocked(servers)
    near = NearestBroker(await servers.start(), "b01")
    assert near.nearest == ""
    assert await measured(near) == "b02"
    servers.delays_s |= {"b02": 0.6, "b03": 0.0}
    assert await measured(near, measure_brokers.ROUNDS) == "b03"
    servers.listening["b03"].close()
    servers.delays_s |= {"b01": 0.0}
    assert await measured(near, measure_brokers.ROUNDS) == "b01"


def test_the_home_stays_the_nearest_unless_another_is_clearly_nearer(clocked: Callable[[Servers], None]) -> None:
    asyncio.run(_stay(clocked))


async def _stay(clocked: Callable[[Servers], None]) -> None:
    servers = Servers({"b01": 0.30, "b02": 0.29})
    clocked(servers)
    near = NearestBroker(await servers.start(), "b01")
    assert await measured(near, 2) == "b01"


def test_no_broker_is_the_nearest_while_none_answers() -> None:
    async def nobody() -> str:
        return await measured(NearestBroker({"b01": BrokerAddress("b01", "127.0.0.1", 1)}, "b01"))

    assert asyncio.run(nobody()) == ""


def test_brokers_that_have_never_answered_are_not_reached() -> None:
    """One that answered once still is: it may only have been restarted. Before the first answer nothing is said."""
    asyncio.run(_reach())


async def _reach() -> None:
    servers = Servers({"b01": 0.0, "b02": 0.0})
    brokers = await servers.start() | {"b03": BrokerAddress("b03", "127.0.0.1", 1)}
    near = NearestBroker(brokers, "b01")
    assert near.reached == ()
    await near.measure()
    assert near.reached == ("b01", "b02")
    servers.listening["b02"].close()
    await measured(near, measure_brokers.ROUNDS)
    assert near.reached == ("b01", "b02")
    assert NearestBroker({"b03": brokers["b03"]}, "b03").reached == ("b03",)


def test_a_note_has_room_for_what_an_agent_reports() -> None:
    """Of very many brokers, or very long names, only the first are reported, and the note can be read."""
    for count, length in ((200, 3), (64, 200), (40, 256)):
        names = [f"{number:0{length}d}" for number in range(count)]
        reported = reported_brokers(names)
        note = AgentNote(NoteKind.NEAREST, broker=names[-1], brokers=reported, overlay="o" * 256)
        assert note_of(note_bytes(note)) == note
        assert reported == tuple(names[: len(reported)])
        assert len(reported) == 64 or length > 3


class MqttServers(Servers):
    """Servers that answer a CONNECT after a while, with a refusal; one with a negative delay hangs up at once."""

    async def start(self) -> dict[str, BrokerAddress]:
        return {name: replace(one, scheme="mqtt") for name, one in (await super().start()).items()}

    async def _greet(self, name: str, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        delay_s = self.delays_s[name]
        frame = await reader.readexactly(2) if delay_s >= 0 else b""
        if frame and connect_of(frame + await reader.readexactly(frame[1]), MQTT_5).clean_start:
            self.now_s += delay_s
            writer.write(b"\x20\x03\x00\x87\x00")
        writer.close()


def test_with_mqtt_the_answer_to_a_connect_counts(clocked: Callable[[Servers], None]) -> None:
    """Any answer: it is not logged in. A broker that accepts a connection and says nothing is not near."""
    asyncio.run(_follow_mqtt(clocked))


async def _follow_mqtt(clocked: Callable[[Servers], None]) -> None:
    servers = MqttServers({"b01": 0.3, "b02": 0.1, "b03": -1.0})
    clocked(servers)
    near = NearestBroker(await servers.start(), "b01")
    assert await measured(near) == "b02"
    assert near.reached == ("b01", "b02")
    servers.delays_s |= {"b01": 0.0}
    assert await measured(near, measure_brokers.ROUNDS) == "b01"
