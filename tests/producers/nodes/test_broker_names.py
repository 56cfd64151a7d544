"""Brokers whose names have dots, slashes, spaces or any letters: what is named after them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.doors import Door, LocalMessage
from regraft.producers.nodes.mqtt_door import MqttDoor
from regraft.producers.nodes.nats_door import NatsDoor
from regraft.schemas.safe_names import safe_name
from tests.producers.nodes.door_brokers import NEEDS, Received, broker_of
from tests.producers.nodes.test_doors import opened, until

ODD = ["eu.west/1 b", "k\u00fchlhaus \u6771\u4eac 1 #", "\u6771" * 256]


def test_safe_names_stay_different() -> None:
    """Plain names stay as they are; others become short and plain, and no two become the same."""
    names = ["b01", "b-0_1~", "a.b", "a%2Eb", "a b", "a/b", "..", "東京", "東" * 255, "東" * 256, "x" * 121, "\udc80"]
    safe = [safe_name(name) for name in names]
    assert safe[:2] == names[:2]
    assert len(set(safe)) == len(names)
    assert all(len(each) <= 120 and each.isascii() and not set(each) & set(" ./\\*>#+") for each in safe)


def test_files_of_a_node_are_in_its_directory() -> None:
    """No name leads to another directory, or is too long for a file."""
    for name in [*ODD, "../b01", "b" * 256]:
        settings = NodeSettings("kafka", Path("inventory.json"), Path("run/node.json"), broker=name)
        files = [settings.own_status_file, settings.life_file, settings.interest_file]
        assert len(set(files)) == 3
        assert all(file.parent == Path("run") and len(file.name) < 200 for file in files)


def _door_of(kind: str, broker: Any, name: str) -> Door:
    if kind == "nats":
        return NatsDoor(broker.server.leaf_url, name)
    if kind == "mqtt":
        return MqttDoor(broker.server.url, name, is_durable=True)
    from regraft.producers.nodes.amqp_door import AmqpDoor
    from regraft.producers.nodes.amqp_place import AmqpPlace

    return AmqpDoor(broker.server.url, name, place=AmqpPlace(broker.exchange, broker.server.api, is_durable=True))


@pytest.mark.stack
@pytest.mark.parametrize("kind", ["nats", "mqtt", "amqp"])
@pytest.mark.parametrize("name", ODD)
def test_a_broker_may_have_any_name(kind: str, name: str, tmp_path: Path) -> None:
    """Messages cross in both directions, and the node's own subscription is not taken for a client's."""
    NEEDS[kind]()

    async def go() -> None:
        received = Received()
        async with broker_of(kind, received, tmp_path) as broker:
            broker.door = _door_of(kind, broker, name)
            door = await opened(broker, received)
            await broker.want("out")
            await until(lambda: received.wanted == {"out"})
            assert door.publish(LocalMessage("out", b"1"))
            await until(lambda: bool(broker.got("out")))
            await broker.publish(LocalMessage("in", b"2"))
            await until(lambda: [each.payload for each in received.messages if each.subject == "in"] == [b"2"])
            assert received.wanted == {"out"}
            await door.close()

    asyncio.run(asyncio.wait_for(go(), 60))
