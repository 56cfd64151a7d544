"""One stage in its process: the preparations, and what its errors become."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from regraft.schemas.codec import header
from regraft.schemas.registry import schema_by_id, schema_ids_of
from regraft.schemas.remote_registry import URL_VARIABLE
from regraft.settings.run_settings import Settings, load_settings
from regraft.stages import run_stage as module
from regraft.stages.run_stage import EXIT_FAILED, EXIT_OK, run_stage
from tests.schemas.fake_registry import FakeRegistry, running_registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    with running_registry() as running:
        monkeypatch.setenv(URL_VARIABLE, running.url)
        yield running


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


def settings(tmp_path: Path) -> Settings:
    return load_settings({"run": {"directory": tmp_path / "run"}, "kafka": {"namespace": "lab"}})


@pytest.mark.parametrize("stage", ["emulate", "stream", "control"])
def test_a_stage_writes_with_the_registrys_ids(
    tmp_path: Path, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """If a registry is configured, its ids are in force before a stage begins, under the run's own topics."""
    written: list[bytes] = []

    def begin(_settings: Settings, _stop: threading.Event) -> int:
        written.append(header("TelemetryBatch"))
        return EXIT_OK

    monkeypatch.setitem(module.STAGES, stage, begin)
    assert run_stage(stage, settings(tmp_path)) == EXIT_OK
    versions = schema_ids_of("TelemetryBatch")
    assert registry.subjects["lab.telemetry-value"] == ["TelemetryBatch"] * len(versions)
    newest = json.loads(schema_by_id(versions[-1]).text)
    [wire_id] = [given for text, given in registry.ids.items() if json.loads(text) == newest]
    assert written == [b"\x00" + wire_id.to_bytes(4, "big")]


def test_a_registry_that_refuses_stops_the_stage(
    tmp_path: Path, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record is written that readers with the registry could not read."""
    registry.refusal = "Schema being registered is incompatible"
    monkeypatch.setitem(module.STAGES, "emulate", lambda *_: pytest.fail("the stage was begun"))
    assert run_stage("emulate", settings(tmp_path)) == EXIT_FAILED


def test_a_stage_that_cannot_start_says_why_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody must read a log entry: the last line is the reason, without the system's error number."""

    def fail(*_: object) -> int:
        raise FileNotFoundError(2, "No such file or directory", "peers.json")

    monkeypatch.setitem(module.STAGES, "node", fail)
    assert run_stage("node", settings(tmp_path)) == EXIT_FAILED
    sentence = "peers.json cannot be used (No such file or directory): check its name and that its directory exists."
    assert capsys.readouterr().err.splitlines()[-1] == sentence


def test_a_run_directory_that_cannot_be_made_stops_the_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file where the run directory should be is named."""
    (tmp_path / "run").write_text("")
    assert run_stage("control", settings(tmp_path)) == EXIT_FAILED
    assert f"{tmp_path / 'run'} cannot be used (File exists): remove it" in capsys.readouterr().err


def test_a_full_disk_stops_the_stage_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write at the start is reported in one sentence and ends the stage with code 1."""

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device", "inventory.json")

    reasons: list[str] = []
    monkeypatch.setattr(module.log, "error", lambda _event, **fields: reasons.append(fields["reason"]), raising=False)
    monkeypatch.setitem(module.STAGES, "emulate", fail)
    assert run_stage("emulate", settings(tmp_path)) == EXIT_FAILED
    assert reasons == ["The disk of inventory.json is full: free some space and start again."]
