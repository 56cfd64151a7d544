"""MQTT 5 fields besides topic and payload, as the header block that the overlay carries, and back. Pure.

Fields that only MQTT has are lines that begin with ``Mqtt-``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from regraft.schemas.wire_grammar import is_clean, is_header_name

FIRST_LINE = "NATS/1.0"
END = "\r\n"
ODD = "Mqtt-Property"  # A user property that no header line can hold, as base64 of JSON.
CONTENT_TYPE, CORRELATION, EXPIRY = "Mqtt-Content-Type", "Mqtt-Correlation-Data", "Mqtt-Expiry-Seconds"
IS_TEXT, RETAIN, QOS = "Mqtt-Payload-Is-Text", "Mqtt-Retain", "Mqtt-Qos"
EXPIRY_S_MAX = 0xFFFFFFFF
TEXT_BYTES_MAX = 65_535
BLOCKS_KEPT_MAX = 250  # Many messages of a client have the same fields.


@dataclass(frozen=True, slots=True)
class MqttFields:
    """The fields of a message. ``qos`` is 0 or 1; ``expiry_s`` None for a message that never expires."""

    properties: tuple[tuple[str, str], ...] = ()
    qos: int = 0
    is_retained: bool = False
    is_text: bool = False
    content_type: str = ""
    correlation: bytes | None = None
    expiry_s: int | None = None


NO_FIELDS = MqttFields()


@lru_cache(maxsize=BLOCKS_KEPT_MAX)
def block_of(fields: MqttFields) -> bytes:
    """Return the fields as a header block, empty if all have their defaults."""
    if fields == NO_FIELDS:
        return b""
    lines = [_line(name, value) for name, value in fields.properties]
    for name, value in (
        (QOS, str(fields.qos) if fields.qos else None),
        (RETAIN, "1" if fields.is_retained else None),
        (IS_TEXT, "1" if fields.is_text else None),
        (CONTENT_TYPE, _packed(fields.content_type) if fields.content_type else None),
        (CORRELATION, None if fields.correlation is None else base64.b64encode(fields.correlation).decode()),
        (EXPIRY, None if fields.expiry_s is None else str(fields.expiry_s)),
    ):
        if value is not None:
            lines.append(f"{name}: {value}")
    return END.join([FIRST_LINE, *lines, END]).encode()


@lru_cache(maxsize=BLOCKS_KEPT_MAX)
def fields_of(block: bytes) -> MqttFields:
    """Return the fields that a block stands for; other lines become user properties."""
    if not block:
        return NO_FIELDS
    properties: list[tuple[str, str]] = []
    own: dict[str, str] = {}
    for name, value in _read_lines(block):
        if name in (QOS, RETAIN, IS_TEXT, CONTENT_TYPE, CORRELATION, EXPIRY):
            own[name] = value
        elif name == ODD and (odd := _unpacked(value)) is not None and len(odd) == 2 and _is_property(*odd):
            properties.append((odd[0], odd[1]))
        elif _is_property(name, value):
            properties.append((name, value))
        elif is_clean(packed := _packed(name, value)) and len(packed) <= TEXT_BYTES_MAX:
            properties.append(
                (ODD, packed)
            )  # For clients, and for the next connector: a broker would refuse it as it is.
    expiry_s = int(own[EXPIRY]) if own.get(EXPIRY, "").isdecimal() else None
    content_type = _unpacked(own.get(CONTENT_TYPE, ""))
    shown = content_type[0] if content_type else own.get(CONTENT_TYPE, "")
    return MqttFields(
        tuple(properties),
        int(own.get(QOS) == "1"),
        own.get(RETAIN) == "1",
        own.get(IS_TEXT) == "1",
        shown if _is_text(shown) else "",
        _bytes_of(own[CORRELATION]) if CORRELATION in own else None,
        expiry_s if expiry_s is None or expiry_s <= EXPIRY_S_MAX else None,
    )


def _is_property(name: str, value: str) -> bool:
    """Return True if brokers accept a user property."""
    return _is_text(name) and _is_text(value)


def _is_text(text: str) -> bool:
    return is_clean(text) and len(text.encode()) <= TEXT_BYTES_MAX


def _read_lines(block: bytes) -> Iterator[tuple[str, str]]:
    for line in block.decode(errors="replace").split(END)[1:]:
        name, is_pair, value = line.partition(":")
        if is_pair:
            yield name, value.removeprefix(" ")


def _line(name: str, value: str) -> str:
    is_plain = is_header_name(name) and not name.startswith("Mqtt-") and value.isprintable()
    if is_plain and (name, value) == (name.strip(), value.strip()):
        return f"{name}: {value}"
    return f"{ODD}: {_packed(name, value)}"


def _packed(*texts: str) -> str:
    if len(texts) == 1 and texts[0].isprintable() and texts[0] == texts[0].strip() and _unpacked(texts[0]) is None:
        return texts[0]
    return base64.b64encode(json.dumps(texts).encode()).decode()


def _unpacked(value: str) -> list[str] | None:
    try:
        unpacked = json.loads(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return None
    return (
        unpacked if isinstance(unpacked, list) and unpacked and all(isinstance(one, str) for one in unpacked) else None
    )


def _bytes_of(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None
