"""Frames of a link in bytes: a length, a number and a body; number 0 marks frames of the connection itself.

Bodies with another number are messages (:mod:`producers.nodes.links.carried_messages`), those with 0 are hellos,
acknowledgements and probes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated

import msgspec

from regraft.producers.nodes.connectors.roaming_clients import ANNOUNCED_MAX
from regraft.producers.nodes.links.carried_messages import LinkError
from regraft.producers.nodes.links.link_session import Hello
from regraft.schemas.bounds import Name

HEAD = struct.Struct(">IQ")
BODY_BYTES_MAX = 16 << 20  # More than any message that a connector takes.
HELLO_BYTES_MAX = 4_096  # Before the hello, when anybody may be calling.


class Acknowledgement(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """All frames up to this number have been received."""

    number: int


class Probe(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """A request that measures the round trip, with the sender's clock; the answer repeats it.

    ``clients`` have asked for a session at the sender's broker (:mod:`producers.nodes.connectors.roaming_clients`).
    """

    sent_ms: float
    is_answer: bool
    clients: Annotated[tuple[Name, ...], msgspec.Meta(max_length=ANNOUNCED_MAX)] = ()


LinkFrame = Hello | Acknowledgement | Probe
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[LinkFrame] = msgspec.msgpack.Decoder(LinkFrame)


def frame(number: int, body: bytes) -> bytes:
    """Return a numbered body as a frame."""
    return HEAD.pack(len(body), number) + body


def link_frame(values: LinkFrame) -> bytes:
    """Return a hello, acknowledgement or probe as a frame."""
    return frame(0, _ENCODER.encode(values))


def read_link_frame(body: bytes) -> LinkFrame:
    """Return the hello, acknowledgement or probe in a body; raise LinkError if there is none."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(
            f"{len(body)} bytes are not a frame of a link ({error}): check that the peer is a node of this version"
        ) from error


class FrameReader:
    """Assembles frames from the bytes of a socket, with bodies of at most ``body_bytes_max``."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self.body_bytes_max = body_bytes_max
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield number and body of each frame that is now complete; raise LinkError if one is too long."""
        self._data += data
        place, end = 0, len(self._data)
        try:
            while end - place >= HEAD.size:
                size, number = HEAD.unpack_from(self._data, place)
                if size > self.body_bytes_max:
                    raise LinkError(
                        f"a frame of {size} bytes arrived, but at most {self.body_bytes_max} are accepted: "
                        "check that the peer is a node"
                    )
                if end - place - HEAD.size < size:
                    break
                begin, place = place + HEAD.size, place + HEAD.size + size
                yield number, bytes(memoryview(self._data)[begin:place])
        finally:
            del self._data[:place]
