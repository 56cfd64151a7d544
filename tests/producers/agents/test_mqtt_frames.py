"""Packets of MQTT 3.1.1 become those of MQTT 5 and back, and whatever else comes is refused as a whole."""

from __future__ import annotations

from contextlib import suppress

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.producers.agents.mqtt_client_facts import matches, split
from regraft.producers.agents.mqtt_frames import (
    MQTT_5,
    MQTT_311,
    FrameReader,
    as_mqtt311,
    connect_of,
    head,
    packet_of,
    version_of,
    with_id,
)
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError
from regraft.producers.nodes.mqtt.mqtt_topics import subjects_of

TOPICS = some.text(some.characters(codec="utf-8", exclude_characters="\x00+#"), min_size=1, max_size=20)


@given(TOPICS, some.binary(max_size=300), some.integers(0, 2), some.integers(1, 65_535))
def test_a_message_of_an_old_client_comes_back_as_it_was(topic: str, payload: bytes, qos: int, number: int) -> None:
    """Also if it is cut anywhere on its way, and with another packet identifier."""
    name, identifier = topic.encode(), number.to_bytes(2) if qos else b""
    body = len(name).to_bytes(2) + name + identifier + payload
    frame = head(0x30 | qos << 1, len(body)) + body
    reader, cut = FrameReader(), len(frame) // 2
    assert [each for part in (frame[:cut], frame[cut:]) for each in reader.feed(part)] == [frame]
    packet = packet_of(frame, MQTT_311)
    assert isinstance(packet, mqtt5.PublishPacket)
    assert (packet.topic, packet.payload, packet.qos.value) == (topic, payload, qos)
    assert as_mqtt311(packet) == frame
    if qos:
        renamed = packet_of(with_id(packet.write(), 7, is_again=True), MQTT_5)
        assert isinstance(renamed, mqtt5.PublishPacket)
        assert (renamed.packet_id, renamed.duplicate, renamed.payload) == (7, True, payload)


@given(some.binary(min_size=2, max_size=60), some.sampled_from([MQTT_311, MQTT_5]))
def test_bytes_that_are_no_packet_are_refused(data: bytes, version: int) -> None:
    """With one kind of error, so that the session ends that client alone."""
    with suppress(MalformedError):
        for frame in FrameReader(50).feed(data):
            with suppress(MalformedError, IndexError):
                packet_of(frame, version)
            with suppress(MalformedError, IndexError):
                connect_of(frame, version_of(frame) or MQTT_311)


def test_a_packet_that_is_too_large_is_refused_before_it_has_come() -> None:
    with pytest.raises(MalformedError, match="at most 50"):
        list(FrameReader(50).feed(b"\x30\xff\x7f"))


@given(some.lists(some.sampled_from(["a", "b", "+", ""]), min_size=1, max_size=3), some.booleans())
def test_filters_in_place_of_one_are_one_subscription_each_and_match_the_same(levels: list[str], is_open: bool) -> None:
    """The overlay's subjects are those of the filter, and each topic is matched by one part."""
    pattern = "/".join([*levels, *(["#"] if is_open else [])])
    if not pattern:
        return
    parts = split(pattern)
    for topic in ("a", "a/b", "a/b/a", "b", "/", "/a", "a//b", "a/b/a/b"):
        matching = [part for part in parts if matches(part.split("/"), topic.split("/"))]
        assert len(matching) == matches(pattern.split("/"), topic.split("/"))
    assert all(len(subjects_of(part)) == 1 for part in parts)
