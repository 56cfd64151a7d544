"""A message of MQTT 5 gets one user property more, which its library reads; nothing else changes."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.agents.mqtt_frames import user_property, with_property
from regraft.producers.nodes.mqtt.mqtt_packets import read_packet

NAME = b"Regraft-Publisher"
ADDED = user_property(NAME, b"web1.a-1")


@given(
    topic=st.text("abc/", min_size=1, max_size=20), payload=st.binary(max_size=300), qos=st.integers(0, 1),
    properties=st.lists(st.tuples(st.text("xy", max_size=60), st.text("xy", max_size=60)), max_size=5),
)  # fmt: skip
def test_the_name_is_one_property_more(topic: str, payload: bytes, qos: int, properties: list[tuple[str, str]]) -> None:
    """Also where the lengths of packet and properties need one byte more."""
    before = mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS(qos), packet_id=7 if qos else None, user_properties=properties
    )
    after = read_packet(memoryview(with_property(before.write(), ADDED, NAME)))
    assert isinstance(after, mqtt5.PublishPacket)
    assert after.user_properties == [(NAME.decode(), "web1.a-1"), *properties]
    assert (after.topic, after.payload, after.qos, after.packet_id) == (topic, payload, before.qos, before.packet_id)


@pytest.mark.parametrize("name", ["Regraft-Publisher", "regraft-publisher"])
def test_a_message_that_names_its_publisher_keeps_that(name: str) -> None:
    frame = mqtt5.PublishPacket("a", b"", user_properties=[(name, "own")]).write()
    assert with_property(frame, ADDED, NAME) == frame
