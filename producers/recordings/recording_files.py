"""Find the files of a recording and read each one's description of itself.

Blocks and messages belong to :mod:`producers.recordings.read_recording`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.infra.process.stack_error import CallError
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.read_inventory import parse_inventory
from regraft.producers.recordings.recording_format import (
    FORMAT_VERSION,
    INFO_KEY,
    INVENTORY_KEY,
    Container,
    FormError,
    decode_header,
)
from regraft.schemas.parse_text import parse_json
from regraft.schemas.registry import Schema

PART_PATTERN = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})$")
SUFFIX = ".avro"
HEADER_STEP_BYTES = 1 << 16
HEADER_BYTES_MAX = 1 << 28  # The inventory of 1000 brokers takes 20 MB.


class RecordingError(CallError):
    """Reports why a file cannot be read as a recording, and what to do."""


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """A recording's description of itself; ``settings`` are those of the recorded run.

    ``recording`` is the same for all parts of one recording, ``part`` counts from 1, ``previous`` is the file before.
    """

    recording: str
    namespace: str
    created_ms: int
    version: str
    commit: str
    topics: tuple[str, ...]
    settings: dict[str, Any]
    inventory: Inventory
    part: int
    previous: str


@dataclass(frozen=True, slots=True)
class RecordingPart:
    """One file of a recording: its header, and the schemas of the branches of its values."""

    path: Path
    info: RecordingInfo
    container: Container
    schemas: tuple[Schema | None, ...]


def files_of(path: Path) -> list[Path]:
    """Return the files that a path stands for: a folder's, a first part's with those that follow, or one part's."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == SUFFIX)
        if not files:
            raise RecordingError(f"{path} contains no recording: no file there ends in {SUFFIX}.")
        return files
    if not path.is_file():
        raise RecordingError(f"{path} does not exist: check its name.")
    if PART_PATTERN.match(path.stem):
        return [path]
    return [path, *following_parts(path)]


def following_parts(path: Path) -> list[Path]:
    """Return the later parts next to a recording's first one, in order."""
    siblings = path.parent.iterdir()
    matches = [(PART_PATTERN.match(file.stem), file) for file in siblings if file.suffix == path.suffix]
    return sorted(file for match, file in matches if match is not None and match["stem"] == path.stem)


def open_part(path: Path) -> RecordingPart:
    """Return a file's description of itself. Raises RecordingError."""
    container = _read_header(path)
    if INFO_KEY not in container.meta:
        raise RecordingError(f"{path} is an Avro file but not a recording of Regraft: it has no {INFO_KEY}.")
    try:
        info = parse_json(container.meta[INFO_KEY])
        if info["format"] > FORMAT_VERSION:
            raise RecordingError(
                f"{path} was written by a newer version of Regraft ({info['version']}): its format is "
                f"{info['format']}, and this version reads formats up to {FORMAT_VERSION}: upgrade Regraft."
            )
        return RecordingPart(path, _info_of(info, container, path), container, container.schemas)
    except FormError as refusal:
        raise RecordingError(f"{path} cannot be read: {refusal}") from refusal
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as refusal:
        raise RecordingError(
            f"{path} is damaged: its description cannot be read ({type(refusal).__name__}: {refusal})."
        ) from refusal


def _info_of(info: dict[str, Any], container: Container, path: Path) -> RecordingInfo:
    return RecordingInfo(
        recording=str(info["recording"]),
        namespace=str(info["namespace"]),
        created_ms=int(info["created_ms"]),
        version=str(info["version"]),
        commit=str(info["commit"]),
        topics=tuple(info["topics"]),
        settings={str(name): dict(table) for name, table in info["settings"].items()},
        inventory=parse_inventory(container.meta[INVENTORY_KEY].decode(), f"the inventory in {path}"),
        part=int(info["part"]),
        previous=str(info["previous"]),
    )


def _read_header(path: Path) -> Container:
    """Return a file's header, reading as much as necessary."""
    try:
        with path.open("rb") as file:
            start = b""
            step = HEADER_STEP_BYTES
            while len(start) < HEADER_BYTES_MAX:
                more = file.read(step)
                start += more
                try:
                    return decode_header(start)
                except EOFError:
                    if not more:
                        break
                    step *= 2
    except FormError as refusal:
        raise RecordingError(f"{path} is not a recording: {refusal}.") from refusal
    except OSError as error:
        raise RecordingError(f"{path} cannot be read ({error.strerror}).") from error
    raise RecordingError(f"{path} ends within its header after {len(start)} bytes: nothing was recorded in it.")
