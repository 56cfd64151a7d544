"""AMQP headers and properties as the header block that the overlay carries, and back. Pure.

In: a message's headers and properties. Out: a block in NATS format. Each is one line; properties become lines that
begin with ``Amqp-``; headers that are not plain text keep their types in ``Amqp-Headers``, as base64 of AMQP's own
encoding.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from zlib import crc32

from pika import BasicProperties
from pika.data import decode_table, encode_table, encode_value
from pika.exceptions import AMQPError

from regraft.producers.nodes.amqp.drive_pika import UNREADABLE
from regraft.schemas.wire_grammar import is_header_name

FIRST_LINE, END = "NATS/1.0", "\r\n"
PREFIX, ODD = "Amqp-", "Amqp-Headers"
DEATHS, DEATHS_SEEN = "x-death", "Regraft-Deaths"  # What the broker notes of dead letters; a checksum of it.
# Further keys by which a RabbitMQ routes a message, and how often its federation has carried it: for one broker only.
COMMANDS = ("CC", "BCC", "x-received-from")
BLOCKS_KEPT_MAX = 250
TEXT_BYTES_MAX = 255  # For a property's value, and for a header's name.
_TEXTS = {
    "content_type": "Amqp-Content-Type",
    "content_encoding": "Amqp-Content-Encoding",
    "correlation_id": "Amqp-Correlation-Id",
    "expiration": "Amqp-Expiration",
    "message_id": "Amqp-Message-Id",
    "type": "Amqp-Type",
    "app_id": "Amqp-App-Id",
}
_NUMBERS = {"delivery_mode": "Amqp-Delivery-Mode", "priority": "Amqp-Priority", "timestamp": "Amqp-Timestamp"}
_NUMBER_MAX = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 63) - 1, "expiration": (1 << 32) - 1}
_NAME_OF = {line: name for name, line in (_TEXTS | _NUMBERS).items()}


def block_of(properties: BasicProperties) -> bytes:
    """Return headers and properties as a header block, empty if there are none.

    Omits ``reply_to``, which is the message's reply subject, and ``user_id``, which only one broker knows.
    """
    lines, odd = [], {}
    for name, value in (properties.headers or {}).items():
        if name in (DEATHS_SEEN, UNREADABLE, *COMMANDS):
            continue
        if _is_line(name, value):
            lines.append(f"{name}: {value}")
        else:
            odd[name] = value
    if odd:
        lines.append(f"{ODD}: {base64.b64encode(_encoded(odd)).decode()}")
    for names in (_TEXTS, _NUMBERS):
        for name, line in names.items():
            value = getattr(properties, name)
            if value is not None and (name in _NUMBERS or _is_plain(value)):
                lines.append(f"{line}: {value}")
    return END.join([FIRST_LINE, *lines, END]).encode() if lines else b""


def properties_of(block: bytes, reply: str, stamp: tuple[str, str]) -> BasicProperties:
    """Return the properties that a block stands for, with a stamp's name and value; a reply may be too long."""
    headers, fields = _read(block)
    reply_to = reply if 0 < len(reply.encode()) <= TEXT_BYTES_MAX else None
    shown = {name: value for name, value in headers.items() if name not in COMMANDS}
    deaths = {DEATHS_SEEN: _sum_of(shown[DEATHS])} if DEATHS in shown else {}
    properties = BasicProperties(headers={**shown, **deaths, stamp[0]: stamp[1]}, reply_to=reply_to)
    for name, value in fields.items():
        setattr(properties, name, value)
    return properties


def is_dead_letter(headers: Mapping[str, Any]) -> bool:
    """Return True if a queue has rejected a message since it was handed over: it was published again."""
    return DEATHS in headers and headers.get(DEATHS_SEEN) != _sum_of(headers[DEATHS])


def _sum_of(deaths: Any) -> str:
    return f"{crc32(repr(deaths).encode(errors='replace')):08x}"


@lru_cache(maxsize=BLOCKS_KEPT_MAX)
def _read(block: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    headers: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for line in block.decode(errors="replace").split(END)[1:]:
        name, is_pair, value = line.partition(":")
        value = value.removeprefix(" ")
        if not is_pair:
            continue
        field = _NAME_OF.get(name, "")
        if name == ODD and (odd := _table_of(value)) is not None:
            headers.update(odd)
        elif field and _may_be(field, value):
            fields[field] = int(value) if field in _NUMBERS else value
        elif len(name.encode()) <= TEXT_BYTES_MAX:
            headers[name] = value
    return headers, fields


def _may_be(field: str, value: str) -> bool:
    """Return True if a broker accepts the value for a property; any other value would make it close the channel."""
    limit = _NUMBER_MAX.get(field)
    if limit is None:
        return len(value.encode()) <= TEXT_BYTES_MAX
    return value.isascii() and value.isdigit() and int(value) <= limit


def _table_of(value: str) -> dict[str, Any] | None:
    try:
        table: dict[str, Any] = decode_table(base64.b64decode(value, validate=True), 0)[0]
        encode_table([], table)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError, struct.error, AMQPError):
        return None
    return table


def _encoded(odd: Mapping[str, Any]) -> bytes:
    """Return headers in AMQP's encoding; values that pika reads but cannot write, such as fractions, become text."""
    pieces: list[bytes] = []
    try:
        encode_table(pieces, dict(odd))
    except (AMQPError, struct.error):
        pieces.clear()
        encode_table(pieces, {name: value if _is_written(value) else str(value) for name, value in odd.items()})
    return b"".join(pieces)


def _is_written(value: Any) -> bool:
    try:
        encode_value([], value)
    except (AMQPError, struct.error):
        return False
    return True


def _is_line(name: str, value: Any) -> bool:
    is_name = is_header_name(name) and not name.startswith(PREFIX)
    return is_name and isinstance(value, str) and (value == "" or _is_plain(value))


def _is_plain(text: str) -> bool:
    return bool(text) and text.isprintable() and text == text.strip()
