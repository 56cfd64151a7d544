"""The clock of a run: the wall clock at speed 1, otherwise faster since a common origin."""

import time

import pytest

from regraft.infra.process.run_clock import RunClock


def test_at_speed_1_the_clock_is_the_wall_clock() -> None:
    """Whatever the origin: a run at normal speed is unchanged."""
    for clock in (RunClock(), RunClock(origin_ms=5)):
        before_ms = time.time_ns() // 1_000_000
        assert before_ms <= clock.now_ms() <= time.time_ns() // 1_000_000
        assert clock.wall_ms(123) == 123
        assert clock.wall_s(250) == 0.25


def test_processes_with_the_same_origin_agree() -> None:
    """A fast clock has advanced by its speed times the wall time since the origin, and converts back to wall time."""
    origin_ms = time.time_ns() // 1_000_000 - 10_000
    clock = RunClock(origin_ms, 20.0)
    now_ms, wall_ms = clock.now_ms(), time.time_ns() // 1_000_000
    assert now_ms - origin_ms >= 200_000
    assert now_ms <= RunClock(origin_ms, 20.0).now_ms() <= origin_ms + 20 * (time.time_ns() // 1_000_000 - origin_ms)
    assert clock.wall_ms(now_ms) <= wall_ms
    assert clock.wall_ms(origin_ms + 40_000) == origin_ms + 2_000
    assert clock.wall_s(1_000) == pytest.approx(0.05)


def test_a_fast_clock_needs_an_origin_and_a_sensible_speed() -> None:
    """Otherwise each process would start at another time."""
    assert RunClock().errors() == RunClock(1_000, 20.0).errors() == []
    (error,) = RunClock(0, 20.0).errors()
    assert error.startswith("clock_speed is 20 without clock_origin_ms: ")
    assert RunClock(1, 0.0).errors() == ["clock_speed is 0: must be above 0 and at most 1000; 1 is the wall clock"]
    assert RunClock(-1, 1.0).errors() == ["clock_origin_ms is -1: ms since 1970, or 0 for none"]
