"""The same cases for each kind of door: new, ended and earlier interest; echo; payloads, headers, names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.ask_api import BrokerApi
from regraft.producers.nodes.doors import Door, DoorError, LocalMessage
from regraft.producers.nodes.nats_door import NatsDoor
from tests.producers.nodes.door_brokers import NEEDS, Received, door_runner
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port

WAIT_S_MAX = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(params=list(NEEDS))
def run_door(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    return door_runner(request.param, tmp_path)


async def opened(broker: Any, received: Received) -> Door:
    door: Door = broker.door
    await door.start(lambda *one: received.interest.append(one), received.messages.append)
    assert door.is_open
    return door


def test_interest_begins_ends_and_may_exist_before(run_door: Callable[..., None]) -> None:
    """Each subject is reported once for any number of clients, if wanted earlier at the start; its end, too."""

    async def steps(broker: Any, received: Received) -> None:
        first = await broker.want("before.*") if broker.REPORTS_EARLIER_INTEREST else None
        await opened(broker, received)
        first = first or await broker.want("before.*")
        await until(lambda: received.wanted == {"before.*"})
        second = await broker.want("before.*", "group")
        third = await broker.want("after.>")
        after = broker.subjects("after.>")
        await until(lambda: set(after) < received.wanted)
        await first()
        await third()
        await until(lambda: received.wanted == {"before.*"})
        await second()
        await until(lambda: not received.wanted)
        changes = [(subject, wanted) for wanted in (True, False) for subject in after]
        assert received.interest == [("before.*", True), *changes, ("before.*", False)]

    run_door(steps)


def test_a_queue_group_is_one_interest(run_door: Callable[..., None]) -> None:
    """A subject that queue groups and plain subscribers want is reported once, and each gets one message."""

    async def steps(broker: Any, received: Received) -> None:
        door = await opened(broker, received)
        leave = [await broker.want("work", queue) for queue in ("g", "h")]
        await until(lambda: received.wanted == {"work"})
        assert door.publish(LocalMessage("work", b"1"))
        await until(lambda: bool(broker.got("work")))
        for one in leave:
            await one()
        await until(lambda: not received.wanted)
        assert received.interest == [("work", True), ("work", False)]

    run_door(steps)


def test_the_door_never_receives_its_own_messages(run_door: Callable[..., None]) -> None:
    """A message that came through the door is not a message of a local client."""

    async def steps(broker: Any, received: Received) -> None:
        door = await opened(broker, received)
        await broker.want("echo.*")
        await until(lambda: received.wanted == {"echo.*"})
        for number in range(20):
            assert door.publish(LocalMessage("echo.a", b"%d" % number))
        await until(lambda: len(broker.got("echo.a")) == 20)
        await broker.publish(LocalMessage("end", b""))
        await until(lambda: bool(received.messages))
        assert [message.subject for message in received.messages] == ["end"]
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
def test_messages_cross_unchanged(name: str, run_door: Callable[..., None]) -> None:
    """In both directions subject, payload, reply and headers stay the same, byte for byte."""

    async def steps(broker: Any, received: Received) -> None:
        message = MESSAGES[name]
        if not message.subject:
            message = LocalMessage(broker.UNUSUAL, message.payload)
        door = await opened(broker, received)
        await broker.want(message.subject)
        await until(lambda: received.wanted == {message.subject})
        await broker.publish(message)
        await until(lambda: bool(received.messages))
        assert received.messages == [message]
        before = int(broker.GETS_OWN_MESSAGES)
        await until(lambda: len(broker.got(message.subject)) == before)
        assert door.publish(message)
        await until(lambda: len(broker.got(message.subject)) == before + 1)
        assert broker.got(message.subject)[-1] == message

    run_door(steps)


def test_many_messages_keep_their_order(run_door: Callable[..., None]) -> None:
    """Five thousand messages of one client leave in the order in which they were published."""

    async def steps(broker: Any, received: Received) -> None:
        await opened(broker, received)
        for number in range(50):
            for each in range(100):
                await broker.publish(LocalMessage("n", b"%d" % (100 * number + each)))
        await until(lambda: len(received.messages) == 5_000)
        assert [int(message.payload) for message in received.messages] == list(range(5_000))

    run_door(steps)


def test_a_restarted_nats_server_reports_interest_again(tmp_path: Path) -> None:
    """Interest survives a short absence of the server; what is no longer wanted afterwards has ended."""
    needs_nats()
    import nats

    async def go() -> None:
        received = Received()
        server = NatsServer("b01", tmp_path).start()
        door = NatsDoor(server.leaf_url, "b01")
        try:
            client = await nats.connect(server.url, allow_reconnect=False)
            await client.subscribe("stays")
            await client.subscribe("goes")
            await client.flush()
            await door.start(lambda *one: received.interest.append(one), received.messages.append)
            await until(lambda: received.wanted == {"stays", "goes"})
            server.stop()
            await until(lambda: not door.is_open)
            assert not door.publish(LocalMessage("stays", b""))
            assert door.counts["broker_away"] == 1
            server.start()
            client = await nats.connect(server.url, allow_reconnect=False)
            await client.subscribe("stays")
            await client.flush()
            await until(lambda: received.wanted == {"stays"})
            assert door.is_open
            await client.close()
        finally:
            await door.close()
            server.stop()

    asyncio.run(go())


def test_the_nats_door_reports_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid door address and a closed port are named with what to do."""
    monkeypatch.setattr("regraft.producers.nodes.nats_door.CONNECT_S_MAX", 0.3)
    with pytest.raises(DoorError, match="names the leaf port"):
        NatsDoor("mqtt://127.0.0.1", "b01")

    async def go() -> None:
        await NatsDoor(f"nats://127.0.0.1:{free_port()}", "b01").start(lambda *_: None, lambda _: None)

    with pytest.raises(DoorError, match="start it with `leafnodes"):
        asyncio.run(go())


def test_a_nats_server_without_monitoring_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        other = NatsServer("b02", tmp_path).start()
        try:
            with pytest.raises(DoorError, match="is the monitoring port of server"):
                asyncio.run(start(server.url, other.api_port))
        finally:
            other.stop()
    finally:
        server.stop()
