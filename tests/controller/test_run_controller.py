"""The controller's process: its health can be queried from its start on, and a hanging loop is visible from outside."""

import socket
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import regraft.controller.run_controller
from regraft.controller.control_ports import ControlPorts, DeposedError, ViewSink
from regraft.controller.ports.leadership import HeldTerm
from regraft.controller.ports.memory_ports import MemoryPlans, MemoryPorts, MemoryRecords
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.run_controller import run_controller
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import MetricsPortError
from regraft.schemas.command import CommandPhase, CommandResult, Outcome
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.live_view import LiveView, LiveViewError, decode_view
from regraft.schemas.plan import Plan
from tests.controller.scripted_overlay import settings_of
from tests.controller.test_control_loop import INVENTORY
from tests.wait_until import PATIENCE_S, wait_until


class HangingPlans(MemoryPlans):
    """A plan store that does not return while ``may_return`` is cleared."""

    may_return = threading.Event()

    def load(self) -> list[Plan] | None:
        assert self.may_return.wait(PATIENCE_S)
        return super().load()


class MemoryLinks:
    """The controller's links in memory."""

    results: MemoryRecords[CommandResult] = MemoryRecords()
    ahead_ms = 0

    def __init__(self, settings: ControllerSettings, now_ms: int, plans: object) -> None:
        self._ports = MemoryPorts(plans=HangingPlans(), results=self.results).ports

    def ports(self, views: tuple[ViewSink, ...]) -> ControlPorts:
        return replace(self._ports, views=views)

    def show(self, metrics: LoopMetrics) -> None:
        pass

    def errors(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass


class OnlyCandidate:
    """A candidate that leads while ``is_chosen``."""

    is_chosen = True
    objection = ""
    yielded: ClassVar[list[str]] = []
    newest = LeaderTerm(6, "another", 0)

    def __init__(
        self, kafka: KafkaAccess, namespace: str, name: str, session_ms: int, agent_of: Mapping[str, str], *more: object
    ) -> None:
        self._name = name

    def poll(self) -> None:
        pass

    def check(self) -> None:
        if not self.is_chosen:
            raise DeposedError("another one is chosen")

    def take_over(self, now_ms: int) -> HeldTerm:
        return HeldTerm(LeaderTerm(self.newest.term + 1, self._name, now_ms), None)  # type: ignore[arg-type]

    def yield_lead(self, because: str) -> None:
        self.yielded.append(because)

    def note_term(self, term: int) -> None:
        type(self).newest = LeaderTerm(term, "another", 0)

    def close(self) -> None:
        pass


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControllerSettings:
    monkeypatch.setattr(regraft.controller.run_controller, "KafkaLinks", MemoryLinks)
    monkeypatch.setattr(regraft.controller.run_controller, "SILENCE_S_MAX", PATIENCE_S)
    monkeypatch.setattr(regraft.controller.run_controller, "Leadership", OnlyCandidate)
    monkeypatch.setattr(OnlyCandidate, "is_chosen", True)
    monkeypatch.setattr(OnlyCandidate, "newest", LeaderTerm(6, "another", 0))
    INVENTORY.save(tmp_path / "inventory.json")
    return replace(
        settings_of(), inventory_path=tmp_path / "inventory.json", metrics_port=choose_ports(1)[0], tick_ms=10
    )


def _status(settings: ControllerSettings, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{settings.metrics_port}{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except urllib.error.URLError:
        return 0  # not listening yet


def shown(settings: ControllerSettings) -> LiveView | None:
    """Return the view in the status file, or None before the first."""
    assert settings.status_file is not None
    try:
        return decode_view(settings.status_file.read_bytes())
    except (OSError, LiveViewError):
        return None


def test_a_hanging_loop_is_unhealthy_until_it_continues(
    settings: ControllerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that does not return is detected although the loop cannot report it."""
    monkeypatch.setattr(regraft.controller.run_controller, "SILENCE_S_MAX", 0.5)
    HangingPlans.may_return.clear()
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop), daemon=True)
    thread.start()
    wait_until(lambda: _status(settings, "/health") == 503)
    assert _status(settings, "/ready") == 503
    HangingPlans.may_return.set()
    wait_until(lambda: _status(settings, "/health") == _status(settings, "/ready") == 200)
    stop.set()
    thread.join(PATIENCE_S)
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


def test_the_controller_uses_the_runs_clock(settings: ControllerSettings, tmp_path: Path) -> None:
    """With a fast clock the controller's status shows that clock's time."""
    HangingPlans.may_return.set()
    clock = RunClock(1_000_000_000, 2.0)
    sped_up = replace(settings, clock=clock, status_file=tmp_path / "controller.json", metrics_port=None)
    before_ms, stop = clock.now_ms(), threading.Event()
    thread = threading.Thread(target=run_controller, args=(sped_up, stop), daemon=True)
    thread.start()
    wait_until((tmp_path / "controller.json").exists)
    stop.set()
    thread.join(PATIENCE_S)
    shown = (tmp_path / "controller.json").read_text()
    started_ms = int(shown.split('"started_ms": ')[1].split(",")[0])
    assert before_ms <= started_ms <= clock.now_ms()


def test_a_deposed_leader_stands_by_and_leads_again(
    settings: ControllerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process; a standby is ready and healthy, and reports who leads."""
    HangingPlans.may_return.set()
    own = replace(settings, status_file=tmp_path / "controller.json", instance="this one", status_ms=20)
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(own, stop), daemon=True)
    thread.start()

    def shows(*wanted: object) -> bool:
        view = shown(own)
        return view is not None and (view.is_standby, view.leader, view.term) == wanted

    wait_until(lambda: shows(False, "this one", 7))
    monkeypatch.setattr(OnlyCandidate, "is_chosen", False)
    wait_until(lambda: shows(True, "another", 6))
    assert _status(own, "/ready") == _status(own, "/health") == 200
    monkeypatch.setattr(OnlyCandidate, "is_chosen", True)
    wait_until(lambda: shows(False, "this one", 7))
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_leader_that_brokers_do_not_obey_begins_a_higher_term(
    settings: ControllerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer of a broker that obeys a higher term ends the lower one, even if the term's record was lost."""
    HangingPlans.may_return.set()
    result = CommandResult("plan-9", CommandPhase.PREPARE, "b00", 9, Outcome.PREPARED, "", 0, 0, term=40)
    monkeypatch.setattr(MemoryLinks, "results", MemoryRecords(deque([result])))
    own, stop = replace(settings, status_file=tmp_path / "controller.json", status_ms=20), threading.Event()
    thread = threading.Thread(target=run_controller, args=(own, stop), daemon=True)
    thread.start()
    wait_until(lambda: (view := shown(own)) is not None and (view.is_standby, view.term) == (False, 41))
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_controller_that_must_not_lead_stands_by_and_says_why(
    settings: ControllerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its status, and by not being ready; it is healthy, as no restart gives it another inventory."""
    monkeypatch.setattr(OnlyCandidate, "is_chosen", False)
    monkeypatch.setattr(OnlyCandidate, "objection", "its inventory differs")
    own = replace(settings, status_file=tmp_path / "status.json")
    stop = threading.Event()
    running = threading.Thread(target=run_controller, args=(own, stop))
    running.start()
    try:
        wait_until(lambda: (view := shown(own)) is not None and view.standby_reason == "its inventory differs")
        assert (_status(settings, "/ready"), _status(settings, "/health")) == (503, 200)
        monkeypatch.setattr(OnlyCandidate, "objection", "")
        wait_until(lambda: _status(settings, "/ready") == 200)
    finally:
        stop.set()
        running.join(PATIENCE_S)


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_a_leader_with_a_wrong_clock_yields_once_and_else_leads_by_the_time_of_kafka(
    settings: ControllerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    """Here no other one takes over: it leads again, says so, and windows have the age that they have for others."""
    monkeypatch.setattr(OnlyCandidate, "yielded", [])
    monkeypatch.setattr(MemoryLinks, "ahead_ms", ahead_ms)
    own = replace(settings, status_file=tmp_path / "status.json")
    HangingPlans.may_return.set()
    stop = threading.Event()
    running = threading.Thread(target=run_controller, args=(own, stop))
    running.start()
    try:
        wait_until(lambda: (view := shown(own)) is not None and not view.is_standby)
        view = shown(own)
        assert view is not None
        apart_ms = time.time() * 1_000 - view.time_ms
        assert abs(apart_ms - ahead_ms) < abs(ahead_ms) / 2
        assert (_status(settings, "/ready"), _status(settings, "/health")) == (503, 200)
        (because,) = OnlyCandidate.yielded
        assert ("ahead of" if ahead_ms > 0 else "behind") in because
    finally:
        stop.set()
        running.join(PATIENCE_S)
