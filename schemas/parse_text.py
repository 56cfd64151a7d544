"""Parse JSON and TOML that others wrote: any text gives a document, or a ValueError that says why not."""

from __future__ import annotations

import json
import tomllib
from typing import Any

INTEGER_BITS = 64
TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes) -> Any:
    """Return the document of a JSON text. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """Return the object of a JSON text. Raises ValueError."""
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text, whose integers have at most INTEGER_BITS. Raises ValueError."""
    try:
        tables = tomllib.loads(text)
        _check_integers(tables)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    return tables


def _check_integers(value: Any) -> None:
    """Raise ValueError for an integer that TOML does not allow; one of thousands of digits could not be printed."""
    if isinstance(value, int) and value.bit_length() >= INTEGER_BITS and value != -(1 << INTEGER_BITS - 1):
        raise ValueError(f"an integer in it has more than {INTEGER_BITS} bits")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_integers(each)
