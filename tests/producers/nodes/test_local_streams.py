"""Streams of a NATS server that are local: others are not asked for their subjects, and clients keep what they want."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.nats import local_streams
from regraft.producers.nodes.nats.connect_nats import NatsSettings
from regraft.producers.nodes.nats.local_streams import LocalStreams
from tests.producers.nodes.connector_kit import needs, until
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.nats_site import NatsSite, at_leaf_port, nats_site
from tests.wait_until import PATIENCE_S

PAIR = TreeConfiguration.of(0, ("b01", "b02"), [("b01", "b02")])


def listed(streams: dict[str, list[str]], total: int = 0, offset: int = 0) -> bytes:
    found = [{"config": {"name": name, "subjects": subjects}} for name, subjects in streams.items()]
    return json.dumps({"total": total or len(streams), "offset": offset, "streams": found}).encode()


class Asked(LocalStreams):
    """Streams of a server that answers what the test says."""

    def __init__(self, *names: str) -> None:
        self.questions: list[LocalMessage] = []
        super().__init__("b01", names, self.questions.append)
        self.changes = 0
        self.on_change = self._count

    def _count(self) -> None:
        self.changes += 1

    def answer(self, payload: bytes) -> None:
        assert self.receive(LocalMessage(self.answers, payload))


def test_the_list_of_streams_may_take_several_answers() -> None:
    """What is local is known once all are there; until then no interest in any subject is passed on."""
    streams = Asked("A", "C")
    streams.ask()
    assert streams.leaves_out("anything")
    streams.answer(listed({"A": ["a", "x"], "B": ["b"]}, total=3))
    assert [json.loads(each.payload)["offset"] for each in streams.questions] == [0, 2]
    assert streams.leaves_out("b")
    streams.answer(listed({"C": ["c", "x"]}, total=3, offset=2))
    assert [each for each in "abcx" if streams.leaves_out(each)] == ["a", "c", "x"]
    assert streams.subjects == {"a", "c", "x"}
    streams.answer(listed({"A": ["a", "x"], "B": ["b"], "C": ["c", "x"]}))
    assert streams.changes == 1
    streams.answer(listed({"A": ["b"]}))
    assert (streams.changes, streams.leaves_out("b"), streams.leaves_out("a")) == (2, True, False)
    assert not streams.receive(LocalMessage("other", b""))


def test_streams_that_want_subjects_from_everywhere_are_named_once() -> None:
    """Not those of a server, such as a key-value store, nor local ones; again when there is another one."""
    streams = Asked("C")
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            streams.answer(listed({"A": ["a"], "KV_x": ["$KV.x.>"], "M": [], "C": ["c"]}))
    (line,) = logs
    assert (line["event"], line["streams"]) == ("streams_cross", {"A": ["a"]})
    assert "connectors.nats.local_streams" in line["reason"]
    with structlog.testing.capture_logs() as logs:
        streams.ask()
        streams.answer(listed({"B": ["b"]}))
    assert [line["streams"] for line in logs] == [{"B": ["b"]}]


def test_what_cannot_be_listed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error and an unreadable answer are, and silence where there is JetStream; an account without it has none."""
    monkeypatch.setattr(local_streams, "LOOK_S", -1.0)
    streams = Asked()
    with structlog.testing.capture_logs() as logs:
        streams.answer(b'{"error": {"err_code": 1, "description": "no leader"}}')
        streams.answer(b"[1]")
        streams.ask()
        streams.ask_again({})
        streams.ask_again({"jetstream": True})
    assert [line["event"] for line in logs] == ["streams_not_listed"] * 3
    streams.answer(b'{"error": {"err_code": 10039, "description": "not enabled for account"}}')
    questions = len(streams.questions)
    streams.ask_again({"jetstream": True})
    assert len(streams.questions) == questions  # Without local streams, once is enough.


@pytest.mark.parametrize(("name", "is_refused"), [("ORDERS", False), ("*", False), ("a.b", True), ("", True)])
def test_a_name_that_no_stream_has_is_refused(name: str, is_refused: bool) -> None:
    """At the start, by its form."""
    settings = NatsSettings(local_streams=(name,))
    assert any("local_streams" in error for error in settings.errors()) == is_refused


async def stored(site: NatsSite, broker: str) -> int:
    info = await site.clients[broker].jetstream().stream_info("ORDERS")
    return int(info.state.messages)


async def two_sites(site: NatsSite) -> None:
    """Make a stream of the same subjects at both, and something that all nodes want, so that they are confirmed."""

    async def ignore(_message: Any) -> None: ...

    for client in site.clients.values():
        await client.jetstream().add_stream(name="ORDERS", subjects=["orders.*"])
        await client.subscribe("anything", cb=ignore)
    await site.flush()
    await site.fleet.all_confirmed()


@pytest.mark.stack
@pytest.mark.parametrize("names", [["ORDERS"], ["*"], []])
def test_a_local_stream_stores_what_its_site_publishes(
    names: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting, each of two streams with the same subjects stores what both sites publish."""
    needs("nats")
    monkeypatch.setattr(local_streams, "LOOK_S", 0.1)
    ask_again_s = 0.2

    async def go() -> None:
        connector_of = partial(at_leaf_port, local_streams=names)
        async with nats_site(tmp_path, PAIR, connector_of=connector_of, has_streams=True) as site:
            await two_sites(site)
            nodes: list[Any] = list(site.fleet.nodes.values())
            await until(lambda: not names or all(node.connector._streams.subjects for node in nodes))
            await until(lambda: all(node.clients.interest_count == (1 if names else 2) for node in nodes))
            await site.fleet.all_confirmed()
            for number in range(10):
                await site.clients["b01"].publish("orders.x", b"%d" % number)
            await site.flush()
            while (await stored(site, "b01"), await stored(site, "b02")) != (10, 0 if names else 10):
                await asyncio.sleep(0.05)
            await asyncio.sleep(ask_again_s)
            assert await stored(site, "b02") == (0 if names else 10)

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


@pytest.mark.stack
def test_clients_keep_what_they_want_beside_a_local_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another subject, or a queue group with the stream's, crosses; its own subject does once the stream is gone."""
    needs("nats")
    monkeypatch.setattr(local_streams, "LOOK_S", 0.1)

    async def go() -> None:
        connector_of = partial(at_leaf_port, local_streams=["ORDERS"])
        async with nats_site(tmp_path, PAIR, connector_of=connector_of, has_streams=True) as site:
            await two_sites(site)
            got: list[tuple[str, bytes]] = []

            def taker(name: str) -> Any:
                async def take(message: Any) -> None:
                    got.append((name, message.data))

                return take

            b02 = site.clients["b02"]
            own = await b02.subscribe("orders.*", cb=taker("own"))
            group = await b02.subscribe("orders.*", queue="g", cb=taker("group"))
            node = site.fleet.nodes["b02"]
            await until(lambda: node.clients.interest_count == 2)

            async def published(payload: bytes, names: list[str]) -> None:
                await site.flush()
                await site.fleet.all_confirmed()
                await site.clients["b01"].publish("orders.x", payload)
                expected = [(name, payload) for name in names]
                await until(lambda: sorted(each for each in got if each[1] == payload) == expected)

            await published(b"1", ["group", "own"])
            await group.unsubscribe()
            await until(lambda: node.clients.interest_count == 1)
            await b02.jetstream().delete_stream("ORDERS")
            await until(lambda: node.clients.interest_count == 2)
            await published(b"2", ["own"])
            await own.unsubscribe()
            await until(lambda: node.clients.interest_count == 1)

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


@pytest.mark.stack
def test_a_connector_with_local_streams_opens_only_if_they_can_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without JetStream is named with what to do."""
    needs("nats")
    monkeypatch.setattr("regraft.producers.nodes.nats.nats_connector.CONNECT_S_MAX", 1.0)

    async def go() -> None:
        with NatsServer("b01", tmp_path) as server:
            connector = at_leaf_port(server, "b01", ["ORDERS"])
            with pytest.raises(ConnectorError, match=r"leave connectors\.nats\.local_streams empty"):
                await connector.start(lambda *_: None, lambda _: None)
            assert not connector.is_open

    asyncio.run(go())
