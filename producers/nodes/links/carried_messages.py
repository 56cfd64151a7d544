"""Messages between nodes and their encoding: notifications with payload, and control messages.

In: messages of :mod:`producers.brokers.broker_messages`. Out: bodies of frames, and messages again. Numbers,
acknowledgements and connections belong to :mod:`producers.nodes.links.link_session`.

A body is msgpack. A notification is one array, without the content, which follows from the subject. A node that only
forwards a notification sends the bytes it received.

Both directions apply the same grammar and bounds: no node sends what the next one refuses, and none passes it on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    Bundle,
    End,
    FlowEnd,
    Message,
    Notification,
    PublisherComes,
    Subscribe,
    SubscribeAck,
    Unadvertise,
    Unsubscribe,
    UnsubscribeAck,
    VectorAck,
    VectorBit,
)
from regraft.producers.nodes.connectors.groups_once import GROUPS_MAX, Handlers
from regraft.producers.nodes.connectors.subject_filters import content_of
from regraft.schemas.bounds import NAME_LENGTH_MAX, TIME_MS_MAX, UNCLEAN_ANYWHERE, Epoch, Name, SequenceNumber
from regraft.schemas.plan import CLUSTERS_MAX
from regraft.schemas.wire_grammar import (
    PAYLOAD_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TOKENS_MAX,
    block_error,
    subject_error,
)

EPOCH_MAX = 1 << 53
PREDICATES_MAX = TOKENS_MAX + 1  # One for each token, and their number.
VECTOR_BYTES_MAX = CLUSTERS_MAX // 8

CONTROL_TYPES = (
    Subscribe, SubscribeAck, Unsubscribe, UnsubscribeAck, Advertise, AdvertiseAck, Unadvertise, End,
    VectorBit, VectorAck, PublisherComes, FlowEnd,
)  # fmt: skip


class LinkError(RuntimeError):
    """A frame or message is invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class CarriedNotification(Notification):
    """A notification from a real broker; ``reply`` and ``headers`` are empty if it has none.

    ``headers`` is the block as the connector received it. ``body`` is the encoded notification if it arrived over a
    link. ``receipt`` is the connector's, known only where the notification was published: links do not carry it.
    ``handlers`` says at which broker a queue group handles it.
    """

    subject: str = ""
    reply: str = ""
    headers: bytes = b""
    payload: bytes = b""
    body: bytes = b""
    receipt: int = 0
    handlers: Handlers = ()

    def routed(self, vector: int, *, is_detour: bool) -> Self:
        """Return the copy for a receiver that must serve these clusters; what has arrived for others is not reused."""
        is_same = (vector, is_detour) == (self.vector, self.is_detour)
        return self if is_same else replace(self, vector=vector, is_detour=is_detour, body=b"")


class NotificationBody(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    """A notification on a link; subject, reply and headers also follow :mod:`schemas.wire_grammar`.

    ``vector`` has cluster 0 in its last bit; it is empty on a tree, whose nodes ignore it.
    """

    publisher: Name
    sequence: SequenceNumber
    publish_ms: Annotated[float, Meta(ge=0, le=TIME_MS_MAX)]
    home: Name
    epoch: Epoch
    subject: str
    reply: str
    headers: bytes
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]
    handlers: Annotated[tuple[tuple[Name, Name], ...], Meta(max_length=GROUPS_MAX)] = ()
    vector: Annotated[bytes, Meta(max_length=VECTOR_BYTES_MAX)] = b""
    is_detour: bool = False


class ControlBody(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Control messages of one step on a link, each with the name of its type."""

    messages: tuple[tuple[str, msgspec.Raw], ...]


_ENCODER = msgspec.msgpack.Encoder()
_BODIES = msgspec.msgpack.Decoder(NotificationBody | ControlBody)
_CONTROL: dict[str, msgspec.msgpack.Decoder[Any]] = {
    each.__name__: msgspec.msgpack.Decoder(each) for each in CONTROL_TYPES
}


def body_of(message: Message) -> bytes:
    """Return a message as the body of a frame; raise LinkError if the next node would refuse it."""
    if isinstance(message, CarriedNotification):
        if message.body:  # As received, and checked then.
            return message.body
        body = _ENCODER.encode(
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
                message.handlers,
                message.vector.to_bytes(-(-message.vector.bit_length() // 8)),
                message.is_detour,
            )
        )
    else:
        messages = message.messages if isinstance(message, Bundle) else (message,)
        body = _ENCODER.encode(
            ControlBody(tuple((type(one).__name__, msgspec.Raw(_ENCODER.encode(one))) for one in messages))
        )
    _checked(body)
    return body


def is_notification(body: bytes) -> bool:
    """Return True if the body of a frame is a notification: the tag follows the head of the array."""
    return body[1] == 0


def message_of(body: bytes) -> Message:
    """Return the message in a frame's body; raise LinkError if there is none, or one beyond the bounds."""
    content = _checked(body)
    if not isinstance(content, NotificationBody):
        return content[0] if len(content) == 1 else Bundle(content)
    return CarriedNotification(
        content.publisher,
        content.sequence,
        content.publish_ms,
        content.home,
        content.epoch,
        content_of(content.subject),
        len(content.payload),
        subject=content.subject,
        reply=content.reply,
        headers=content.headers,
        payload=content.payload,
        body=body,
        handlers=content.handlers,
        vector=int.from_bytes(content.vector),
        is_detour=content.is_detour,
    )


def _checked(body: bytes) -> NotificationBody | tuple[Any, ...]:
    """Return a notification's body or the control messages, within the bounds; raise LinkError for anything else."""
    try:
        body_read: NotificationBody | ControlBody = _BODIES.decode(body)
        if isinstance(body_read, ControlBody):
            messages = tuple(_CONTROL[name].decode(raw) for name, raw in body_read.messages)
            for one in messages:
                _check_control(one)
            return messages
        _check(subject_error(body_read.subject) or block_error(body_read.headers))
        _check(subject_error(body_read.reply) if body_read.reply else "")
        return body_read
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        raise LinkError(
            f"a frame of {len(body)} bytes is not a message ({error}): check that the peer is a node of this version"
        ) from error


def _check_control(message: Any) -> None:
    """Raise ValueError if a field of a control message is beyond its bounds."""
    for part in fields(message):
        value = getattr(message, part.name)
        if isinstance(value, str):
            _check(_name_error(value))
        elif isinstance(value, int):
            is_none = value == -1 and isinstance(message, PublisherComes) and message.filter_ is None
            _check("" if is_none or 0 <= value <= EPOCH_MAX else f"{part.name} is {value}: 0 to {EPOCH_MAX}")
        elif part.name == "filter_" and value is not None:
            _check("" if len(value) <= PREDICATES_MAX else f"a filter of {len(value)} predicates: {PREDICATES_MAX}")
            for predicate in value:
                _check(_name_error(predicate.attribute))
                is_long = isinstance(predicate.value, str) and len(predicate.value) > SUBJECT_BYTES_MAX
                _check("a predicate's text is longer than a subject" if is_long else "")


def _name_error(name: str) -> str:
    is_name = 0 < len(name) <= NAME_LENGTH_MAX and UNCLEAN_ANYWHERE.search(name) is None
    return "" if is_name else f"{name[:80]!r} is not a name of 1 to {NAME_LENGTH_MAX} characters"


def _check(error: str) -> None:
    if error:
        raise ValueError(error)
