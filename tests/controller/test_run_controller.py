"""The controller's process: it can be asked how it is from its start on, and a loop that hangs is seen from outside."""

import socket
import threading
import urllib.error
import urllib.request
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

import controller.run_controller
from controller.control_ports import ControlPorts, ViewSink
from controller.controller_settings import ControllerSettings
from controller.ports.memory_ports import MemoryPlans, MemoryPorts, MemoryResults
from controller.report.loop_metrics import LoopMetrics
from controller.run_controller import ControllerDeposedError, run_controller
from infra.find_port import LOOPBACK, choose_ports
from infra.run_clock import RunClock
from infra.serve_metrics import MetricsPortError
from schemas.command import CommandPhase, CommandResult, Outcome
from schemas.plan import Plan
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY
from tests.wait_until import wait_until


class HangingPlans(MemoryPlans):
    """A plan store that does not return while ``may_return`` is cleared."""

    may_return = threading.Event()

    def load(self) -> list[Plan] | None:
        assert self.may_return.wait(60)
        return super().load()


class MemoryLinks:
    """The controller's links in memory."""

    results = MemoryResults()

    def __init__(self, settings: ControllerSettings, now_ms: int) -> None:
        self._ports = MemoryPorts(plans=HangingPlans(), results=self.results).ports

    def ports(self, views: tuple[ViewSink, ...]) -> ControlPorts:
        return replace(self._ports, views=views)

    def show(self, metrics: LoopMetrics) -> None:
        pass

    def faults(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControllerSettings:
    monkeypatch.setattr(controller.run_controller, "KafkaLinks", MemoryLinks)
    INVENTORY.save(tmp_path / "inventory.json")
    return replace(
        settings_of(), inventory_path=tmp_path / "inventory.json", metrics_port=choose_ports(1)[0], tick_ms=10
    )


def _status(settings: ControllerSettings, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{settings.metrics_port}{path}", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except urllib.error.URLError:
        return 0  # not listening yet


def test_a_loop_that_hangs_turns_health_bad_until_it_goes_on(
    settings: ControllerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that does not return is seen though the loop itself can say nothing."""
    monkeypatch.setattr(controller.run_controller, "SILENCE_S_MAX", 0.5)
    HangingPlans.may_return.clear()
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop), daemon=True)
    thread.start()
    wait_until(lambda: _status(settings, "/health") == 503)
    assert _status(settings, "/ready") == 503
    HangingPlans.may_return.set()
    wait_until(lambda: _status(settings, "/health") == _status(settings, "/ready") == 200)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert _status(settings, "/health") == 0


def test_a_taken_port_stops_the_start_with_a_sentence(settings: ControllerSettings) -> None:
    """Nothing has been opened by then."""
    assert settings.metrics_port is not None
    with socket.socket() as taken:
        taken.bind((LOOPBACK, settings.metrics_port))
        taken.listen()
        with pytest.raises(MetricsPortError, match=r"Metrics cannot be served on 127\.0\.0\.1:"):
            run_controller(settings, threading.Event())


def test_time_is_that_of_the_runs_clock(settings: ControllerSettings, tmp_path: Path) -> None:
    """The status of a controller on a fast clock shows the fast clock's time."""
    HangingPlans.may_return.set()
    clock = RunClock(1_000_000_000, 2.0)
    told = replace(settings, clock=clock, status_file=tmp_path / "controller.json", metrics_port=None)
    before_ms, stop = clock.now_ms(), threading.Event()
    thread = threading.Thread(target=run_controller, args=(told, stop), daemon=True)
    thread.start()
    wait_until((tmp_path / "controller.json").exists)
    stop.set()
    thread.join(60)
    shown = (tmp_path / "controller.json").read_text()
    started_ms = int(shown.split('"started_ms": ')[1].split(",")[0])
    assert before_ms <= started_ms <= clock.now_ms()


def test_a_deposed_controller_ends_and_says_who_leads(
    settings: ControllerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer of a broker that obeys a higher term ends it, with both terms."""
    HangingPlans.may_return.set()
    told = CommandResult("plan-9", CommandPhase.PREPARE, "b00", 9, Outcome.PREPARED, "", 0, 0, term=4)
    monkeypatch.setattr(MemoryLinks, "results", MemoryResults(deque([told])))
    with pytest.raises(ControllerDeposedError, match="obey a controller of term 4, this one has term 1"):
        run_controller(settings, threading.Event())
