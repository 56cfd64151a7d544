"""Settings that all stages share for clocks, ports and logs: one value for all, and relations between stages."""

import io
import json
import sys
from pathlib import Path

import pytest
import structlog

from regraft.infra.process.log_stream import configure_logs
from regraft.infra.process.run_clock import RunClock
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.streaming.streaming_settings import EventBounds

FAST = {"run": {"clock_speed": 20.0, "clock_origin_ms": 1_000_000}}
ANY_TIME = {"streaming": {"future_ms_max": None}}


def _errors(flags: dict[str, dict[str, object]]) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    return caught.value.errors


def test_all_stages_have_the_clock_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is the wall clock; a child process finds the same clock in its environment."""
    settings = load_settings()
    assert settings.emulator.clock == settings.controller.clock == settings.run.clock == RunClock()
    fast = load_settings({**FAST, **ANY_TIME})
    for name, value in fast.to_environment().items():
        monkeypatch.setenv(name, value)
    child = load_settings()
    assert child.emulator.clock == child.controller.clock == RunClock(1_000_000, 20.0)


def test_a_fast_clock_needs_its_origin_and_no_check_against_kafkas_time() -> None:
    """Event times run away from Kafka's timestamps, so thousands of records would be refused."""
    (error,) = _errors({"run": {"clock_speed": 20.0}, **ANY_TIME})
    assert error.startswith("run: clock_speed is 20 without clock_origin_ms")
    (error,) = _errors(FAST)
    assert error.startswith("streaming.future_ms_max is 1000 at run.clock_speed 20: set it to none")
    assert "event times diverge from Kafka's" in error
    assert load_settings({**FAST, **ANY_TIME}).streaming.bounds == EventBounds()


def test_two_stages_cannot_share_a_metrics_port() -> None:
    """A port outside the valid range is refused, too."""
    flags = {name: {"metrics_port": 9101} for name in ("streaming", "controller")}
    assert _errors(flags) == ("controller.metrics_port is 9101, that of streaming: give each stage its own port",)
    (error,) = _errors({"emulator": {"metrics_port": 70_000}})
    assert error == "emulator: metrics_port is 70000: must be from 1 to 65535, or none to open no port"


def test_an_unknown_log_level_is_reported() -> None:
    """The message lists the levels."""
    (error,) = _errors({"run": {"log_level": "loud"}})
    assert error == "run: log_level is 'loud': must be one of debug, info, warning, error, critical"


@pytest.mark.parametrize("level", ["info", "warning"])
def test_logs_are_one_json_object_a_line_with_bound_values(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """This is so without a terminal; lines below the level are left out, and a traceback stays within its line."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    configure_logs(level)
    log = structlog.get_logger()
    structlog.contextvars.clear_contextvars()
    with structlog.contextvars.bound_contextvars(plan="plan-4", epoch=4):
        log.info("quiet\nline")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            log.exception("failed")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == (["quiet\nline", "failed"] if level == "info" else ["failed"])
    assert all((line["plan"], line["epoch"]) == ("plan-4", 4) for line in lines)
    assert all({"level", "timestamp"} <= line.keys() for line in lines)
    assert "ValueError: two\nlines" in lines[-1]["exception"]


def test_the_example_file_of_a_run_has_no_clock_of_a_stage(tmp_path: Path) -> None:
    """The clock belongs to the run; with separate ones two stages could disagree."""
    file = tmp_path / "own.toml"
    file.write_text("[controller]\nclock = 3\n")
    with pytest.raises(SettingsError, match=r"controller\.clock is not a setting"):
        load_settings(file=file)
