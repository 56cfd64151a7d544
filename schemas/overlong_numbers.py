"""Refuse numbers of more than 64 bits in Avro bodies, because readers truncate them in different ways.

The column reader of streaming applies the same rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Nine bytes with the continuation bit hold 63 bits, so the tenth may only use its lowest bit.
SUSPECT = re.compile(rb"[\x80-\xff]{9}[\x02-\xff]")
LONG_BYTES_MAX = 10
SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
VARIABLE = ("string", "bytes")


class OverlongNumberError(ValueError):
    """A number in the body has more than 64 bits."""


def check_numbers(body: bytes, schema: Any) -> None:
    """Raise OverlongNumberError if a number of the body has more than 64 bits.

    ``schema`` is the writer's schema as parsed by fastavro, with full names. Almost no body contains ten bytes that
    could be such a number; only those that do, for example in texts or doubles, are walked.
    """
    if SUSPECT.search(body):
        _Walk(body, _named(schema)).step_over(schema)


def _named(schema: Any) -> dict[str, Any]:
    """Return the named types that a schema defines; later occurrences refer to them by name."""
    if isinstance(schema, list):
        return {name: one for each in schema for name, one in _named(each).items()}
    if not isinstance(schema, Mapping):
        return {}
    parts = [field["type"] for field in schema.get("fields", ())]
    parts += [schema[part] for part in ("items", "values") if part in schema]
    return _named(parts) | ({schema["name"]: schema} if "name" in schema else {})


class _Walk:
    def __init__(self, body: bytes, named: Mapping[str, Any]) -> None:
        self._body, self._at = body, 0
        self._named = named

    def step_over(self, schema: Any) -> None:
        """Skip a value of the schema."""
        if isinstance(schema, list):
            self.step_over(schema[self._number()])
        elif isinstance(schema, Mapping):
            self._step_over_complex(schema)
        elif schema in SIZES:
            self._at += SIZES[schema]
        elif schema in VARIABLE:
            size = self._number()
            self._at += size
        elif schema in ("int", "long"):
            self._number()
        else:
            self._step_over_complex(self._named[schema])

    def _step_over_complex(self, schema: Mapping[str, Any]) -> None:
        kind = schema["type"]
        if kind == "record":
            for field in schema["fields"]:
                self.step_over(field["type"])
        elif kind in ("array", "map"):
            self._step_over_blocks(schema)
        elif kind == "enum":
            self._number()
        elif kind == "fixed":
            self._at += schema["size"]
        else:
            self.step_over(kind)

    def _step_over_blocks(self, schema: Mapping[str, Any]) -> None:
        while count := self._number():
            if count < 0:
                self._number()  # The block's size in bytes.
            for _ in range(abs(count)):
                if self._at >= len(self._body):  # None of our item types is empty.
                    raise IndexError("an array is longer than the body")
                if schema["type"] == "map":
                    self.step_over("string")
                self.step_over(schema["items"] if schema["type"] == "array" else schema["values"])

    def _number(self) -> int:
        begin, bits = self._at, 0
        while True:
            byte = self._body[self._at]
            bits |= (byte & 0x7F) << 7 * (self._at - begin)
            self._at += 1
            if self._at - begin == LONG_BYTES_MAX and byte > 1:
                raise OverlongNumberError("a number in it has more than 64 bits")
            if byte < 0x80:
                return bits >> 1 ^ -(bits & 1)
