"""Parse MQTT 5 packets from a stream of bytes, however it is split into reads. Pure.

A message that is too large is skipped as its bytes arrive, and one that the codec cannot read alone; anything else but
a packet is an error. The meaning of packets belongs to :mod:`producers.nodes.mqtt.mqtt_session`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mqtt5

PUBLISH = 3  # The type in the upper half of a packet's first byte.
QOS_BITS = 0b110
MORE, SEVEN_BITS, LENGTH_BYTES_MAX = 0x80, 0x7F, 4
PACKET_BYTES_MAX = (1 << 28) + 4  # The largest length in 4 bytes, plus the bytes before the content.


class MalformedError(ValueError):
    """The bytes are not a packet of MQTT 5; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """A message that was skipped. ``packet_id`` is 0 at QoS 0, which is not acknowledged."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that the codec cannot read, such as one with text that is not UTF-8. ``packet_id`` as above."""

    packet_id: int
    reason: str


class PacketReader:
    """Splits a stream into packets; messages of more than ``bytes_max`` are skipped."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._have = self._needed = 0  # Bytes of the incomplete packet, and how many it takes to continue.
        self._skip = 0  # Bytes still to come of a message that is too large.

    def feed(self, data: bytes) -> Iterator[mqtt5.Packet | Oversized | Unreadable]:
        """Yield the packets that these bytes complete; raise MalformedError for anything else."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._needed:
            return
        data, at, whole_at = b"".join(self._parts), 0, 0
        view = memoryview(data)
        while at < len(data):
            begin, end = bounds_of(data, at)
            is_large = begin > 0 and end - at > self._bytes_max
            whole_at = _head_end(data, at, begin, end) if is_large else end
            if whole_at > len(data):
                break
            if is_large:
                yield Oversized(_id_before(data, at, whole_at))
                self._skip = max(end - len(data), 0)
            else:
                yield _read_or_skip(view[at:end], begin - at)
            at = min(end, len(data))
        self._parts = [data[at:]] if at < len(data) else []
        self._have = len(data) - at
        self._needed = whole_at - at if self._have else 0


def bounds_of(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return where the content of the packet at ``at`` begins and ends; begin is 0 while its length is incomplete."""
    length = 0
    for place in range(at + 1, min(at + 1 + LENGTH_BYTES_MAX, len(data))):
        byte = data[place]
        length |= (byte & SEVEN_BITS) << 7 * (place - at - 1)
        if byte < MORE:
            return place + 1, place + 1 + length
    if len(data) - at > LENGTH_BYTES_MAX:
        raise MalformedError(f"its length has more than {LENGTH_BYTES_MAX} bytes")
    return 0, len(data) + 1


def _has_id(first: int) -> bool:
    return bool(first & QOS_BITS)


def _head_end(data: bytes, at: int, begin: int, end: int) -> int:
    """Return where topic and packet ID of a message end, or its topic's length if that is still incomplete."""
    if data[at] >> 4 != PUBLISH:
        raise MalformedError(f"a packet of type {data[at] >> 4} has {end - at} bytes, which only a message may have")
    end_at = begin + 2
    if end_at <= len(data):
        end_at += int.from_bytes(data[begin:end_at]) + 2 * _has_id(data[at])
    if end_at > end:
        raise MalformedError("its topic is longer than the packet")
    return end_at


def _id_before(data: bytes, at: int, head_end: int) -> int:
    return int.from_bytes(data[head_end - 2 : head_end]) if _has_id(data[at]) else 0


def _read_or_skip(packet: memoryview, begin: int) -> mqtt5.Packet | Unreadable:
    """Return a packet; of a message that cannot be read, what it takes to acknowledge it."""
    try:
        return read_packet(packet)
    except MalformedError as error:
        if packet[0] >> 4 != PUBLISH or packet[0] & QOS_BITS == QOS_BITS:  # Not even where it ends is certain.
            raise
        whole = bytes(packet)
        return Unreadable(_id_before(whole, 0, _head_end(whole, 0, begin, len(whole))), str(error))


def read_packet(packet: memoryview) -> mqtt5.Packet:
    """Return the packet that these bytes are; raise MalformedError if they are none."""
    try:
        return mqtt5.read(packet)[0]
    except (ValueError, IndexError) as error:
        raise MalformedError(str(error)) from error
    except BaseException as error:
        # The codec panics if text is not UTF-8, with an exception that cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise MalformedError(f"it holds text that is not UTF-8 ({error})") from error
