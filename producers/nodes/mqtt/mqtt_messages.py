"""Messages of an MQTT broker as the overlay carries them, and back. Pure.

Topics belong to :mod:`producers.nodes.mqtt.mqtt_topics`, other fields to :mod:`producers.nodes.mqtt.mqtt_headers`.
"""

from __future__ import annotations

from functools import lru_cache

from mqtt5 import PublishPacket

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.mqtt.mqtt_headers import MqttFields, block_of, fields_of
from regraft.producers.nodes.mqtt.mqtt_session import PublishFields
from regraft.producers.nodes.mqtt.mqtt_topics import subject_of, topic_of

FIELDS_KEPT_MAX = 250


def message_of(packet: PublishPacket, receipt: int) -> LocalMessage:
    """Return the message of a packet."""
    reply = packet.response_topic
    return LocalMessage(
        subject_of(packet.topic),
        packet.payload,
        subject_of(reply) if reply else "",
        _block_of(
            tuple(packet.user_properties),
            min(packet.qos.value, 1),
            packet.retain,
            packet.payload_format_indicator == 1,
            packet.content_type or "",
            packet.correlation_data,
            packet.message_expiry_interval,
        ),
        receipt,
    )


@lru_cache(maxsize=FIELDS_KEPT_MAX)
def _block_of(
    properties: tuple[tuple[str, str], ...],
    qos: int,
    is_retained: bool,
    is_text: bool,
    content_type: str,
    correlation: bytes | None,
    expiry_s: int | None,
) -> bytes:
    """Return a message's fields besides topic and payload as a block; cached, because many messages share them."""
    return block_of(MqttFields(properties, qos, is_retained, is_text, content_type, correlation, expiry_s))


def fields_for(message: LocalMessage, stamp: tuple[str, str]) -> tuple[int, PublishFields]:
    """Return the QoS of a message, and the codec's other arguments, with a stamp; raise TopicError as below."""
    qos, fields = _publish_fields(message.headers, message.reply)
    stamped = PublishFields(**fields)
    stamped["user_properties"] = [*fields["user_properties"], stamp]
    return qos, stamped


@lru_cache(maxsize=FIELDS_KEPT_MAX)
def _publish_fields(block: bytes, reply: str) -> tuple[int, PublishFields]:
    """Return the QoS of a block, and the codec's other arguments; raise TopicError if the reply is not a topic."""
    fields = fields_of(block)
    publish_fields = PublishFields(
        retain=fields.is_retained,
        payload_format_indicator=int(fields.is_text),
        message_expiry_interval=fields.expiry_s,
        content_type=fields.content_type or None,
        response_topic=topic_of(reply) if reply else None,
        correlation_data=fields.correlation,
        user_properties=list(fields.properties),
    )
    return fields.qos, publish_fields
