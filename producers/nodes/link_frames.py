"""Frames of a link in bytes: a length, a number and a body; number 0 is what belongs to the connection itself.

In: bytes as they come from a socket. Out: whole frames. Bodies with a number are messages
(:mod:`producers.nodes.carried_messages`), those without hellos, acknowledgements and probes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from regraft.producers.nodes.carried_messages import LinkError
from regraft.producers.nodes.link_session import Hello

HEAD = struct.Struct(">IQ")
BODY_BYTES_MAX = 16 << 20  # NATS accepts payloads of 1 MiB by default.


class Taken(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """All frames up to this number have been taken."""

    number: int


class Probe(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """A question for the round trip, with the asker's clock; the answer is the same."""

    sent_ms: float
    is_answer: bool


LinkFrame = Hello | Taken | Probe
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[LinkFrame] = msgspec.msgpack.Decoder(LinkFrame)


def frame(number: int, body: bytes) -> bytes:
    """Return a numbered body as a frame."""
    return HEAD.pack(len(body), number) + body


def link_frame(found: LinkFrame) -> bytes:
    """Return what belongs to the connection as a frame."""
    return frame(0, _ENCODER.encode(found))


def read_link_frame(body: bytes) -> LinkFrame:
    """Return what a body without a number is; raise LinkError when it is nothing of ours."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise LinkError(
            f"{len(body)} bytes are not a frame of a link ({error}): check that the peer is a node of this version"
        ) from error


class FrameReader:
    """Puts frames together from what a socket gives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Return the frames, number and body, that are whole now; raise LinkError for one that is too long."""
        self._data += data
        place, end = 0, len(self._data)
        try:
            while end - place >= HEAD.size:
                size, number = HEAD.unpack_from(self._data, place)
                if size > BODY_BYTES_MAX:
                    raise LinkError(
                        f"a frame of {size} bytes arrived, but at most {BODY_BYTES_MAX} are accepted: "
                        "check that the peer is a node"
                    )
                if end - place - HEAD.size < size:
                    break
                begin, place = place + HEAD.size, place + HEAD.size + size
                yield number, bytes(memoryview(self._data)[begin:place])
        finally:
            del self._data[:place]
