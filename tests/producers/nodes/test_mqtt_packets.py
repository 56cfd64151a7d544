"""MQTT packets from a stream: complete ones however it is split, none too large, and nothing after an invalid one."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, Oversized, PacketReader, Unreadable

BYTES_MAX = 200


def message(topic: str, payload: bytes, packet_id: int | None) -> mqtt5.PublishPacket:
    qos = mqtt5.QoS.AT_MOST_ONCE if packet_id is None else mqtt5.QoS.AT_LEAST_ONCE
    return mqtt5.PublishPacket(topic, payload, qos=qos, packet_id=packet_id)


MESSAGES = st.builds(
    message,
    st.text(st.characters(exclude_characters="+#", codec="utf-8"), min_size=1, max_size=150),
    st.integers(0, 400).map(bytes),
    st.none() | st.integers(1, 65_535),
)
OTHERS = st.sampled_from(
    [mqtt5.PingRespPacket(), mqtt5.PubAckPacket(7), mqtt5.ConnAckPacket(receive_max=20), mqtt5.SubAckPacket(1, [])]
)


def expected(packet: mqtt5.Packet) -> mqtt5.Packet | Oversized:
    if isinstance(packet, mqtt5.PublishPacket) and len(packet.write()) > BYTES_MAX:
        return Oversized(packet.packet_id or 0)
    return packet


@given(st.lists(MESSAGES | OTHERS, max_size=8), st.lists(st.integers(1, 300), max_size=40))
def test_packets_do_not_depend_on_how_the_stream_is_split(packets: list[mqtt5.Packet], cuts: list[int]) -> None:
    """Each packet comes once, complete and in order; of oversized ones only the packet number, none at QoS 0."""
    stream = b"".join(packet.write() for packet in packets)
    reader = PacketReader(BYTES_MAX)
    found: list[mqtt5.Packet | Oversized] = []
    for size in cuts:
        found += reader.feed(stream[:size])
        stream = stream[size:]
    found += reader.feed(stream)
    assert found == [expected(packet) for packet in packets]


def test_a_large_message_is_not_kept() -> None:
    """The bytes of an oversized message are dropped as they arrive; what follows is read."""
    reader = PacketReader(BYTES_MAX)
    stream = message("a", bytes(1 << 20), 9).write() + mqtt5.PingRespPacket().write()
    found: list[mqtt5.Packet | Oversized] = []
    for begin in range(0, len(stream), 1_000):
        found += reader.feed(stream[begin : begin + 1_000])
        assert sum(map(len, reader._parts)) <= 1_000
    assert found == [Oversized(9), mqtt5.PingRespPacket()]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "more than 4 bytes"),
        (b"\x00\x00", "PacketType"),
        (b"\x36\x06\x00\x01a\x00\x01\x00", "QoS"),
        (b"\x30\x04\x00\x09ab", "longer than the packet"),
        (b"\x20\x02\x00\x05", "ConnAckReasonCode"),  # A refusal of an MQTT 3 broker.
        (b"\x90\xff\x7f", "only a message may have"),
        (b"\x30\xff\x7f\xff\xff" + bytes(10), "longer than the packet"),
    ],
)
def test_invalid_packets_are_named(stream: bytes, reason: str) -> None:
    """Packets before it are read, whether in one piece or byte by byte; nothing after it is."""
    for size in (1, len(stream) + 2):
        reader = PacketReader(BYTES_MAX)
        found: list[mqtt5.Packet | Oversized] = []
        whole = mqtt5.PingRespPacket().write() + stream
        pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
        with pytest.raises(MalformedError, match=reason):
            found.extend(packet for piece in pieces for packet in reader.feed(piece))
        assert found == [mqtt5.PingRespPacket()]


@pytest.mark.parametrize(
    ("stream", "packet_id"),
    [
        (b"\x30\x05\x00\x01\xff\x00\x00", 0),
        (b"\x32\x07\x00\x01\xff\x00\x09\x00\x00", 9),
        (b"\x32\x0c\x00\x01a\x00\x09\x06\x26\x00\x01\xff\x00\x00", 9),  # A user property.
        (b"\x32\x08\x00\x01a\x00\x09\x02\xee\x00", 9),  # A property that there is not.
    ],
)
def test_a_message_that_cannot_be_read_is_skipped_alone(stream: bytes, packet_id: int) -> None:
    """A broker that checks less sends it again until it is acknowledged; what is behind it is read."""
    for size in (1, len(stream) + 9):
        reader = PacketReader(BYTES_MAX)
        whole = stream + message("a", b"x", None).write()
        pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
        skipped, following = [packet for piece in pieces for packet in reader.feed(piece)]
        assert isinstance(skipped, Unreadable)
        assert skipped.packet_id == packet_id
        assert following == message("a", b"x", None)
