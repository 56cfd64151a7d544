"""How a demo ends if one of its services ends first."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from regraft.cli import app
from regraft.demo import run_demo
from regraft.infra.local.service import ServiceEvent, ServiceEventKind
from regraft.infra.local.supervise import Supervisor
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.recordings.write_recording import RecordingFileError
from regraft.run_records.collect_run import StoredRun
from regraft.settings.read_sources import Flags
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.stages.observe_run import RunObserver
from regraft.stages.show_run import RunScreen

GIVES_UP_AT_TICK = 3


class FailingServices:
    """Takes the place of a supervisor of which one service ends for good."""

    memory_bytes_max: dict[str, int] = {}  # noqa: RUF012
    memory_total_bytes_max = 0

    def __init__(self, fails: str, events: list[ServiceEvent]) -> None:
        self.stopped: list[str] = []
        self.ticks = 0
        self._fails = fails
        self._events = events

    def wait_end(self, name: str, timeout_s: float) -> int | None:
        """Wait for the emulator."""
        self.ticks += 1
        if self.ticks == GIVES_UP_AT_TICK:
            self._events.append(ServiceEvent(0.0, self._fails, ServiceEventKind.GAVE_UP, 7, 5, 1))
        return 1 if self.ticks >= GIVES_UP_AT_TICK and self._fails == run_demo.EMULATOR else None

    def stop_service(self, name: str) -> None:
        """Stop a service."""
        self.stopped.append(name)


@pytest.mark.parametrize(("fails", "reads"), [("valkey", 1), ("emulator", 1), ("kafka", 0)])
def test_a_service_that_ends_for_good_ends_the_demo_with_the_results_so_far(
    fails: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is Kafka, no stored results can be read."""
    read: list[str] = []

    def read_stored_run(*_: object) -> StoredRun:
        read.append("all")
        return StoredRun()

    monkeypatch.setattr(run_demo, "read_stored_run", read_stored_run)
    loaded = load_settings({"run": {"directory": str(tmp_path)}, "demo": {"brokers": 4}}, None)
    settings = replace(loaded, demo=replace(loaded.demo, drain_s_max=0.1))
    events: list[ServiceEvent] = []
    services = FailingServices(fails, events)
    inventory = place_overlay(4, 3, random.Random(1))
    run = run_demo._DemoRun(settings, inventory, cast(Supervisor, services), events, None)
    with RunScreen(Console(file=StringIO()), quiet=True) as screen:
        record = run.run(screen)
    assert services.ticks == GIVES_UP_AT_TICK
    assert services.stopped == [run_demo.CONTROLLER, run_demo.EMULATOR, run_demo.STREAMING]
    assert len(read) == reads
    (reason,) = record.given_up
    assert reason.startswith(f"{fails} exited with code 1 and will not be restarted: see {tmp_path}")


@pytest.mark.parametrize(("followed_at_s", "ends_at_s"), [(5.0, 20.0), (25.5, 25.5), (1e9, 80.0)])
def test_traffic_continues_until_a_plan_has_followed_the_shift_within_a_bound(
    followed_at_s: float, ends_at_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine too busy for a plan in the set time gets more, at most a minute; a fast one gets none."""
    services = FailingServices("nothing", [])
    clock = SimpleNamespace(time=lambda: 1_000.0 + services.ticks * run_demo.TICK_S, sleep=lambda _: None)
    monkeypatch.setattr(run_demo, "time", clock)
    monkeypatch.setattr(RunObserver, "has_followed_shift", property(lambda _: clock.time() - 1_000.0 >= followed_at_s))
    settings = load_settings({"run": {"directory": str(tmp_path)}, "demo": {"running_s": 20.0, "brokers": 4}}, None)
    run = run_demo._DemoRun(settings, place_overlay(4, 3, random.Random(1)), cast(Supervisor, services), [], None)
    while run._is_to_run():
        services.ticks += 1
    assert clock.time() - 1_000.0 == ends_at_s


@pytest.mark.parametrize("name", ["rec", "rec.json", "there.avro"])
def test_a_recording_that_cannot_be_written_stops_the_demo_before_it_starts(name: str, tmp_path: Path) -> None:
    """Not after its minutes: the error names the file, and nothing was started."""
    (tmp_path / "there.avro").touch()
    options = run_demo.DemoOptions(tmp_path / "out", recording=tmp_path / name)
    with pytest.raises(RecordingFileError, match=name):
        run_demo.run_demo({}, None, options, Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_a_rate_reaches_the_publishers_and_chord_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--rate` is a setting of publishers; the scenario chord has none, and says so before it starts."""
    taken: list[float] = []

    def take(flags: Flags, file: Path | None, *_: object) -> None:
        taken.append(load_settings(flags, file).emulator.workload.notifications_per_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_demo, "_run", take)
    command = ["demo", "--out", str(tmp_path / "out"), "--rate", "2.5"]
    assert CliRunner().invoke(app, command).exit_code == 130
    assert taken == [2.5]
    refused = CliRunner().invoke(app, [*command, "--scenario", "chord"])
    assert isinstance(refused.exception, SettingsError)
    assert "replays check-ins at a fixed rate" in str(refused.exception)


def test_nothing_for_drawing_is_loaded_before_the_servers_start() -> None:
    """The report is drawn at the end."""
    check = "import sys, regraft.demo.run_demo; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
