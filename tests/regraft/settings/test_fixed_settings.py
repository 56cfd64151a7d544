import pytest

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
from regraft.settings.moved_settings import FIXED, fixed_text
from regraft.settings.run_settings import SettingsError, load_settings


def test_the_table_of_constants_has_their_values() -> None:
    """What an error says of a former setting is what the code does."""
    assert fixed_values(load_settings()) == FIXED


@pytest.mark.parametrize("name", sorted(FIXED))
def test_a_former_setting_is_refused_with_the_value_that_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even at that value: it would have no effect."""
    monkeypatch.setenv(f"REGRAFT_{name.replace('.', '__').upper()}", str(FIXED[name]) or "none")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.errors == (f"{name} is {fixed_text(name)}: remove it",)


def test_the_sentence_has_the_unit() -> None:
    """It follows from the name."""
    assert fixed_text("controller.tick_ms") == "fixed at 100 ms since 0.3.0"
    assert fixed_text("controller.members.return_pause_ms_max") == "fixed at 600,000 ms since 0.3.0"
    assert fixed_text("emulator.checkins.notifications_per_s") == "fixed at 150 since 0.3.0"
    assert fixed_text("controller.proposals_max") == "fixed at 16 since 0.3.0"
    assert fixed_text("planners.swap_links_ci.order") == "fixed at gain since 0.3.0"
    assert fixed_text("planners.relocate_publisher_grape.link_delays") == "fixed at false since 0.3.0"
    assert fixed_text("controller.planner") == ""


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
    changed = {name for name, value in fixed_values(replayed).items() if value != FIXED[name]}
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
    assert {name for name in FIXED if fast[name] != usual[name]} == {*WALL_TIMES, *SPEED_TIMES}
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
