"""At a NATS server's client port a connector asks for subjects that overlap, and takes each message once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.wanted_subjects import ASKED_MAX
from regraft.producers.nodes.nats import nats_subscriptions
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import broker_of, needs, until
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.nats_site import at_client_port
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

OVERLAPPING = ("a.b", "a.*", "*.b", "a.>", "*.*", ">")
OTHERS = ("c", "c.*", "a.c.d", "*.d")


def run(directory: Path, steps: Callable[[Any, Received], Awaitable[None]]) -> None:
    needs("nats")

    async def go() -> None:
        received = Received()
        async with broker_of("nats without a leaf port", received, directory) as broker:
            broker.connector.ask_only(())
            await broker.connector.start(lambda *_: None, received.messages.append)
            await steps(broker, received)

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


async def _has_responders(client: Any, subject: str) -> bool:
    import nats.errors

    try:
        await client.request(subject, b"", timeout=0.2)
    except nats.errors.NoRespondersError:
        return False
    except nats.errors.TimeoutError:
        return True
    return True


@pytest.mark.parametrize("asked", [OVERLAPPING[:2], OVERLAPPING[3:5], OVERLAPPING])
def test_a_message_that_several_subjects_match_is_taken_once(asked: tuple[str, ...], tmp_path: Path) -> None:
    """However many of what is asked for match it, and what none matches is not sent to the connector."""

    async def steps(broker: Any, received: Received) -> None:
        answer = broker.connector.ask_for(asked)
        assert answer is not None
        await answer
        for number in range(500):
            await broker.client.publish("a.b", b"%d" % number)
        await broker.client.publish("other", b"")
        await broker.client.publish("a.b", b"500")
        matching = "a.b" if ">" not in asked else ""
        await until(lambda: bool(received.messages) and received.messages[-1].payload == b"500")
        assert [int(each.payload) for each in received.messages if each.subject == "a.b"] == list(range(501))
        assert not matching or {each.subject for each in received.messages} == {"a.b"}
        broker.connector.ask_only(())
        while await _has_responders(broker.client, "a.b"):
            await asyncio.sleep(0.02)

    run(tmp_path, steps)


def test_nothing_is_lost_or_taken_twice_while_what_is_asked_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients publish without a pause; at each moment another selection of subjects that match is asked for."""

    monkeypatch.setattr(nats_subscriptions, "STAY_S", 0.1)

    async def steps(broker: Any, received: Received) -> None:
        import nats

        choice, is_over = random.Random(42), False
        other = await nats.connect(broker.server.url)
        published = {b"x": 0, b"y": 0}

        async def publish(client: Any, name: bytes) -> None:
            while not is_over:
                for _ in range(20):
                    await client.publish("a.b", b"%b %d" % (name, published[name]))
                    published[name] += 1
                await client.flush()

        def selection() -> list[str]:
            wanted = choice.sample(OVERLAPPING, choice.randint(1, len(OVERLAPPING)))
            return wanted + choice.sample(OTHERS, choice.randint(0, len(OTHERS)))

        broker.connector.ask_only(selection())
        await until(lambda: broker.connector.ask_for(()) is None)
        publishing = [
            asyncio.create_task(publish(client, name))
            for client, name in ((broker.client, b"x"), (other, b"y"))
        ]  # fmt: skip
        for _ in range(300):
            if choice.random() < 0.3:
                broker.connector.ask_for(selection())
            elif choice.random() < 0.1:
                broker.connector.ask_only([f"many.{number}" for number in range(ASKED_MAX + 1)])
            else:
                broker.connector.ask_only(selection())
            await asyncio.sleep(choice.random() * 0.02)
        is_over = True
        await asyncio.gather(*publishing)
        await until(lambda: len(received.messages) >= sum(published.values()))
        await broker.client.flush()
        await asyncio.sleep(0.2)
        for name, count in published.items():
            came = [int(each.payload.split()[1]) for each in received.messages if each.payload.startswith(name)]
            assert (len(came), len(set(came))) == (count, count)
            assert all(later > earlier for earlier, later in pairwise(came))
        await other.close()

    run(tmp_path, steps)


def test_what_is_asked_for_outlasts_a_restart_of_the_server(tmp_path: Path) -> None:
    """Over the library's own reconnect, and over one that the connector makes, each message is taken once."""

    async def steps(broker: Any, received: Received) -> None:
        import nats

        connector = broker.connector
        await connector.ask_for(["a.b", "a.*", "gone"])
        broker.server.stop()
        connector.ask_only(["a.b", "a.>"])
        broker.server.start()
        await until(lambda: connector.is_open and connector.ask_for(()) is None)
        client = await nats.connect(broker.server.url)
        while not await _has_responders(client, "a.b") or await _has_responders(client, "gone"):
            await asyncio.sleep(0.02)
        received.messages.clear()
        for end in (b"1", b"2"):
            await client.publish("gone", b"")
            await client.publish("a.b", end)
            await until(lambda end=end: bool(received.messages) and received.messages[-1].payload == end)
            await connector._renew()
            await until(lambda: connector.is_open)
        assert [each.payload for each in received.messages] == [b"1", b"2"]
        await client.close()

    run(tmp_path, steps)


def test_what_the_client_may_not_subscribe_is_counted(tmp_path: Path) -> None:
    """A server with permissions sends the rest of what is asked for."""
    needs("nats")
    allowed = 'permissions: { publish: [">"], subscribe: ["a.>", "_REGRAFT.>"] }'
    accounts = f"accounts {{ A: {{ users: [{{ user: u, password: p, {allowed} }}] }} }}\nno_auth_user: u"

    async def go() -> None:
        import nats

        received = Received()
        with NatsServer("b01", tmp_path, accounts) as server:
            connector, client = at_client_port(server, "b01"), await nats.connect(server.url)
            connector.ask_only(())
            await connector.start(lambda *_: None, received.messages.append)
            asked = connector.ask_for(["a.b", "secret", "a.c"])
            assert asked is not None
            await asked
            await client.publish("secret", b"")
            await client.publish("a.b", b"1")
            await until(lambda: received.messages == [LocalMessage("a.b", b"1")])
            await until(lambda: connector.counts == {"permission_denied": 1})
            await connector.close()
            await client.close()

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


def test_a_server_that_answers_at_its_close_does_not_keep_a_connector_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to Python 3.11, the library then suppresses that the task that asked is cancelled."""
    needs("nats")
    from regraft.producers.nodes.nats.nats_client_connector import NatsClientConnector

    monkeypatch.setattr("regraft.producers.nodes.nats.nats_client_connector.PROBE_S", 0.0)
    monkeypatch.setattr("regraft.infra.process.end_tasks.AGAIN_S", 0.01)

    class Answering:
        is_reconnecting = False

        async def flush(self) -> None:
            self.answer = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self.answer, PATIENCE_S)

        async def close(self) -> None: ...

    async def go() -> None:
        connector = NatsClientConnector("nats://127.0.0.1:1", "b01", BrokerApi("http://127.0.0.1:1"))
        connector._client = client = Answering()
        connector._tasks = [asyncio.create_task(connector._keep_proved())]
        await until(lambda: hasattr(client, "answer"))
        client.answer.set_result(None)
        await connector.close()

    asyncio.run(asyncio.wait_for(go(), 10))
