"""A client that asks for a session at one broker while another knows it is counted, and named once with both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as some

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.roaming_clients import ANNOUNCED_MAX, KEPT_MAX, RoamingClients
from regraft.producers.nodes.links.link_frames import Probe, link_frame
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.mqtt_interest import MqttInterest
from tests.producers.nodes.connector_kit import needs, until
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer
from tests.producers.nodes.node_fleet import NodeFleet
from tests.wait_until import PATIENCE_S


def roaming(knows: Callable[[str], bool] = lambda _: True) -> RoamingClients:
    return RoamingClients("b01", Counter(), knows)


def test_a_client_that_is_gone_is_not_announced_again() -> None:
    """Over another connection, which begins with what may be lost."""
    known = {"device", "gone"}
    clients = roaming(known.__contains__)
    for name in sorted(known):
        clients.note(name)
    assert clients.announced_from(0) == (2, ("device", "gone"))
    known.remove("gone")
    assert clients.announced_from(0) == (2, ("device",))


@given(some.integers(0, 3 * KEPT_MAX))
def test_each_client_is_announced_to_a_peer_once(count: int) -> None:
    """In probes of a bounded size; of too many at once, the latest."""
    clients, place, announced = roaming(), 0, []
    for number in range(count):
        clients.note(str(number))
    while place < clients.noted_count:
        place, names = clients.announced_from(place)
        assert 0 < len(names) <= ANNOUNCED_MAX
        announced += names
    assert announced == [str(number) for number in range(max(0, count - KEPT_MAX), count)]
    assert clients.announced_from(place) == (count, ())


@given(some.lists(some.text(max_size=300)))
@example(["a\u200eb", "a\ud800b", "a\x00b", "", "ok"])
def test_only_names_that_a_peer_accepts_are_announced(names: list[str]) -> None:
    """Clients choose their names, and none may end a link."""
    clients = roaming()
    for name in names:
        clients.note(name)
    _, announced = clients.announced_from(0)
    frame = link_frame(Probe(1.0, False, announced))
    assert msgspec.msgpack.decode(frame[12:], type=Probe).clients == announced


def test_a_node_without_this_field_reads_a_probe_with_it() -> None:
    """Nodes of both versions keep their link."""

    class FormerProbe(msgspec.Struct, array_like=True, tag=2, frozen=True):
        sent_ms: float
        is_answer: bool

    frame = link_frame(Probe(1.0, False, ("device",)))
    assert msgspec.msgpack.decode(frame[12:], type=FormerProbe) == FormerProbe(1.0, False)
    former = msgspec.msgpack.encode(FormerProbe(1.0, True))
    assert msgspec.msgpack.decode(former, type=Probe) == Probe(1.0, True)


def test_a_client_is_counted_once_for_each_other_broker() -> None:
    """However often it comes and goes; one that is not known here is not."""
    counts = Counter[str]()
    clients = RoamingClients("b02", counts, lambda name: name == "device")
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            clients.take("b01", ["device", "other"])
        clients.take("b03", ["device"])
    assert counts == {"client_at_two_brokers": 2}
    assert [(line["client"], line["brokers"]) for line in logs] == [
        ("device", ["b01", "b02"]),
        ("device", ["b02", "b03"]),
    ]


CONNECTED = "New client connected from 127.0.0.1:1 as {} (p2, c{}, k60)."


def test_a_client_that_asks_for_its_session_is_announced() -> None:
    """Not one with a clean session, nor the node itself, nor one in a log that is read afterwards."""
    asked: list[str] = []
    interest = MqttInterest(lambda *_: None, "regraft-b01", 60.0, Counter())
    interest.on_session = asked.append
    interest.catch_up([CONNECTED.format("earlier", 0)], 0.0)
    for name, is_clean in (("clean", 1), ("device", 0), ("regraft-b01", 0)):
        interest.handle("N", CONNECTED.format(name, is_clean), 0.0)
    assert asked == ["device"]
    assert [name for name in ("earlier", "clean", "device", "regraft-b01", "x") if interest.knows(name)] == [
        "earlier", "clean", "device",
    ]  # fmt: skip


@pytest.mark.stack
def test_a_client_that_moves_between_mosquittos_is_named_with_both(tmp_path: Path) -> None:
    """By the node that it left, and by the other once it returns, once each; one without a session is not."""
    needs("mqtt")

    async def go() -> None:
        servers = {broker: MqttServer(broker, tmp_path).start() for broker in ("b01", "b02")}
        fleet = NodeFleet(TreeConfiguration.of(0, ("b01", "b02"), [("b01", "b02")]))

        async def visit(broker: str, name: str, *, has_session: bool) -> None:
            connector: Any = fleet.nodes[broker].connector
            client = MqttClient(servers[broker].port, lambda _: None, name, 4, has_session=has_session)
            await client.connected()
            await client.subscribe("to/device")
            await until(lambda: connector._interest.knows(name))
            client.close()

        try:
            await fleet.begin({broker: MqttConnector(server.url, broker) for broker, server in servers.items()})
            nodes = fleet.nodes
            await fleet.all_measured()
            with structlog.testing.capture_logs() as logs:
                await visit("b01", "device", has_session=True)
                await visit("b01", "clean", has_session=False)
                await visit("b02", "clean", has_session=False)
                await visit("b02", "device", has_session=True)
                await until(lambda: nodes["b01"].connector.counts["client_at_two_brokers"] == 1)
                await visit("b01", "device", has_session=True)
                await until(lambda: nodes["b02"].connector.counts["client_at_two_brokers"] == 1)
            named = [(line["client"], line["brokers"]) for line in logs if line["event"] == "client_at_two_brokers"]
            assert named == [("device", ["b01", "b02"])] * 2
        finally:
            await fleet.close()
            for server in servers.values():
                server.stop()

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
