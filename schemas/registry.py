"""The file-based schema registry: fixed ids, and one ``.avsc`` file for each version of each record.

Ids are ``record * 100 + version`` and never change or move. A new version is a new file and a new line in
``SCHEMAS``; the last version of a record is the one used for writing and reading. Versions that no release since 0.2.0
wrote are no longer here; their ids stay reserved, so that a record of one is refused with what to do.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastavro import parse_schema
from fastavro.schema import fingerprint, to_parsing_canonical_form

from regraft.schemas.topics import TOPICS

VERSIONS_MAX = 100  # The distance between the ids of one record and the next.
NEWER = "was written by a newer version of Regraft"
OLDER = "was written by a version of Regraft before 0.2.0"
AVSC_DIRECTORY = Path(__file__).parent / "avsc"

# id -> file stem. Append only: a record written years ago still carries its id. Lower ids of a record are reserved.
SCHEMAS: dict[int, str] = {
    102: "telemetry_batch.v2",
    103: "telemetry_batch.v3",
    203: "state_row.v3",
    302: "window_closed.v2",
    405: "command.v5",
    503: "command_result.v3",
    606: "plan.v6",
    607: "plan.v7",
    701: "adaptation_event.v1",
    802: "client.v2",
    803: "client.v3",
    804: "client.v4",
    901: "dead_letter.v1",
    1003: "order.v3",
    1101: "alert.v1",
    1201: "audit_entry.v1",
    1301: "leader_term.v1",
    1401: "member.v1",
    1501: "announcement.v1",
    1601: "sample_request.v1",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of one record's schema: its fixed id, the record's name, the parsed form and the file's text."""

    schema_id: int
    record: str
    version: int
    parsed: Any
    text: str

    @property
    def fingerprint(self) -> bytes:
        """Return the CRC-64-AVRO of a single-object encoding's header, 8 bytes, little-endian."""
        form = to_parsing_canonical_form(json.loads(self.text))
        return bytes.fromhex(fingerprint(form, "CRC-64-AVRO"))


@cache
def schema_by_id(schema_id: int) -> Schema:
    """Return the schema with this id.

    Raises KeyError if it is unknown; the message says whether it is newer or older, or lists the known ids.
    """
    if schema_id not in SCHEMAS:
        for record in sorted({schema_by_id(known_id).record for known_id in SCHEMAS}):
            if schema_id in newer_ids(record):
                raise KeyError(f"{record} version {schema_id % VERSIONS_MAX} {newer_hint(record)}")
            if schema_id in older_ids(record):
                raise KeyError(f"{record} version {schema_id % VERSIONS_MAX} {older_hint(record)}")
        numbers = ", ".join(str(known_id) for known_id in sorted(SCHEMAS))
        raise KeyError(f"schema id {schema_id} is unknown: use one of {numbers}")
    stem = SCHEMAS[schema_id]
    text = (AVSC_DIRECTORY / f"{stem}.avsc").read_text(encoding="utf-8")
    document = json.loads(text)
    return Schema(schema_id, document["name"], int(stem.rsplit(".v", 1)[1]), parse_schema(document), text)


@cache
def latest_schema(record: str) -> Schema:
    """Return the newest version of a record's schema, used for writing and reading; raise KeyError if there is none."""
    versions = [schema_by_id(schema_id) for schema_id in sorted(SCHEMAS)]
    named = [schema for schema in versions if schema.record == record]
    if not named:
        raise KeyError(f"record {record!r} has no schema in {AVSC_DIRECTORY.name}/: add one to schemas/registry.py")
    return named[-1]


@cache
def schema_ids_of(record: str) -> tuple[int, ...]:
    """Return the ids of all versions of a record, oldest first."""
    return tuple(schema_id for schema_id in sorted(SCHEMAS) if schema_by_id(schema_id).record == record)


def newer_ids(record: str) -> range:
    """Return the ids reserved for future versions of a record."""
    newest = latest_schema(record).schema_id
    return range(newest + 1, (newest // VERSIONS_MAX + 1) * VERSIONS_MAX)


def newer_hint(record: str) -> str:
    """Return the text that follows "version N " in an error about a version newer than this Regraft."""
    readers = sorted({role.value for topic in TOPICS if topic.record == record for role in topic.readers})
    newest = latest_schema(record).version
    return f"{NEWER}, but this one reads up to version {newest}: upgrade {', '.join(readers)} first (docs/upgrades.md)"


def older_ids(record: str) -> range:
    """Return the ids of versions of a record that are no longer read."""
    oldest = schema_ids_of(record)[0]
    return range(oldest // VERSIONS_MAX * VERSIONS_MAX + 1, oldest)


def older_hint(record: str) -> str:
    """Return the text that follows "version N " in an error about a version that is no longer read."""
    writers = sorted({role.value for topic in TOPICS if topic.record == record for role in topic.writers})
    oldest = schema_by_id(schema_ids_of(record)[0]).version
    return f"{OLDER}, but this one reads from version {oldest}: upgrade {', '.join(writers)} (docs/upgrades.md)"


@cache
def schema_by_fingerprint(crc64: bytes) -> Schema:
    """Return the newest schema with this CRC-64-AVRO fingerprint; raise KeyError if there is none."""
    for schema_id in sorted(SCHEMAS, reverse=True):
        if schema_by_id(schema_id).fingerprint == crc64:
            return schema_by_id(schema_id)
    raise KeyError(
        f"schema fingerprint {crc64.hex()} is unknown: it may come from a newer version of Regraft, or one before 0.2.0"
    )
