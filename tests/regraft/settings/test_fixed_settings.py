import json

from regraft.settings.fixed_settings import (
    COUNTS,
    SPEED_TIMES,
    WALL_TIMES,
    WINDOW_MS,
    WINDOW_TIMES,
    at_speed,
    fixed_values,
    with_recorded,
)
from regraft.settings.run_settings import load_settings


def test_constants_are_the_plain_fields_that_nobody_can_set() -> None:
    """What a setting, its text or the composition fills is none: a recording must not replace a server or the seed."""
    settings = load_settings({"emulator": {"random_outages": "every 30", "workload": {"bursts": "every 30"}}})
    constants = fixed_values(settings)
    assert constants["controller.assembly.rows_wait_ms"] == 10_000
    assert constants["planners.pack_drop.single_max"] == 8
    assert constants["emulator.checkins.friend_count"] == 4
    assert constants["demo.regime_change_share"] == 0.5
    assert json.loads(json.dumps(constants)) == constants
    elsewhere = load_settings(
        {"kafka": {"bootstrap": "k:1", "namespace": "n"}, "run": {"seed": 7, "directory": "d", "sample_share": 0.5}}
        | {"redis": {"url": "redis://r"}, "alerts": {"metrics_port": 9_199}}
    )
    assert fixed_values(elsewhere) == constants == fixed_values(load_settings())


def test_a_recording_with_other_values_is_decided_with_them() -> None:
    """Both as settings of an earlier version and as constants of a later one."""
    settings = load_settings()
    earlier = {
        "controller": {"proposals_max": 5, "decision": {"tabu_lifetimes": 1.0}},
        "planners": {"pack_drop": {"single_max": 2}},
    }
    replayed = with_recorded(settings, earlier)
    assert (replayed.controller.proposals_max, replayed.controller.decision.tabu_lifetimes) == (5, 1.0)
    assert replayed.controller.planners["pack_drop"] != settings.controller.planners["pack_drop"]
    changed = {name for name, value in fixed_values(replayed).items() if value != fixed_values(settings)[name]}
    assert changed == {
        "controller.proposals_max",
        "controller.decision.tabu_lifetimes",
        "planners.pack_drop.single_max",
    }
    assert with_recorded(settings, replayed.to_record()) == replayed
    assert with_recorded(settings, settings.to_record()) == settings


def test_waits_for_other_processes_grow_with_the_clock() -> None:
    """A faster clock of the run does not make Kafka or a process faster."""
    usual, fast = fixed_values(load_settings()), fixed_values(at_speed(load_settings(), 20.0))
    assert {name for name in usual if fast[name] != usual[name]} == {*WALL_TIMES, *SPEED_TIMES}
    assert (fast["emulator.flush_ms"], fast["emulator.settle_s"]) == (1_000.0, 600.0)
    assert all(fast[name] == 20 * usual[name] for name in WALL_TIMES)
    assert fixed_values(at_speed(load_settings(), 0.5)) == usual


def test_times_that_span_windows_grow_with_them() -> None:
    """They stay as they are with shorter ones; a recording with another value keeps it."""
    usual = fixed_values(load_settings())
    longer = load_settings({"streaming": {"window_ms": 4 * WINDOW_MS}})
    assert {name: value for name, value in fixed_values(longer).items() if value != usual[name]} == {
        name: 4 * usual[name] for name in WINDOW_TIMES
    }
    shorter = fixed_values(load_settings({"streaming": {"window_ms": 2_000, "grace_ms": 1_000}}))
    assert {name: value for name, value in shorter.items() if value != usual[name]} == dict.fromkeys(COUNTS, 2)
    assert load_settings().streaming.window_ms == WINDOW_MS
    assert with_recorded(longer, {"controller": {"lookback_ms": 300_000}}).controller.lookback_ms == 300_000
