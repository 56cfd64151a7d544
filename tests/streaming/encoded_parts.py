"""Parts as Spark encodes them, encoded by fastavro."""

import io
from typing import Any

from fastavro import parse_schema, schemaless_writer

from regraft.streaming.read_telemetry import PART_SCHEMA

_SCHEMA = parse_schema(PART_SCHEMA)


def encode_part(part: dict[str, Any]) -> bytes:
    """Return the body of a part; missing lists are empty."""
    body = io.BytesIO()
    schemaless_writer(body, _SCHEMA, {name: [] if value is None else value for name, value in part.items()})
    return body.getvalue()
