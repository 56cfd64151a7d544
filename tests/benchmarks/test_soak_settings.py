"""The settings that a soak gives the stages are consistent at every speed, and its findings are judged correctly."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import SoakRun, figures
from benchmarks.soak_chart import draw_soak
from benchmarks.soak_settings import SoakPlan, kafka_properties, soak_flags, soak_topics
from regraft.schemas.topics import TOPICS
from regraft.settings.run_settings import load_settings
from tests.schemas.shown_views import view_of

PORTS = {"emulator": 9101, "streaming": 9102, "controller": 9103}
LEDGER = {"published": 10, "expected": 20, "delivered": 20, "final": True}
WELL = view_of(plans_completed=3, windows_closed=40)


@pytest.mark.parametrize("speed", [1.0, 5.0, 20.0, 60.0, 200.0])
def test_settings_are_consistent_at_every_speed(speed: float) -> None:
    """No stage finds an error in its settings or in those of others; the run acts, on the same clock everywhere."""
    plan = SoakPlan(10.0, speed, 20, 1, 0.5)
    settings = load_settings(soak_flags(plan, 1_800_000_000_000, PORTS))
    assert not settings.controller.dry_run
    assert settings.emulator.clock.speed == settings.controller.clock.speed == speed
    assert settings.run.clock.wall_s(settings.streaming.window_ms) >= 1.5
    assert settings.run.clock.wall_s(settings.controller.transition.resend_ms) >= 2.0 * min(speed, 1.0)


def test_retention_is_shorter_than_the_run() -> None:
    """Every topic with a retention time exceeds it several times in a run; compacted topics stay compacted."""
    plan = SoakPlan(10.0, 40.0, 20, 1, 0.5)
    assert plan.wall_s == 900
    topics = soak_topics(plan)
    assert len(topics) == len(TOPICS)
    for topic, usual in zip(topics, TOPICS, strict=True):
        assert topic.retention_ms == (None if usual.compacted else 150_000)
    assert int(kafka_properties(plan)["log.roll.ms"]) < 150_000


def run_of(growing: bool = False, **changes: Any) -> SoakRun:
    rows = [(hour / 50, {"memory: emulator/python": 1e8 + (1e6 * hour if growing else 0.0)}) for hour in range(100)]
    run = SoakRun(SoakPlan(2.0, 20.0, 20, 1, 0.5), rows, emulator={"ledger": LEDGER}, view=WELL)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"emulator": {"ledger": LEDGER | {"lost": 2}}}, "2 notifications lost"),
        ({"emulator": {"ledger": LEDGER | {"repeated": 1}}}, "1 notifications repeated"),
        ({"emulator": {"ledger": LEDGER | {"final": False}}}, "the ledger is not final"),
        ({"view": view_of()}, "no plan was executed"),
        ({"restarts": {"streaming": 1}}, "streaming was restarted 1 times"),
        ({"unhealthy": {"controller: silent": 3}}, "unhealthy 3 times: controller: silent"),
        ({"growing": True}, "memory: emulator/python grew by "),
    ],
)
def test_each_finding_is_a_error(changes: dict[str, Any], error: str) -> None:
    """And nothing else is."""
    run = run_of(**changes)
    (found,) = run.errors(run.growths())
    assert found.startswith(error)


def test_a_flat_and_clean_run_has_no_error(tmp_path: Path) -> None:
    """Its figures cover every series, and its chart is an SVG."""
    run = run_of()
    growths = run.growths()
    assert run.errors(growths) == []
    found = {(figure.name, figure.where.get("series")): figure.value for figure in figures(run, growths)}
    assert found["mean", "memory: emulator/python"] == 1e8
    assert found["ledger_delivered", None] == 20
    assert found["plans_completed", None] == 3
    draw_soak(tmp_path / "soak.svg", run.rows, (), 0.8)
    assert "<svg" in (tmp_path / "soak.svg").read_text()
