"""Packets of clients in the form of MQTT 3.1.1: those of MQTT 5 without properties."""

from __future__ import annotations

import mqtt5

from regraft.producers.agents.mqtt_frames import as_mqtt311, head


def text_of(text: str) -> bytes:
    """Return a text as packets have it, behind its length."""
    return len(text.encode()).to_bytes(2) + text.encode()


def connect_311(name: str) -> bytes:
    """Return a login with a clean session and without keep-alive."""
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + text_of(name)
    return head(0x10, len(body)) + body


def request_311(packet: mqtt5.Packet) -> bytes:
    """Return any other packet of a client."""
    match packet:
        case mqtt5.SubscribePacket():
            body = b"".join(text_of(each.pattern) + bytes((each.max_qos.value,)) for each in packet.topic_filters)
            return head(0x82, 2 + len(body)) + packet.packet_id.to_bytes(2) + body
        case mqtt5.UnsubscribePacket():
            body = b"".join(map(text_of, packet.patterns))
            return head(0xA2, 2 + len(body)) + packet.packet_id.to_bytes(2) + body
    return as_mqtt311(packet)
