"""The frames of MQTT 3.1.1 as those of MQTT 5, and back, so that an agent has one form of each inside. Pure.

In: bytes of a socket, in any pieces. Out: whole packets. Nobody looks at payloads. Source: the standards MQTT 3.1.1 and
MQTT 5.0 of OASIS.
"""

from __future__ import annotations

from collections.abc import Generator

import mqtt5

from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, bounds_of, read_packet

FRAME_BYTES_MAX = 64 << 20
MQTT_311, MQTT_5 = 4, 5
NAME = b"\x00\x04MQTT"
CONNECT, CONNACK, PUBLISH, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK = 1, 2, 3, 8, 9, 10, 11
FAILED = 0x80
# What a client of 3.1.1 gets instead of the reasons of MQTT 5; "server unavailable" for all others.
REFUSALS = {0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8A: 5, 0x8C: 5}
UNAVAILABLE = 3


class FrameReader:
    """Cuts bytes into packets of at most ``bytes_max``."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._data, self._bytes_max = bytearray(), bytes_max

    def feed(self, data: bytes) -> Generator[bytes]:
        """Yield the packets that are now complete; raise MalformedError for what is none, or too large."""
        self._data += data
        place = 0
        try:
            while place < len(self._data):
                begin, end = bounds_of(self._data, place)
                if begin and end - place > self._bytes_max:
                    raise MalformedError(f"a packet of {end - place} bytes: at most {self._bytes_max}")
                if end > len(self._data):
                    break
                frame = bytes(self._data[place:end])
                place = end
                yield frame
        finally:
            del self._data[:place]

    def take_rest(self) -> bytes:
        """Return, and forget, what has come of a packet that is not complete."""
        rest, self._data = bytes(self._data), bytearray()
        return rest


def head(first: int, length: int) -> bytes:
    """Return the first bytes of a packet, before its content of ``length`` bytes."""
    return bytes((first,)) + length_bytes(length)


def length_bytes(length: int) -> bytes:
    """Return a length as MQTT writes it, in 7 bits a byte."""
    out = bytearray()
    while True:
        length, low = divmod(length, 128)
        out.append(low | (128 if length else 0))
        if not length:
            return bytes(out)


def user_property(name: bytes, value: bytes) -> bytes:
    """Return a user property as it is in a packet."""
    return b"".join((b"\x26", len(name).to_bytes(2), name, len(value).to_bytes(2), value))


def with_property(frame: bytes, added: bytes, name: bytes) -> bytes:
    """Return a PUBLISH of MQTT 5 with a user property more; as it was if it has one of that name, in any case."""
    begin, _ = bounds_of(frame, 0)
    at = properties_place(frame)
    after, end = bounds_of(frame, at - 1)  # Their length is written as that of a packet is.
    if name.lower() in frame[after:end].lower():
        return frame
    properties = length_bytes(end - after + len(added))
    content = len(frame) - begin + len(properties) - (after - at) + len(added)
    return b"".join((head(frame[0], content), frame[begin:at], properties, added, frame[after:]))


def id_place(frame: bytes) -> int:
    """Return where the packet identifier of a PUBLISH is."""
    begin, _ = bounds_of(frame, 0)
    return begin + 2 + int.from_bytes(frame[begin : begin + 2])


def properties_place(frame: bytes) -> int:
    """Return where the properties of a PUBLISH are, or would be."""
    return id_place(frame) + 2 * bool(frame[0] & 0b110)


def with_id(frame: bytes, packet_id: int, *, is_again: bool = False) -> bytes:
    """Return a PUBLISH of QoS 1 or 2 with another packet identifier; ``is_again`` if it was sent before."""
    at = id_place(frame)
    return bytes((frame[0] | 0x08 * is_again,)) + frame[1:at] + packet_id.to_bytes(2) + frame[at + 2 :]


def as_mqtt5(frame: bytes) -> bytes:
    """Return a client's packet of MQTT 3.1.1, except CONNECT, as one of MQTT 5."""
    kind = frame[0] >> 4
    if kind not in (PUBLISH, SUBSCRIBE, UNSUBSCRIBE):
        return frame
    begin, _ = bounds_of(frame, 0)
    if kind == PUBLISH:
        at = properties_place(frame)
    else:
        at = begin + 2
    if at > len(frame):
        raise MalformedError("its topic is longer than the packet")
    return head(frame[0], len(frame) - begin + 1) + frame[begin:at] + b"\x00" + frame[at:]


def packet_of(frame: bytes, version: int) -> mqtt5.Packet:
    """Return a client's packet, except the CONNECT of 3.1.1; raise MalformedError if it is none."""
    return read_packet(memoryview(as_mqtt5(frame) if version == MQTT_311 else frame))


# --- for clients of 3.1.1 ---------------------------------------------------------------------------------------------


def as_mqtt311(packet: mqtt5.Packet) -> bytes:
    """Return what a client of MQTT 3.1.1 gets in place of a broker's packet of MQTT 5; b"" for nothing."""
    match packet:
        case mqtt5.PublishPacket():
            return _publish_311(packet)
        case mqtt5.ConnAckPacket():
            code = packet.reason_code.value
            return bytes((0x20, 2, packet.session_present, REFUSALS.get(code, UNAVAILABLE) if code >= FAILED else 0))
        case mqtt5.SubAckPacket():
            codes = bytes(min(code.value, FAILED) for code in packet.reason_codes)
            return head(0x90, 2 + len(codes)) + packet.packet_id.to_bytes(2) + codes
        case mqtt5.UnsubAckPacket():
            return b"\xb0\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubCompPacket() | mqtt5.PubRelPacket():
            return packet.write()[:1] + b"\x02" + packet.packet_id.to_bytes(2)
        case mqtt5.PingRespPacket():
            return b"\xd0\x00"
    return b""


def _publish_311(packet: mqtt5.PublishPacket) -> bytes:
    topic, qos = packet.topic.encode(), packet.qos.value
    first = 0x30 | 0x08 * packet.duplicate | qos << 1 | packet.retain
    number = (packet.packet_id or 0).to_bytes(2) if qos else b""
    size = 2 + len(topic) + len(number) + len(packet.payload)
    return b"".join((head(first, size), len(topic).to_bytes(2), topic, number, packet.payload))


# --- CONNECT ----------------------------------------------------------------------------------------------------------


def version_of(frame: bytes) -> int:
    """Return the version that a CONNECT asks for, 0 for one that an agent does not speak.

    Raises MalformedError if it is no CONNECT.
    """
    if frame[0] != CONNECT << 4:
        raise MalformedError("the first packet is no CONNECT")
    begin, _ = bounds_of(frame, 0)
    name, version = frame[begin : begin + 6], frame[begin + 6 : begin + 7]
    return version[0] if name == NAME and version and version[0] in (MQTT_311, MQTT_5) else 0


def connect_of(frame: bytes, version: int) -> mqtt5.ConnectPacket:
    """Return a CONNECT of either version; raise MalformedError if it is none."""
    if version == MQTT_5:
        packet = read_packet(memoryview(frame))
        assert isinstance(packet, mqtt5.ConnectPacket)
        return packet
    begin, _ = bounds_of(frame, 0)
    if len(frame) < begin + 10:
        raise MalformedError("its CONNECT is cut")
    # The same with the properties that 3.1.1 does not have: none, also of the will behind the client's identifier.
    rest, flags = frame[begin + 10 :], frame[begin + 7]
    if flags & 0b100:
        at = 2 + int.from_bytes(rest[:2])
        rest = rest[:at] + b"\x00" + rest[at:]
    body = NAME + bytes((MQTT_5,)) + frame[begin + 7 : begin + 10] + b"\x00" + rest
    packet = read_packet(memoryview(head(frame[0], len(body)) + body))
    assert isinstance(packet, mqtt5.ConnectPacket)
    return packet
