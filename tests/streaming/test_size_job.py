"""The size of the job by the number of brokers, and that a checkpoint keeps its number of shards."""

import dataclasses
import json
from pathlib import Path

import pytest

from regraft.streaming import open_checkpoint as module
from regraft.streaming.open_checkpoint import MARKER, CheckpointMismatchError, open_checkpoint, shards_before_start
from regraft.streaming.size_job import executor_heap_mb, heap_mb, shards_of, sized, telemetry_partitions_of
from regraft.streaming.streaming_settings import StreamingSettings


@pytest.mark.parametrize(
    ("brokers", "shards", "partitions"),
    [(0, 2, 4), (40, 2, 4), (400, 2, 4), (1_000, 2, 4), (1_001, 3, 4), (2_000, 4, 4), (2_001, 5, 5), (4_000, 8, 8)],
)
def test_shards_and_partitions_follow_the_number_of_brokers(brokers: int, shards: int, partitions: int) -> None:
    """One shard per 500 brokers, with at least two cores, and topics of four partitions."""
    assert shards_of(brokers) == shards
    assert telemetry_partitions_of(brokers) == partitions


@pytest.mark.parametrize(
    ("records", "shards", "cores", "heap"),
    [
        (20_000, 2, 0, 1_024),
        (120_000, 2, 0, 1_224),  # One executor may have all shards.
        (120_000, 2, 1, 1_024),
        (480_000, 8, 2, 1_224),
        (480_000, 8, 16, heap_mb(480_000)),  # More cores than shards hold no more than all shards.
    ],
)
def test_an_executor_has_heap_for_its_shards(records: int, shards: int, cores: int, heap: int) -> None:
    """It is as much as local mode has for that many records."""
    assert executor_heap_mb(records, shards, cores) == heap


def test_configured_values_override_the_rule(tmp_path: Path) -> None:
    """This holds for shards and for reading tasks, independently."""
    job = StreamingSettings("none:1", tmp_path)
    assert sized(job, 4_000) == dataclasses.replace(job, shards=8, read_partitions_min=8)
    set_ones = dataclasses.replace(job, shards=3, read_partitions_min=5)
    assert sized(set_ones, 4_000) == sized(set_ones, 4_000, shards_kept=3) == set_ones


def test_a_checkpoint_keeps_its_shards_as_the_fleet_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the number is not configured, it stays that of the start; a different configured one is reported."""
    fleet = range(1_200)
    monkeypatch.setattr(module, "known_brokers", lambda _: fleet)
    job = StreamingSettings("none:1", tmp_path / "checkpoint")
    assert shards_before_start(job) == 3
    assert open_checkpoint(job).shards == 3
    fleet = range(2_600)
    assert shards_before_start(job) == 3
    assert open_checkpoint(job).shards == 3
    assert open_checkpoint(job).read_partitions_min == 3
    with pytest.raises(CheckpointMismatchError, match="with shards 3 instead of 6: choose another"):
        open_checkpoint(dataclasses.replace(job, shards=6))
    fresh = dataclasses.replace(job, checkpoint_directory=tmp_path / "other")
    assert open_checkpoint(fresh).shards == 6
    assert json.loads((fresh.checkpoint_directory / MARKER).read_text())["shards"] == 6


@pytest.mark.parametrize("shards", ["null", '"2"', "0", "true", "1.5"])
def test_a_mark_with_invalid_shards_is_refused(tmp_path: Path, shards: str) -> None:
    """The query does not start with an invalid number."""
    job = StreamingSettings("none:1", tmp_path / "checkpoint")
    open_checkpoint(job)
    mark = job.checkpoint_directory / MARKER
    mark.write_text(mark.read_text().replace('"shards": 2', f'"shards": {shards}'))
    assert shards_before_start(job) == 2
    with pytest.raises(CheckpointMismatchError, match="shards"):
        open_checkpoint(job)
