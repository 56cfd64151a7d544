"""Messages between nodes: what a node refuses to take no node sends, and what is refused does not stop what follows."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseAck,
    Bundle,
    End,
    FlowEnd,
    PublisherComes,
    Subscribe,
    VectorAck,
    VectorBit,
)
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.connectors.subject_filters import content_of, filter_of
from regraft.producers.nodes.links.carried_messages import (
    CarriedNotification,
    LinkError,
    NotificationBody,
    body_of,
    message_of,
)
from regraft.schemas.codec import decode, encode
from regraft.schemas.plan import CLUSTERS_MAX
from regraft.schemas.telemetry import TelemetryBatch
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.node_fleet import NodeFleet
from tests.wait_until import PATIENCE_S

GOOD = CarriedNotification("p", 0, 1.8e12, "n0", 0, content_of("ticks"), 1, subject="ticks", payload=b"x")
BAD: list[dict[str, Any]] = [
    {"publish_ms": math.nan}, {"publish_ms": math.inf}, {"publish_ms": -1.0}, {"publish_ms": 1e300},
    {"sequence": -1}, {"sequence": 1 << 62}, {"publisher": ""}, {"publisher": "p" * 300}, {"publisher": "a\nb"},
    {"home": ""}, {"home": "n" * 300}, {"epoch": -1}, {"epoch": 1 << 60}, {"subject": "a b"}, {"subject": "$SYS.x"},
    {"subject": "a\r\nPUB b 1"}, {"subject": "a." * 99}, {"reply": "r 0\r\n"},
    {"headers": b"NATS/1.0\r\nA: b\nC: d\r\n\r\n"},
    {"payload": bytes((8 << 20) + 1)}, {"vector": 1 << CLUSTERS_MAX},
]  # fmt: skip
CONTROL = (
    End(-1), End(1 << 60), AdvertiseAck(0, "p" * 300, 0), AdvertiseAck(0, "p", -1), AdvertiseAck(0, "a\x00", 0),
    Subscribe(0, "s", "n0", filter_of("a.b") * 40, 0), Subscribe(0, "", "n0", (), 0),
    VectorBit(-1, "p", 0, True), VectorAck(0, "", 0), FlowEnd(0, -1), FlowEnd(1 << 60, 0),
    PublisherComes(1, "p", -1, "n0", (), 0), PublisherComes(1, "p", -2, "n0", None, 0),
    PublisherComes(1, "p", 0, "n0", filter_of("a.b") * 40, 0),
)  # fmt: skip
SCOT_CONTROL = (
    VectorBit(1, "p", 2, True), VectorBit(1, "p", 2, False), VectorAck(1, "p", 2), FlowEnd(1, 3),
    PublisherComes(1, "p", 2, "n0", filter_of("a.>"), 0), PublisherComes(1, "p", -1, "n0", None, 0),
)  # fmt: skip


def unchecked(**changed: Any) -> bytes:
    """Return the body that a node without bounds would send."""
    fields = {name: getattr(GOOD, name) for name in NotificationBody.__struct_fields__} | changed
    vector = fields.pop("vector")
    fields["vector"] = vector.to_bytes(-(-vector.bit_length() // 8))
    return msgspec.msgpack.encode(NotificationBody(**fields))


@pytest.mark.parametrize(
    "changed", BAD, ids=[f"{name}-{str(value)[:12]!r}" for one in BAD for name, value in one.items()]
)
def test_a_notification_beyond_the_bounds_is_neither_sent_nor_taken(changed: dict[str, Any]) -> None:
    with pytest.raises(LinkError):
        body_of(replace(GOOD, **changed))
    with pytest.raises(LinkError):
        message_of(unchecked(**changed))


@pytest.mark.parametrize("message", CONTROL, ids=lambda message: type(message).__name__)
def test_a_control_message_beyond_the_bounds_is_neither_sent_nor_taken(message: Any) -> None:
    """Also not as one of several."""
    for body in (message, Bundle((End(0), message))):
        with pytest.raises(LinkError):
            body_of(body)


@given(st.text(max_size=8), st.integers(-2, 1 << 63), st.floats(), st.binary(max_size=12))
def test_both_sides_decide_alike(name: str, number: int, time_ms: float, headers: bytes) -> None:
    """Whatever the values: a node sends exactly what the next one takes."""
    changed = {"publisher": name, "sequence": number, "publish_ms": time_ms, "subject": name, "headers": headers}
    try:
        body = body_of(replace(GOOD, **changed))
    except LinkError:
        with pytest.raises(LinkError):
            message_of(unchecked(**changed))
    else:
        assert message_of(body) == replace(message_of(unchecked(**changed)), body=body)


@given(st.integers(0, (1 << CLUSTERS_MAX) - 1), st.booleans(), st.integers(0, (1 << CLUSTERS_MAX) - 1), st.booleans())
def test_each_receiver_learns_which_clusters_it_must_serve(
    vector: int, is_detour: bool, following: int, is_later_detour: bool
) -> None:
    """A copy that is sent with other clusters is encoded again; another one is sent as it arrived."""
    arrived = message_of(body_of(GOOD.routed(vector, is_detour=is_detour)))
    assert isinstance(arrived, CarriedNotification)
    assert (arrived.vector, arrived.is_detour, arrived.payload) == (vector, is_detour, GOOD.payload)
    sent = arrived.routed(following, is_detour=is_later_detour)
    assert bool(sent.body) == ((vector, is_detour) == (following, is_later_detour))
    passed_on = message_of(body_of(sent))
    assert passed_on == replace(arrived, vector=following, is_detour=is_later_detour, body=body_of(sent))


@pytest.mark.parametrize("message", SCOT_CONTROL, ids=lambda message: type(message).__name__)
def test_messages_of_a_structured_cyclic_overlay_cross_links(message: Any) -> None:
    """Also an announcement that a publisher does not come, which has neither filter nor stay."""
    assert message_of(body_of(message)) == message
    assert message_of(body_of(Bundle((message, End(0))))) == Bundle((message, End(0)))


def test_a_frame_that_is_refused_stops_nothing_behind_it() -> None:
    """A peer that checks nothing sends each of them: no node on the path ends, and the good message arrives."""

    async def steps() -> None:
        brokers = ("n0", "n1", "n2")
        fleet = NodeFleet(TreeConfiguration.of(0, brokers, [("n0", "n1"), ("n1", "n2")]))
        connectors: dict[str, Connector] = {broker: MemoryConnector() for broker in brokers}
        for connector in connectors.values():
            connector.want("ticks")  # type: ignore[attr-defined]
        await fleet.begin(connectors)
        try:
            await asyncio.wait_for(fleet.all_confirmed(), PATIENCE_S)
            links = fleet.nodes["n0"].links
            for changed in (*BAD, {}):
                session = links.peers["n1"].session
                session.put(unchecked(publish_ms=time.time() * 1_000) if not changed else unchecked(**changed))
                links.peers["n1"].connection.flush_soon()  # type: ignore[union-attr]
            async with asyncio.timeout(PATIENCE_S):
                while not connectors["n2"].handed:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.01)
            assert [len(connectors[broker].handed) for broker in ("n1", "n2")] == [1, 1]  # type: ignore[attr-defined]
            assert fleet.failures == []
            assert fleet.nodes["n1"].links.counts["refused_to_take"] == len(BAD)
            assert fleet.nodes["n2"].links.counts["refused_to_take"] == 0
            for broker in brokers:
                fleet.nodes[broker].flush()
                for batch in fleet.ports[broker].telemetry.batches:
                    assert decode(encode(batch), TelemetryBatch)
        finally:
            await fleet.close()

    asyncio.run(steps())
