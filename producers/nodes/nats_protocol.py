"""The leaf protocol of NATS in bytes: what a server sends to a leaf node, and what the leaf answers. Pure.

In: bytes of a socket, in any pieces. Out: one value per protocol message. Source: the server's parser (2.10 to 2.15),
because leaf links are undocumented. A leaf receives the interest of all local clients, once for each subject and queue
group, and never receives what it has sent itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.producers.nodes.doors import DoorError, LocalMessage

LINE_BYTES_MAX = 64 * 1024
PAYLOAD_BYTES_MAX = 8 << 20  # Including headers; the server's default is 1 MiB.


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """INFO: what the server reports of itself, first and after each change."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interest:
    """A first client wants a subject, in a queue group or not, or the last one that did is gone."""

    subject: str
    queue: str
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """The server checks that we are alive."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The server has handled everything before our ping, and sent its answers to that before this."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server ends the connection, for this reason."""

    reason: str


ServerMessage = ServerInfo | Interest | Ping | Pong | Refused | LocalMessage


class LeafReader:
    """Parses the bytes that a server sends."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[ServerMessage]:
        """Yield the messages that are now complete; raise DoorError for bytes that no server sends."""
        self._data += data
        place = 0
        try:
            while (end := self._data.find(b"\r\n", place)) >= 0:
                line = bytes(self._data[place:end])
                if line[:5] not in (b"LMSG ", b"HMSG "):
                    place = end + 2
                    yield from _messages_of(line)
                    continue
                message, following = self._message(line, end + 2)
                if message is None:
                    break
                place = following
                yield message
            if len(self._data) - place > LINE_BYTES_MAX + PAYLOAD_BYTES_MAX:
                raise DoorError(
                    f"the server sent {len(self._data) - place} bytes without a line: check that this is a leaf port"
                )
        finally:
            del self._data[:place]

    def _message(self, line: bytes, begin: int) -> tuple[LocalMessage | None, int]:
        words = line.decode().split(" ")
        try:
            size = int(words[-1])
            head_size, reply = (int(words[-2]), words[2:-2]) if words[0] == "HMSG" else (0, words[2:-1])
        except (ValueError, IndexError) as error:
            raise DoorError(
                f"the server sent {line[:80]!r}, which is not a message: check that this is a leaf port"
            ) from error
        if not 0 <= head_size <= size <= PAYLOAD_BYTES_MAX:
            raise DoorError(f"the server sent a message of {size} bytes, but at most {PAYLOAD_BYTES_MAX} are carried")
        if len(self._data) < begin + size + 2:
            return None, begin
        block = bytes(memoryview(self._data)[begin : begin + size])
        if reply and reply[0] in ("+", "|"):  # To a queue group: the reply follows +, and | means none.
            reply = reply[1:2] if reply[0] == "+" else []
        message = LocalMessage(words[1], block[head_size:], reply[0] if reply else "", block[:head_size])
        return message, begin + size + 2


def _messages_of(line: bytes) -> Iterator[ServerMessage]:
    word, _, rest = line.partition(b" ")
    match word.upper():
        case b"LS+" | b"LS-":
            parts = rest.decode().split(" ")
            yield Interest(parts[0], parts[1] if len(parts) > 1 else "", word == b"LS+")
        case b"PING":
            yield Ping()
        case b"PONG":
            yield Pong()
        case b"INFO":
            try:
                yield ServerInfo(json.loads(rest))
            except ValueError as error:
                raise DoorError(f"the server's INFO is not JSON ({error}): check that this is a NATS server") from error
        case b"-ERR":
            yield Refused(rest.decode(errors="replace").strip("'"))
        case b"+OK" | b"":
            pass
        case _:
            raise DoorError(f"the server sent {line[:80]!r}: this is not the leaf port of a NATS server")


def connect_line(facts: dict[str, Any]) -> bytes:
    """Return the line by which a leaf introduces itself."""
    return b"CONNECT " + json.dumps(facts).encode() + b"\r\n"


def message_bytes(message: LocalMessage, queues: Sequence[str] = ()) -> bytes:
    """Encode a message for the server's clients: all outside queue groups, and one in each group of ``queues``."""
    head = f"{message.subject} {message.reply} " if message.reply else f"{message.subject} "
    if queues:
        to = f"+ {message.reply}" if message.reply else "|"
        head = f"{message.subject} {to} {' '.join(queues)} "
    size = len(message.headers) + len(message.payload)
    if message.headers:
        return b"HMSG %b%d %d\r\n%b%b\r\n" % (
            head.encode(), len(message.headers), size, message.headers, message.payload
        )  # fmt: skip
    return b"LMSG %b%d\r\n%b\r\n" % (head.encode(), size, message.payload)
