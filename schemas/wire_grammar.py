"""The grammar of what becomes part of a protocol line: subjects, replies, header blocks and the texts in them. Pure.

Connectors apply it to what they take and to what they write, links to what they receive; so a value that one protocol
allows cannot become a command of another. Bounds of records are in :mod:`schemas.bounds`.

A *subject* is tokens joined by single dots. It holds no space, no control character and no wildcard, and does not begin
with a name that belongs to servers or nodes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from regraft.schemas.bounds import UNCLEAN_ANYWHERE

SUBJECT_BYTES_MAX = 8_192  # Twice a line of NATS; each token fits the text of a client's record.
TOKENS_MAX = 64  # Each token is an attribute that the overlay routes by.
HEADERS_BYTES_MAX = 128 << 10  # Small enough that connectors can keep some hundred blocks, which clients repeat.
PAYLOAD_BYTES_MAX = 8 << 20  # NATS accepts 1 MiB by default.
OWN_PREFIXES = ("$", "_REGRAFT.")  # Subjects of servers (system, JetStream, logs), and of nodes.
ANY, REST = "*", ">"
SUBJECTS_KEPT_MAX = 5_000  # Clients keep publishing to the same few.
_NO_CHARACTERS = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
# MQTT brokers end the connection of a client that sends one of these in any text.
_UNCLEAN = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NO_CHARACTERS}]")
_LINE = rb"[^\x00-\x08\x0a-\x1f\x7f]*\r\n"
_BLOCK = re.compile(rb"NATS/1\.0" + _LINE + rb"(?:[^\x00-\x20\x7f:][^\x00-\x1f\x7f:]*:" + _LINE + rb")*\r\n")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # A token of RFC 9110: what every client can read.


def is_clean(text: str) -> bool:
    """Return True if every protocol can carry a text: it has no control characters, and UTF-8 can encode it."""
    return _UNCLEAN.search(text) is None


def is_header_name(name: str) -> bool:
    """Return True if clients of every broker can read a header of this name."""
    return _HEADER_NAME.fullmatch(name) is not None


def subject_error(subject: str) -> str:
    """Return what is wrong with the subject of a message."""
    return _length_error(subject) or _subject_error(subject)


def filter_error(subject: str) -> str:
    """Return what is wrong with a subject that is wanted: the tokens * and, at the end, > stand for others."""
    return _length_error(subject) or _filter_error(subject)


def block_error(block: bytes) -> str:
    """Return what is wrong with a header block; an empty one is right."""
    if len(block) > HEADERS_BYTES_MAX:
        return f"headers of {len(block)} bytes: at most {HEADERS_BYTES_MAX} are carried"
    return "" if not block or _BLOCK.fullmatch(block) else f"{block[:80]!r} is not a header block of NATS"


def _length_error(subject: str) -> str:
    length = len(subject)
    if length <= SUBJECT_BYTES_MAX // 4:
        return ""
    if length <= SUBJECT_BYTES_MAX:
        length = len(subject.encode(errors="replace"))
    if length <= SUBJECT_BYTES_MAX:
        return ""
    return f"{subject[:80]!r}... is longer than the {SUBJECT_BYTES_MAX} bytes of a subject"


@lru_cache(maxsize=SUBJECTS_KEPT_MAX)
def _subject_error(subject: str) -> str:
    tokens = subject.split(".")
    if ANY in tokens or REST in tokens:
        return f"{subject[:80]!r} contains a wildcard: a message cannot be published with it"
    return _tokens_error(subject, tokens)


@lru_cache(maxsize=SUBJECTS_KEPT_MAX)
def _filter_error(subject: str) -> str:
    tokens = subject.split(".")
    if REST in tokens[:-1]:
        return f"{subject[:80]!r} has > before its end: only the last token may be >"
    return _tokens_error(subject, tokens)


def _tokens_error(subject: str, tokens: list[str]) -> str:
    if "" in tokens or any(character.isspace() for character in subject):
        return f"{subject[:80]!r} has an empty token or a space: tokens are joined by one dot each"
    if not is_clean(subject) or UNCLEAN_ANYWHERE.search(subject):
        return f"{subject[:80]!r} has a control character, or one that UTF-8 does not have"
    if subject.startswith(OWN_PREFIXES):
        return f"{subject[:80]!r} belongs to a server or a node: such names do not cross"
    if len(tokens) > TOKENS_MAX:
        return f"{subject[:80]!r} has {len(tokens)} tokens: at most {TOKENS_MAX} are routed"
    return ""
