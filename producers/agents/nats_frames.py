"""The client protocol of NATS in frames: one line, with the payload that follows it. Pure.

In: bytes of a socket, in any pieces. Out: frames whose payloads nobody has looked at. Source: the protocol reference of
NATS, which servers and clients of all versions share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LINE_BYTES_MAX = 64 << 10
PAYLOAD_BYTES_MAX = 64 << 20  # The most that a server can be set to accept.
END = b"\r\n"
HEADERS_BEGIN = b"NATS/1.0"
WITH_PAYLOAD = {b"PUB": 3, b"HPUB": 4, b"MSG": 4, b"HMSG": 5}  # And the fewest words that each has.


class FrameError(ValueError):
    """Bytes that no client and no server of NATS sends; the message says which."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line in words, the first in capitals, and its payload; ``raw`` is all of it as it came."""

    words: list[bytes]
    payload: bytes
    raw: bytes

    @property
    def headers_size(self) -> int:
        """Return how many bytes of the payload are its headers."""
        return int(self.words[-2]) if self.words[0] in (b"HMSG", b"HPUB") else 0


class FrameReader:
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take_rest(self) -> bytes:
        """Return, and forget, what has come of a frame that is not complete."""
        rest, self._data = bytes(self._data), bytearray()
        return rest

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are now complete; raise FrameError for what is none."""
        self._data += data
        place = 0
        try:
            while (end := self._data.find(END, place)) >= 0:
                words = bytes(self._data[place:end]).split()
                if not words:
                    place = end + 2
                    continue
                words[0] = words[0].upper()
                after = end + 2
                if words[0] in WITH_PAYLOAD:
                    after = end + 4 + _payload_size(words)
                    if len(self._data) < after:
                        break
                payload = bytes(self._data[end + 2 : after - 2]) if after > end + 2 else b""
                raw = bytes(self._data[place:after])
                place = after
                yield Frame(words, payload, raw)
            else:
                if len(self._data) - place > LINE_BYTES_MAX:
                    raise FrameError(f"{len(self._data) - place} bytes without the end of a line")
        finally:
            del self._data[:place]


def _payload_size(words: list[bytes]) -> int:
    sizes = words[-2:] if words[0] in (b"HPUB", b"HMSG") else words[-1:]
    if len(words) < WITH_PAYLOAD[words[0]] or not all(size.isdigit() and len(size) < 10 for size in sizes):
        raise FrameError(f"{b' '.join(words)[:80]!r} is not a message")
    if int(sizes[0]) > int(sizes[-1]) or int(sizes[-1]) > PAYLOAD_BYTES_MAX:
        raise FrameError(f"{b' '.join(words)[:80]!r} has sizes that no message has")
    return int(sizes[-1])


def message_frame(subject: bytes, sid: bytes, reply: bytes, headers_size: int, payload: bytes) -> bytes:
    """Return the bytes of a message as a server sends it to a client."""
    words = [b"HMSG" if headers_size else b"MSG", subject, sid]
    words += [reply] if reply else []
    words += [b"%d" % headers_size] if headers_size else []
    return b"%b %d\r\n%b\r\n" % (b" ".join(words), len(payload), payload)


def publish_frame(subject: bytes, payload: bytes) -> bytes:
    """Return the bytes of a message as a client publishes it."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def header_block(line: bytes) -> bytes:
    """Return the headers of a message that are this line alone."""
    return b"%b\r\n%b\r\n\r\n" % (HEADERS_BEGIN, line)


def named_frame(frame: Frame, line: bytes) -> bytes:
    """Return the bytes of a published message with one header more, a line; as it came if it has one of that name."""
    words, payload = frame.words, frame.payload
    if words[0] == b"PUB":
        block, route = header_block(line), words[1:-1]
    else:
        block, payload, route = payload[: frame.headers_size], payload[frame.headers_size :], words[1:-2]
        if not block.startswith(HEADERS_BEGIN) or line[: line.index(b":") + 1].lower() in block.lower():
            return frame.raw
        end = block.index(END) + len(END)
        block = b"%b%b\r\n%b" % (block[:end], line, block[end:])
    sizes = len(block), len(block) + len(payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (b" ".join(route), *sizes, block, payload)
