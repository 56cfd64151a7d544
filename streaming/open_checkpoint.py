"""Check whose checkpoint a directory holds, before Spark touches it.

Spark silently accepts a checkpoint of another window length and misreads its state, so a small file next to the
checkpoint names the query version and the settings that the state depends on.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from regraft.infra.local.hadoop_path import HadoopPath
from regraft.schemas.parse_text import parse_json_object
from regraft.schemas.status_file import replace_file
from regraft.streaming.size_job import sized
from regraft.streaming.source_topics import known_brokers
from regraft.streaming.streaming_settings import QUERY_VERSION, CheckpointPath, StreamingSettings

MARKER = "query.json"
ARCHIVED = "before"


class CheckpointMismatchError(RuntimeError):
    """The directory holds the checkpoint of another query; the message names it and says what to do."""


def open_checkpoint(settings: StreamingSettings) -> StreamingSettings:
    """Mark a new checkpoint directory as this query's, or check an existing one; return the settings to run with.

    If the settings leave ``shards`` to the rule, a checkpoint's number is used, and a new one keeps the rule's. Raises
    CheckpointMismatchError for another version or other settings, and OSError if the directory cannot be written.
    """
    directory, marker = settings.checkpoint, settings.checkpoint / MARKER
    _fetch_members(settings)
    brokers = len(known_brokers(settings))
    if not marker.exists():
        drafts = f".{MARKER}."  # left by a process that was killed while writing the marker
        if directory.is_dir() and not all(each.name.startswith(drafts) for each in directory.iterdir()):
            raise CheckpointMismatchError(
                f"{directory} is not empty and has no {MARKER}, so the owner of the checkpoint is unknown: "
                "choose another checkpoint directory or empty it"
            )
        settings = sized(settings, brokers)
        replace_file(marker, json.dumps(_identity(settings), indent=1, sort_keys=True) + "\n")
        return settings
    try:
        stored = parse_json_object(marker.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointMismatchError(f"{marker} is not readable ({error}): empty {directory}") from error
    settings = sized(settings, brokers, _kept_shards(stored))
    wanted = _identity(settings)
    differences = [
        f"{name} {stored.get(name)!r} instead of {value!r}"
        for name, value in wanted.items()
        if stored.get(name) != value
    ]
    if differences:
        raise CheckpointMismatchError(
            f"the checkpoint in {directory} was written with {', '.join(differences)}: choose another checkpoint "
            "directory, or empty this one to read the telemetry again from the start of its retention"
        )
    return settings


def _fetch_members(settings: StreamingSettings) -> None:
    """Copy the brokers known to a checkpoint at a URI to this machine, wherever the job ran before."""
    copy = settings.members_copy
    if copy is None:
        return
    if copy.exists():
        replace_file(settings.members_file, copy.read_text())
    else:
        settings.members_file.unlink(missing_ok=True)


def shards_before_start(settings: StreamingSettings) -> int:
    """Return the number of shards that a job will have; a checkpoint at a URI is ignored, because it needs Spark.

    Raises InventoryError.
    """
    kept = None
    if isinstance(settings.checkpoint, Path):
        with suppress(OSError, ValueError):
            kept = _kept_shards(parse_json_object((settings.checkpoint / MARKER).read_text(encoding="utf-8")))
    return sized(settings, len(known_brokers(settings)), kept).shards


def _kept_shards(stored: dict[str, Any]) -> int | None:
    kept = stored.get("shards")
    return kept if type(kept) is int and kept > 0 else None


def _identity(settings: StreamingSettings) -> dict[str, Any]:
    return {
        "query_version": QUERY_VERSION,
        "window_ms": settings.window_ms,
        "topic": settings.source_topic,
        "shards": settings.shards,
    }


def archive_checkpoint(settings: StreamingSettings) -> CheckpointPath:
    """Rename the checkpoint, so that the next query starts over; return its path. An earlier archive is deleted."""
    directory = settings.query_directory
    name = f"{directory.name}.{ARCHIVED}"
    if isinstance(directory, HadoopPath):
        directory.with_name(name).delete_tree()
        if directory.exists():
            directory.rename(directory.with_name(name))
    else:
        shutil.rmtree(directory.with_name(name), ignore_errors=True)
        if directory.exists():
            directory.rename(directory.with_name(name))
    settings.position_file.unlink(missing_ok=True)
    return directory.with_name(name)
