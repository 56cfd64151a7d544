"""Describe a recording for people and programs.

Every record is visited once, none is decoded.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from regraft.infra.process.show_progress import show_progress
from regraft.producers.recordings.read_recording import Recording, open_recording
from regraft.producers.recordings.reading_bounds import DEFAULT_BOUNDS, ReadingBounds
from regraft.producers.recordings.recorded_members import added_members
from regraft.producers.recordings.recording_format import FormError, read_varint
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, header
from regraft.schemas.texts import iso_text, one_line
from regraft.schemas.topics import TELEMETRY

BROKERS_NAMED_MAX = 8
RECORDS_PER_PASS = 50_000


def describe_recording(path: Path, bounds: ReadingBounds = DEFAULT_BOUNDS) -> dict[str, Any]:
    """Return a recording's contents. Raises RecordingError if it is not a recording."""
    recording = open_recording(path, bounds)
    info = recording.info
    topics, brokers, epochs, unread = _count_records(recording)
    strangers = sorted(set(brokers) - set(info.inventory.brokers))
    if strangers:
        strangers = sorted({*strangers} - {member.broker for member in added_members(recording)})
    if strangers:
        named = ", ".join(strangers[:BROKERS_NAMED_MAX])
        recording.warnings.append(
            f"{len(strangers)} brokers are not in its inventory ({named}): was it recorded with the directory of a "
            "different run?"
        )
    span_ms = recording.telemetry_span_ms
    return {
        "file": str(path),
        "parts": [str(file) for file in recording.files],
        "bytes": sum(file.stat().st_size for file in recording.files),
        "recording": info.recording,
        "namespace": info.namespace,
        "version": info.version,
        "commit": info.commit,
        "created": iso_text(info.created_ms),
        "planner": info.settings.get("controller", {}).get("planner"),
        "records": sum(topics.values()),
        "topics": dict(sorted(topics.items())),
        "topics_recorded": list(info.topics),
        "first": None if span_ms is None else iso_text(span_ms[0]),
        "last": None if span_ms is None else iso_text(span_ms[1]),
        "span_s": 0.0 if span_ms is None else (span_ms[1] - span_ms[0]) / 1000,
        "brokers": len(brokers),
        "brokers_in_inventory": len(info.inventory.brokers),
        "epochs": sorted(epochs),
        "unread": dict(unread),
        "warnings": recording.warnings,
    }


def recording_table(described: dict[str, Any]) -> Table:
    """Return the description as a table."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in described.items():
        if name in ("warnings", "recording", "topics_recorded"):
            continue
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{topic} {count}" for topic, count in value.items()) or "none"
        elif isinstance(value, list):
            shown = _span_text(value) if name == "epochs" else ", ".join(map(str, value))
        table.add_row(name.replace("_", " "), Text(one_line(str(shown))))
    return table


def _count_records(
    recording: Recording,
) -> tuple[Counter[str], Counter[str], set[int], Counter[str]]:
    """Return the counts of records by topic and of batches by broker, the epochs, and unreadable values by topic."""
    topics, brokers, unread = Counter[str](), Counter[str](), Counter[str]()
    epochs: set[int] = set()
    with show_progress("Reading", recording.count) as advance:
        for number, message in enumerate(recording.messages(), start=1):
            topics[message.topic] += 1
            if message.topic == TELEMETRY.suffix and message.value is not None:
                brokers[message.key.decode(errors="replace")] += 1
                try:
                    epochs.add(_epoch_of(message.value))
                except (FormError, IndexError):
                    unread[message.topic] += 1
            if number % RECORDS_PER_PASS == 0:
                advance(f"{len(brokers)} brokers", number)
    return topics, brokers, epochs, unread


def _epoch_of(value: bytes) -> int:
    """Return the epoch of a batch: its fifth field, after broker, boot, sequence and time.

    Raises FormError or IndexError if it is none.
    """
    if not value.startswith(header(TELEMETRY.record)):
        raise FormError("it is not telemetry")
    size, at = read_varint(value, CONFLUENT_HEADER_BYTES)
    at += size
    for _ in range(4):
        epoch, at = read_varint(value, at)
    return epoch


def _span_text(numbers: list[int]) -> str:
    return "none" if not numbers else f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
