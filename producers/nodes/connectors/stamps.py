"""The stamp of a message that a node hands over: overlay, broker, publisher and number, as one header. Pure.

A message that meets a second node with the stamp of that node's overlay came along a way that is not the overlay's: it
must not be carried again, or it would return without end.

Each overlay has its own header, so a message keeps one stamp for each overlay that has carried it. The stamp contains a
checksum of the subject: a client that publishes elsewhere with the headers it received has published a new message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote
from zlib import crc32

from regraft.producers.nodes.connectors.connector import LocalMessage

HEADER = "Regraft-Carried-"  # Followed by the overlay's namespace.
HINT = HEADER.lower().encode()
NAMES_KEPT_MAX = 10_000
FIELDS, DIGITS_MAX = 6, 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """``broker`` is where the message was handed over; ``publisher`` and ``number`` identify it in the overlay.

    ``home`` is where it was published, in ``epoch``; nodes of earlier versions do not say.
    """

    broker: str
    publisher: str
    number: int
    home: str = ""
    epoch: int = -1


class Stamps:
    """The stamps of one overlay; ``broker`` hands over."""

    def __init__(self, overlay: str, broker: str) -> None:
        self.header = f"{HEADER}{overlay}"
        self._broker = _quoted(broker)
        name = re.escape(self.header.encode())
        self._lines = re.compile(rb"(?<=\r\n)(?i:" + name + rb"): *([^\r\n]*)\r\n")

    def stamp_of(self, message: LocalMessage) -> str:
        """Return the header's value for a message that is handed over."""
        home = f" {_quoted(message.home)}" if message.home else ""
        home += f" {message.epoch}" if home and message.epoch >= 0 else ""
        return f"{message.number} {_mark_of(message.subject)} {self._broker} {_quoted(message.publisher)}{home}"

    def met(self, message: LocalMessage) -> Stamp | None:
        """Return who handed a message over, None if a client published it."""
        if not self._may_hold(message.headers):
            return None
        lines = self._lines.findall(message.headers)
        return next(
            (stamp for line in lines if (stamp := self.read(line.decode(errors="replace"), message.subject))), None
        )

    def read(self, value: str, subject: str) -> Stamp | None:
        """Return the stamp that a header's value is, None if it is none, or that of a message with another subject."""
        number, mark, broker, publisher, home, epoch, *_ = [*value.split(" "), *[""] * FIELDS]
        is_stamp = mark == _mark_of(subject) and bool(broker) and number.isdecimal() and number.isascii()
        if not is_stamp:
            return None
        return Stamp(unquote(broker), unquote(publisher), int(number[:DIGITS_MAX]), unquote(home), _epoch_in(epoch))

    def cleared(self, block: bytes) -> bytes:
        """Return a header block without the overlay's stamps, which a client has copied from another message."""
        return self._lines.sub(b"", block) if self._may_hold(block) else block

    @staticmethod
    def _may_hold(block: bytes) -> bool:
        return HINT in block.lower()


def _epoch_in(text: str) -> int:
    return int(text[:DIGITS_MAX]) if text.isdecimal() and text.isascii() else -1


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _quoted(name: str) -> str:
    return quote(name, safe="")


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _mark_of(subject: str) -> str:
    return f"{crc32(subject.encode(errors='replace')):08x}"
