"""Settings of the streaming stage, and the mark on its checkpoint."""

import dataclasses
import json
from pathlib import Path

import pytest

from regraft.infra.kafka.kafka_access import KafkaSecurity
from regraft.streaming.keep_dead_letters import Position, read_position
from regraft.streaming.open_checkpoint import MARKER, CheckpointMismatchError, open_checkpoint, shards_before_start
from regraft.streaming.streaming_settings import EventBounds, StreamingSettings
from regraft.streaming.submit_job import parse_settings
from tests.full_disk import small_disk


def good(tmp_path: Path) -> StreamingSettings:
    return StreamingSettings("127.0.0.1:9092", tmp_path / "checkpoint")


def test_the_defaults_are_sound(tmp_path: Path) -> None:
    """The default settings have no error."""
    assert good(tmp_path).errors() == []


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    """Each wrong value gives one sentence with the value and what to do."""
    wrong = dataclasses.replace(
        good(tmp_path), bootstrap=" ", window_ms=2_500, grace_ms=-1, records_per_trigger_max=1, past_ms_max=10
    )
    errors = wrong.errors()
    assert len(errors) == 5
    assert any("window_ms is 2500" in error and "multiple of 1000" in error for error in errors)


def test_no_clock_may_be_ahead_by_as_much_as_the_grace(tmp_path: Path) -> None:
    """Half the grace is left for the others in any case; None allows any time."""
    assert good(tmp_path).bounds == EventBounds(1_000, 3_600_000)
    short = dataclasses.replace(good(tmp_path), grace_ms=500, future_ms_max=60_000)
    assert short.bounds.future_ms_max == 250
    assert dataclasses.replace(short, future_ms_max=None).bounds.future_ms_max is None


def test_a_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    """A different query version or window length is reported in one sentence before Spark misreads the state."""
    settings = good(tmp_path)
    open_checkpoint(settings)
    open_checkpoint(settings)
    with pytest.raises(CheckpointMismatchError, match="with window_ms 5000 instead of 10000: choose another"):
        open_checkpoint(dataclasses.replace(settings, window_ms=10_000))
    marker = settings.checkpoint_directory / MARKER
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"query_version": 99}))
    with pytest.raises(CheckpointMismatchError, match="query_version 99 instead of"):
        open_checkpoint(settings)


def test_a_full_disk_marks_nothing(tmp_path: Path) -> None:
    """A checkpoint directory that could not be marked for lack of room still counts as new once there is room."""
    with small_disk(tmp_path / "disk") as disk:
        settings = StreamingSettings("127.0.0.1:9092", disk.directory / "checkpoint")
        settings.checkpoint_directory.mkdir()
        disk.fill()
        with pytest.raises(OSError, match="No space left on device"):
            open_checkpoint(settings)
        disk.make_room()
        open_checkpoint(settings)
        assert [path.name for path in settings.checkpoint_directory.iterdir()] == [MARKER]


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """Files of unknown origin are not treated as a checkpoint, nor is an unreadable mark."""
    settings = good(tmp_path)
    settings.checkpoint_directory.mkdir()
    (settings.checkpoint_directory / "holiday.jpg").touch()
    with pytest.raises(CheckpointMismatchError, match="owner of the checkpoint"):
        open_checkpoint(settings)
    for text in ("{", "[]", "5", "null"):
        (settings.checkpoint_directory / MARKER).write_text(text)
        with pytest.raises(CheckpointMismatchError, match="not readable"):
            open_checkpoint(settings)
        assert shards_before_start(settings) > 0


def test_the_command_line_gives_the_same_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The arguments of spark-submit are checked like any other settings."""
    given = parse_settings(["--bootstrap", "127.0.0.1:9092", "--checkpoint", str(tmp_path / "checkpoint")])
    assert given == good(tmp_path)
    replay = parse_settings(["--bootstrap", "h:1", "--checkpoint", "c", "--any-time"])
    assert (replay.future_ms_max, replay.past_ms_max) == (None, None)
    (tmp_path / "password").write_text("hunter2")
    login = ["--kafka-tls", "--kafka-mechanism", "PLAIN", "--kafka-username", "me"]
    login += ["--kafka-password-file", str(tmp_path / "password")]
    assert parse_settings(["--bootstrap", "h:1", "--checkpoint", "c", *login]).security == KafkaSecurity(
        tls=True, mechanism="PLAIN", username="me", password_file=tmp_path / "password"
    )
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--bootstrap", "h:1", "--checkpoint", "c", "--window-ms", "7", *login[1:]])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert "window_ms is 7" in printed
    assert "security: mechanism is PLAIN without tls" in printed


@pytest.mark.parametrize(
    "text", ["{", "[]", "5", "{}", '{"next_offsets": {"t": 5}}', '{"next_offsets": {"t": {"x": 1}}}']
)
def test_a_damaged_position_is_nowhere(tmp_path: Path, text: str) -> None:
    """The dead letters are then kept again, and none is lost."""
    settings = good(tmp_path)
    settings.position_file.parent.mkdir(parents=True)
    settings.position_file.write_text(text)
    assert read_position(settings) == Position(None, 0)
