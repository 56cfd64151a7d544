"""The same cases for each kind of door: new, ended and earlier interest; echo; payloads, headers, names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.ask_api import BrokerApi
from regraft.producers.nodes.doors import Door, DoorError, LocalMessage
from regraft.producers.nodes.nats_door import NatsDoor
from tests.producers.nodes.door_brokers import NEEDS, Heard, broker_of
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port

WAIT_S_MAX = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(params=list(NEEDS))
def run_door(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    NEEDS[request.param]()

    def run(steps: Callable[[Any, Heard], Awaitable[None]]) -> None:
        async def go() -> None:
            heard = Heard()
            async with broker_of(request.param, heard, tmp_path) as broker:
                await steps(broker, heard)

        asyncio.run(go())

    return run


async def opened(broker: Any, heard: Heard) -> Door:
    door: Door = broker.door
    await door.start(lambda *one: heard.interest.append(one), heard.messages.append)
    assert door.is_open
    return door


def test_interest_comes_goes_and_stood_before(run_door: Callable[..., None]) -> None:
    """Each subject is reported once for any number of clients, if wanted earlier at the start; its end, too."""

    async def steps(broker: Any, heard: Heard) -> None:
        first = await broker.want("before.*") if broker.TELLS_BEFORE else None
        await opened(broker, heard)
        first = first or await broker.want("before.*")
        await until(lambda: heard.wanted == {"before.*"})
        second = await broker.want("before.*", "group")
        third = await broker.want("after.>")
        after = broker.subjects("after.>")
        await until(lambda: set(after) < heard.wanted)
        await first()
        await third()
        await until(lambda: heard.wanted == {"before.*"})
        await second()
        await until(lambda: not heard.wanted)
        told = [(subject, wanted) for wanted in (True, False) for subject in after]
        assert heard.interest == [("before.*", True), *told, ("before.*", False)]

    run_door(steps)


def test_queue_group_is_one_interest(run_door: Callable[..., None]) -> None:
    """A subject that queue groups and plain subscribers want is reported once, and each gets one message."""

    async def steps(broker: Any, heard: Heard) -> None:
        door = await opened(broker, heard)
        leave = [await broker.want("work", queue) for queue in ("g", "h")]
        await until(lambda: heard.wanted == {"work"})
        assert door.publish(LocalMessage("work", b"1"))
        await until(lambda: bool(broker.got("work")))
        for one in leave:
            await one()
        await until(lambda: not heard.wanted)
        assert heard.interest == [("work", True), ("work", False)]

    run_door(steps)


def test_what_the_door_hands_over_never_comes_back(run_door: Callable[..., None]) -> None:
    """A message that came through the door is not a message of a local client."""

    async def steps(broker: Any, heard: Heard) -> None:
        door = await opened(broker, heard)
        await broker.want("echo.*")
        await until(lambda: heard.wanted == {"echo.*"})
        for number in range(20):
            assert door.publish(LocalMessage("echo.a", b"%d" % number))
        await until(lambda: len(broker.got("echo.a")) == 20)
        await broker.say(LocalMessage("end", b""))
        await until(lambda: bool(heard.messages))
        assert [message.subject for message in heard.messages] == ["end"]
        assert [message.payload for message in broker.got("echo.a")] == [b"%d" % number for number in range(20)]

    run_door(steps)


MESSAGES = {
    "empty": LocalMessage("a.b", b""),
    "binary": LocalMessage("a.b", bytes(range(256)) + b"\r\nLMSG x 1\r\n"),
    "megabyte": LocalMessage("a.b", bytes(range(256)) * 4_096),
    "reply": LocalMessage("a.b", b"question", "_INBOX.x.1"),
    "headers": LocalMessage("a.b", b"x", headers=b"NATS/1.0\r\nA: b\r\nRegraft-Publisher: p 7\r\n\r\n"),
    "headers and reply": LocalMessage("a.b", b"", "_INBOX.y", b"NATS/1.0\r\nA: b\r\n\r\n"),
    "unusual name": LocalMessage("", b"1"),  # Each broker has its own.
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_cross_as_they_are(name: str, run_door: Callable[..., None]) -> None:
    """In both directions subject, payload, reply and headers stay the same, byte for byte."""

    async def steps(broker: Any, heard: Heard) -> None:
        message = MESSAGES[name]
        if not message.subject:
            message = LocalMessage(broker.UNUSUAL, message.payload)
        door = await opened(broker, heard)
        await broker.want(message.subject)
        await until(lambda: heard.wanted == {message.subject})
        await broker.say(message)
        await until(lambda: bool(heard.messages))
        assert heard.messages == [message]
        before = int(broker.HEARS_ITSELF)
        await until(lambda: len(broker.got(message.subject)) == before)
        assert door.publish(message)
        await until(lambda: len(broker.got(message.subject)) == before + 1)
        assert broker.got(message.subject)[-1] == message

    run_door(steps)


def test_many_messages_keep_their_order(run_door: Callable[..., None]) -> None:
    """Five thousand messages of one client leave in the order in which they were published."""

    async def steps(broker: Any, heard: Heard) -> None:
        await opened(broker, heard)
        for number in range(50):
            for each in range(100):
                await broker.say(LocalMessage("n", b"%d" % (100 * number + each)))
        await until(lambda: len(heard.messages) == 5_000)
        assert [int(message.payload) for message in heard.messages] == list(range(5_000))

    run_door(steps)


def test_nats_server_that_restarts_tells_again_what_is_wanted(tmp_path: Path) -> None:
    """Interest survives a short absence of the server; what is no longer wanted afterwards has ended."""
    needs_nats()
    import nats

    async def go() -> None:
        heard = Heard()
        server = NatsServer("b01", tmp_path).start()
        door = NatsDoor(server.leaf_url, "b01")
        try:
            client = await nats.connect(server.url, allow_reconnect=False)
            await client.subscribe("stays")
            await client.subscribe("goes")
            await client.flush()
            await door.start(lambda *one: heard.interest.append(one), heard.messages.append)
            await until(lambda: heard.wanted == {"stays", "goes"})
            server.stop()
            await until(lambda: not door.is_open)
            assert not door.publish(LocalMessage("stays", b""))
            assert door.counts["broker_away"] == 1
            server.start()
            client = await nats.connect(server.url, allow_reconnect=False)
            await client.subscribe("stays")
            await client.flush()
            await until(lambda: heard.wanted == {"stays"})
            assert door.is_open
            await client.close()
        finally:
            await door.close()
            server.stop()

    asyncio.run(go())


def test_nats_door_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid door address and a closed port are named with what to do."""
    monkeypatch.setattr("regraft.producers.nodes.nats_door.CONNECT_S_MAX", 0.3)
    with pytest.raises(DoorError, match="names the leaf port"):
        NatsDoor("mqtt://127.0.0.1", "b01")

    async def go() -> None:
        await NatsDoor(f"nats://127.0.0.1:{free_port()}", "b01").start(lambda *_: None, lambda _: None)

    with pytest.raises(DoorError, match="start it with `leafnodes"):
        asyncio.run(go())


def test_nats_server_without_monitoring_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be queried and one that is absent are named with what to do."""
    needs_nats()
    from regraft.producers.nodes.nats_client_door import NatsClientDoor

    monkeypatch.setattr("regraft.producers.nodes.nats_client_door.CONNECT_S_MAX", 0.5)

    async def start(url: str, api_port: int) -> None:
        api = BrokerApi(f"http://127.0.0.1:{api_port}")
        await NatsClientDoor(url, "b01", api).start(lambda *_: None, lambda _: None)

    server = NatsServer("b01", tmp_path).start()
    try:
        with pytest.raises(DoorError, match=r"/subsz does not report .*`http_port`"):
            asyncio.run(start(server.url, free_port()))
        with pytest.raises(DoorError, match="no NATS server accepts a client"):
            asyncio.run(start(f"nats://127.0.0.1:{free_port()}", server.api_port))
    finally:
        server.stop()
