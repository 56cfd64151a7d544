"""Messages between nodes and their encoding: notifications with payload, and control messages.

In: messages of :mod:`producers.brokers.broker_messages`. Out: bodies of frames, and messages again. Numbers,
acknowledgements and connections belong to :mod:`producers.nodes.link_session`.

A body is msgpack. A notification is one array, without the content, which follows from the subject. A node that only
forwards a notification sends the bytes it received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    Bundle,
    End,
    Message,
    Notification,
    Subscribe,
    SubscribeAck,
    Unadvertise,
    Unsubscribe,
    UnsubscribeAck,
)
from regraft.producers.nodes.subject_filters import content_of

CONTROL_TYPES = (
    Subscribe, SubscribeAck, Unsubscribe, UnsubscribeAck, Advertise, AdvertiseAck, Unadvertise, End,
)  # fmt: skip


class LinkError(RuntimeError):
    """A peer sent something invalid; the connection must be closed."""


@dataclass(frozen=True, slots=True)
class CarriedNotification(Notification):
    """A notification from a real broker; ``reply`` and ``headers`` are empty if it has none.

    ``headers`` is the block as the door received it. ``body`` is the encoded notification if it arrived over a link.
    ``receipt`` is the door's, known only where the notification was published: links do not carry it.
    """

    subject: str = ""
    reply: str = ""
    headers: bytes = b""
    payload: bytes = b""
    body: bytes = b""
    receipt: int = 0


class NotificationBody(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """A notification on a link."""

    publisher: str
    sequence: int
    publish_ms: float
    home: str
    epoch: int
    subject: str
    reply: str
    headers: bytes
    payload: bytes


class ControlBody(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Control messages of one step on a link, each with the name of its type."""

    messages: tuple[tuple[str, msgspec.Raw], ...]


_ENCODER = msgspec.msgpack.Encoder()
_BODIES = msgspec.msgpack.Decoder(NotificationBody | ControlBody)
_CONTROL: dict[str, msgspec.msgpack.Decoder[Any]] = {
    each.__name__: msgspec.msgpack.Decoder(each) for each in CONTROL_TYPES
}


def body_of(message: Message) -> bytes:
    """Return a message as the body of a frame."""
    if isinstance(message, CarriedNotification):
        return message.body or _ENCODER.encode(
            NotificationBody(
                message.publisher,
                message.sequence,
                message.publish_ms,
                message.home,
                message.epoch,
                message.subject,
                message.reply,
                message.headers,
                message.payload,
            )
        )
    messages = message.messages if isinstance(message, Bundle) else (message,)
    return _ENCODER.encode(
        ControlBody(tuple((type(one).__name__, msgspec.Raw(_ENCODER.encode(one))) for one in messages))
    )


def is_notification(body: bytes) -> bool:
    """Return True if the body of a frame is a notification: the tag follows the head of the array."""
    return body[1] == 0


def message_of(body: bytes) -> Message:
    """Return the message in a frame's body; raise LinkError if there is none."""
    try:
        found = _BODIES.decode(body)
        if isinstance(found, ControlBody):
            messages = tuple(_CONTROL[name].decode(raw) for name, raw in found.messages)
            return messages[0] if len(messages) == 1 else Bundle(messages)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise LinkError(
            f"a frame of {len(body)} bytes is not a message ({error}): check that the peer is a node of this version"
        ) from error
    return CarriedNotification(
        found.publisher,
        found.sequence,
        found.publish_ms,
        found.home,
        found.epoch,
        content_of(found.subject),
        len(found.payload),
        subject=found.subject,
        reply=found.reply,
        headers=found.headers,
        payload=found.payload,
        body=body,
    )
