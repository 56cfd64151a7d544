"""Records as an older Regraft wrote them."""

import io
import struct

import msgspec
from fastavro import schemaless_writer

from regraft.schemas.codec import CONFLUENT_MAGIC
from regraft.schemas.registry import schema_by_id


def encode_as(record: msgspec.Struct, schema_id: int) -> bytes:
    """Return the record in Confluent framing as that version of its schema; fields that it lacks are left out."""
    buffer = io.BytesIO()
    buffer.write(CONFLUENT_MAGIC + struct.pack(">I", schema_id))
    schemaless_writer(buffer, schema_by_id(schema_id).parsed, msgspec.to_builtins(record, builtin_types=(bytes,)))
    return buffer.getvalue()
