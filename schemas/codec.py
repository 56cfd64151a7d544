"""Bytes <-> records: Avro bodies in Confluent framing, the only place that imports fastavro's reader and writer.

Writes ``00`` + 4-byte big-endian schema id + body. Reads that and the single-object encoding ``C3 01`` + 8-byte
fingerprint + body, in every version of the record's schema since release 0.2.0.
"""

import io
import re
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from fastavro import schemaless_reader, schemaless_writer

from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.overlong_numbers import check_numbers
from regraft.schemas.registry import (
    SCHEMAS,
    Schema,
    latest_schema,
    newer_ids,
    schema_by_fingerprint,
    schema_by_id,
)

CONFLUENT_MAGIC = b"\x00"
SINGLE_OBJECT_MAGIC = b"\xc3\x01"
CONFLUENT_HEADER_BYTES = 5
SINGLE_OBJECT_HEADER_BYTES = 10

BUFFER = re.compile(r" from <_io\.BytesIO [^>]*>")  # In messages of fastavro: an address says nothing.
PATH, STEP = re.compile(r" - at `\$([^`]*)`$"), re.compile(r"\.(\w+)|\[(\d+)\]")  # As msgspec writes them.
TEXT_SHOWN_MAX = 60

Record = TypeVar("Record", bound=msgspec.Struct)

_wire_ids: dict[int, int] = {}  # Empty unless a registry is used.


class UndecodableRecordError(ValueError):
    """The bytes are not a record of the expected type; the message says why."""


class UnencodableRecordError(ValueError):
    """The record is one that readers would refuse; the message says why."""


def encode(record: msgspec.Struct) -> bytes:
    """Return the record in Confluent framing with the newest schema of its type.

    Raises UnencodableRecordError for whatever :func:`decode` refuses, so that a bad value stops at its sender.
    """
    schema = latest_schema(type(record).__name__)
    buffer, datum = io.BytesIO(), None
    buffer.write(header(schema.record))
    try:
        datum = msgspec.to_builtins(record, builtin_types=(bytes,))
        msgspec.convert(datum, type(record))
        schemaless_writer(buffer, schema.parsed, datum)
    except msgspec.ValidationError as error:
        raise UnencodableRecordError(f"the {schema.record} is invalid: {error}{_value_text(datum, error)}") from error
    except Exception as error:  # fastavro raises many types for values that the schema cannot hold.
        reason = str(error) or type(error).__name__
        raise UnencodableRecordError(f"the {schema.record} is invalid: {reason}") from error
    if buffer.tell() > RECORD_BYTES_MAX:
        raise UnencodableRecordError(
            f"the {schema.record} has {buffer.tell()} bytes, but at most {RECORD_BYTES_MAX} are read"
        )
    return buffer.getvalue()


def header(record: str) -> bytes:
    """Return the Confluent framing with which every record of this name starts: magic byte and schema id."""
    return CONFLUENT_MAGIC + struct.pack(">I", accepted_ids(latest_schema(record).schema_id)[0])


def use_wire_ids(wire_ids: Mapping[int, int]) -> None:
    """Write and read with a registry's ids, given as fixed id -> registry's id; an empty mapping undoes it.

    Call it once in each process, before the first record (:mod:`schemas.remote_registry`). Fixed ids are still read
    unless the registry assigned them to another of our schemas.
    """
    _wire_ids.clear()
    _wire_ids.update(wire_ids)


def wire_ids() -> dict[int, int]:
    """Return the ids that ``use_wire_ids`` was given, for another process."""
    return dict(_wire_ids)


def accepted_ids(schema_id: int) -> tuple[int, ...]:
    """Return the framing ids that are read as this schema; the first one is written."""
    if schema_id not in _wire_ids:
        return (schema_id,)
    taken = schema_id in _wire_ids.values()
    return (_wire_ids[schema_id],) if taken else (_wire_ids[schema_id], schema_id)


def newer_wire_ids(record: str) -> range:
    """Return the framing ids of newer versions of a record; none with a registry, whose ids do not show versions."""
    return range(0) if _wire_ids else newer_ids(record)


def is_newer(value: bytes, record_type: type[msgspec.Struct]) -> bool:
    """Return True if the bytes are framed as a version of the record that is newer than any known here."""
    is_framed = value[:1] == CONFLUENT_MAGIC and len(value) >= CONFLUENT_HEADER_BYTES
    return is_framed and struct.unpack(">I", value[1:5])[0] in newer_wire_ids(record_type.__name__)


def decode(value: bytes | None, record_type: type[Record]) -> Record:
    """Return the record that the bytes hold, read as the newest version of its schema.

    Raises UndecodableRecordError if the bytes are empty, more than RECORD_BYTES_MAX, framed in neither form, of an
    unknown schema or another record's, truncated, or hold implausible values (:mod:`schemas.bounds`).
    """
    if not value:
        raise UndecodableRecordError(f"the record is empty, a {record_type.__name__} was expected")
    if len(value) > RECORD_BYTES_MAX:
        raise UndecodableRecordError(f"the record has {len(value)} bytes, but at most {RECORD_BYTES_MAX} are read")
    writer, header_bytes = _writer_schema(value)
    if writer.record != record_type.__name__:
        raise UndecodableRecordError(
            f"schema id {writer.schema_id} is a {writer.record}, a {record_type.__name__} was expected here"
        )
    try:
        body = io.BytesIO(value[header_bytes:])
        datum = schemaless_reader(body, writer.parsed, latest_schema(writer.record).parsed)
        if body.tell() != len(value) - header_bytes:
            trailing = len(value) - header_bytes - body.tell()
            raise UndecodableRecordError(
                f"{trailing} bytes follow the {writer.record}: the record may be framed wrongly"
            )
        record = msgspec.convert(datum, record_type)
        check_numbers(value[header_bytes:], writer.parsed)
        return record
    except UndecodableRecordError:
        raise
    except msgspec.ValidationError as error:
        raise UndecodableRecordError(f"the {writer.record} is invalid: {error}{_value_text(datum, error)}") from error
    except Exception as error:  # fastavro raises many types for bad bytes; the reason goes to the dead letter.
        reason = f"{type(error).__name__}: {BUFFER.sub('', str(error))}" if str(error) else type(error).__name__
        raise UndecodableRecordError(
            f"the body is not a {writer.record} of schema {writer.schema_id}: {reason}"
        ) from error


def _value_text(datum: Any, error: msgspec.ValidationError) -> str:
    """Return the value that an error of msgspec is about, as a clause; "" if it names none or it is no single value."""
    path = PATH.search(str(error))
    try:
        for name, place in STEP.findall(path.group(1)) if path else ():
            datum = datum[name] if name else datum[int(place)]
    except (KeyError, IndexError, TypeError):
        return ""
    return f", it is {repr(datum)[:TEXT_SHOWN_MAX]}" if path and not isinstance(datum, dict | list) else ""


def _writer_schema(value: bytes) -> tuple[Schema, int]:
    try:
        if value[:1] == CONFLUENT_MAGIC and len(value) >= CONFLUENT_HEADER_BYTES:
            framed_id = struct.unpack(">I", value[1:5])[0]
            fixed_ids = {wire_id: schema_id for schema_id, wire_id in _wire_ids.items()}
            if _wire_ids and framed_id not in {*fixed_ids, *SCHEMAS}:
                raise KeyError(f"schema id {framed_id} is unknown, no schema of Regraft has it in the registry")
            return schema_by_id(fixed_ids.get(framed_id, framed_id)), CONFLUENT_HEADER_BYTES
        if value[:2] == SINGLE_OBJECT_MAGIC and len(value) >= SINGLE_OBJECT_HEADER_BYTES:
            return schema_by_fingerprint(value[2:10]), SINGLE_OBJECT_HEADER_BYTES
    except KeyError as error:
        raise UndecodableRecordError(str(error.args[0])) from error
    raise UndecodableRecordError(f"the record starts with {value[:2].hex()}, expected 00 (Confluent) or c301 (Avro)")
