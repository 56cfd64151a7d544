"""The leaf protocol of NATS in bytes: what a server sends to a leaf node, and what the leaf answers. Pure.

In: bytes of a socket, in any pieces. Out: one value per protocol message. Source: the server's parser (2.10 to 2.15),
because leaf links are undocumented. A leaf receives the interest of all local clients, once for each subject and queue
group, and never receives what it has sent itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.schemas.wire_grammar import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX

LINE_BYTES_MAX = 64 * 1024
BLOCK_BYTES_MAX = HEADERS_BYTES_MAX + PAYLOAD_BYTES_MAX  # A longer message is skipped as its bytes arrive.
# Source: the server's stream.go and msgtrace.go. Nats-Msg-Id is not among them: it only recognises repetitions.
_COMMANDS = re.compile(
    rb"(?<=\r\n)(?i:nats-(?:expected-|stream-source|rollup|ttl|marker-reason|incr|counter-|batch-|schedule|trace-|required-))"
    rb"[^\r\n]*\r\n"
)
FIRST_LINE, END = b"NATS/1.0\r\n", b"\r\n"
BYTES_KEPT = "surrogateescape"  # Bytes that are no UTF-8 become characters that no grammar allows.


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


@dataclass(frozen=True, slots=True)
class Oversized:
    """A message of more than ``BLOCK_BYTES_MAX`` was skipped."""

    subject: str
    reply: str
    size_bytes: int


ServerMessage = ServerInfo | Interest | Ping | Pong | Refused | LocalMessage | Oversized


class LeafReader:
    """Parses the bytes that a server sends."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._skip = 0  # Bytes still to come of a message that is too long.

    def feed(self, data: bytes) -> Iterator[ServerMessage]:
        """Yield the messages that are now complete; raise ConnectorError for bytes that no server sends."""
        self._data += data
        place = 0
        try:
            while True:
                skipped = min(self._skip, len(self._data) - place)
                self._skip, place = self._skip - skipped, place + skipped
                end = self._data.find(b"\r\n", place)
                if self._skip or end < 0:
                    break
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
            if len(self._data) - place > LINE_BYTES_MAX + BLOCK_BYTES_MAX:
                raise ConnectorError(
                    f"the server sent {len(self._data) - place} bytes without a line: check that this is a leaf port"
                )
        finally:
            del self._data[:place]

    def _message(self, line: bytes, begin: int) -> tuple[LocalMessage | Oversized | None, int]:
        words = line.decode(errors=BYTES_KEPT).split(" ")
        try:
            size = int(words[-1])
            head_size, reply = (int(words[-2]), words[2:-2]) if words[0] == "HMSG" else (0, words[2:-1])
        except (ValueError, IndexError) as error:
            raise ConnectorError(
                f"the server sent {line[:80]!r}, which is not a message: check that this is a leaf port"
            ) from error
        if not 0 <= head_size <= size:
            raise ConnectorError(
                f"the server sent {line[:80]!r}, whose sizes are wrong: check that this is a leaf port"
            )
        if reply and reply[0] in ("+", "|"):  # To a queue group: the reply follows +, and | means none.
            reply = reply[1:2] if reply[0] == "+" else []
        reply_to = reply[0] if reply else ""
        if size > BLOCK_BYTES_MAX:
            self._skip = size + 2
            return Oversized(words[1], reply_to, size), begin
        if len(self._data) < begin + size + 2:
            return None, begin
        block = bytes(memoryview(self._data)[begin : begin + size])
        return LocalMessage(words[1], block[head_size:], reply_to, block[:head_size]), begin + size + 2


def _messages_of(line: bytes) -> Iterator[ServerMessage]:
    word, _, rest = line.partition(b" ")
    match word.upper():
        case b"LS+" | b"LS-":
            parts = rest.decode(errors=BYTES_KEPT).split(" ")
            yield Interest(parts[0], parts[1] if len(parts) > 1 else "", word == b"LS+")
        case b"PING":
            yield Ping()
        case b"PONG":
            yield Pong()
        case b"INFO":
            try:
                yield ServerInfo(json.loads(rest))
            except ValueError as error:
                raise ConnectorError(
                    f"the server's INFO is not JSON ({error}): check that this is a NATS server"
                ) from error
        case b"-ERR":
            yield Refused(rest.decode(errors="replace").strip("'"))
        case b"+OK" | b"":
            pass
        case _:
            raise ConnectorError(f"the server sent {line[:80]!r}: this is not the leaf port of a NATS server")


def connect_line(facts: dict[str, Any]) -> bytes:
    """Return the line by which a leaf introduces itself."""
    return b"CONNECT " + json.dumps(facts).encode() + b"\r\n"


def without_commands(block: bytes) -> bytes:
    """Return a header block without the lines that a NATS server obeys, such as Nats-Rollup, which empties a stream.

    They are for the server of the client that wrote them; those of other brokers may have never heard of NATS.
    """
    return _COMMANDS.sub(b"", block) if b"\nnats-" in block.lower() else block


def with_header(block: bytes, name: bytes, value: bytes) -> bytes:
    """Return a header block with one more line at its end."""
    begin = block[: -len(END)] if block else FIRST_LINE
    return begin + name + b": " + value + END + END


def stamped(message: LocalMessage, stamp: tuple[str, str]) -> LocalMessage:
    """Return a message for the server's clients: with its stamp, and without lines that the server obeys."""
    name, value = stamp
    return replace(message, headers=with_header(without_commands(message.headers), name.encode(), value.encode()))


def message_bytes(message: LocalMessage, queues: Sequence[str] = ()) -> bytes:
    """Encode a message for the server's clients: all outside queue groups, and one in each group of ``queues``."""
    head = f"{message.subject} {message.reply} " if message.reply else f"{message.subject} "
    if queues:
        to = f"+ {message.reply}" if message.reply else "|"
        head = f"{message.subject} {to} {' '.join(queues)} "
    line = head.encode(errors=BYTES_KEPT)  # Names of queue groups may be any bytes.
    size = len(message.headers) + len(message.payload)
    if message.headers:
        return b"HMSG %b%d %d\r\n%b%b\r\n" % (
            line, len(message.headers), size, message.headers, message.payload
        )  # fmt: skip
    return b"LMSG %b%d\r\n%b\r\n" % (line, size, message.payload)
