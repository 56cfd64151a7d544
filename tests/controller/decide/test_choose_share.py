"""The share of telemetry follows the overload, within its bounds, and does not change with every window."""

from __future__ import annotations

from collections import deque

import pytest

from regraft.controller.decide.choose_share import CALM_FACTOR_MAX, WindowLoad, choose_share
from regraft.controller.settings.controller_settings import SamplingSettings
from regraft.schemas.sample_request import SampleRequest

WINDOW_MS = 5_000
SETTINGS = SamplingSettings(share_min=1 / 64, delay_windows_max=2.0, calm_windows=6)
NOTHING = SampleRequest(0, 0, "")


def loads(*delays_s: float, deliveries: int = 100, power: int = 0, first: int = 0) -> list[WindowLoad]:
    starts_ms = [WINDOW_MS * (first + place) for place in range(len(delays_s))]
    return [
        WindowLoad(start_ms, start_ms + WINDOW_MS, int(1000 * delay_s), deliveries, power)
        for start_ms, delay_s in zip(starts_ms, delays_s, strict=True)
    ]


@pytest.mark.parametrize(
    ("delays_s", "power"),
    [
        ((11, 12, 13), 1),
        ((11, 11, 11), 1),
        ((11, 17, 23), 2),  # Processing 5 s takes 11 s: half would still be too much.
        ((11, 60, 99), 4),
        ((10, 12, 13), None),  # Not all delays exceed two windows.
        ((60, 50, 40), None),  # It catches up by itself, as after an outage.
        ((11, 12), None),
        ((2, 2, 2, 2, 2, 2, 2), None),
    ],
)
def test_the_share_falls_when_windows_are_late_and_do_not_catch_up(
    delays_s: tuple[float, ...], power: int | None
) -> None:
    """Three windows in a row are each delayed by more than two windows, the last by at least as much as the first."""
    found = choose_share(NOTHING, loads(*delays_s), SETTINGS, 99)
    assert (found and found.power) == power
    if found:
        assert (found.since_ms, found.is_raised, found.calm_windows) == (99, False, 6)
        assert f"{delays_s[-1]:.1f} s after their end" in found.reason


def test_the_share_falls_by_the_excess_of_cells() -> None:
    """Seven times too many: an eighth at once, relative to the windows' share, but never below the minimum."""
    settings = SamplingSettings(share_min=1 / 64, deliveries_max=1_000)
    for present, deliveries, power in ((0, 7_000, 3), (2, 7_000, 5), (0, 1_001, 1), (0, 999_000, 6)):
        found = choose_share(NOTHING, loads(2, 2, 2, deliveries=deliveries, power=present), settings, 99)
        assert found is not None
        assert found.power == power
    assert choose_share(NOTHING, loads(2, 2, 2, deliveries=1_000), settings, 99) is None


@pytest.mark.parametrize("far", [3, 4, 5, 7, 100])
def test_a_window_from_the_future_is_no_measure_of_those_before_it(far: int) -> None:
    """It is assembled first, so the next ones end before it; three in order are needed after it."""
    (ahead,) = loads(11, first=far)
    after = loads(11, 12, 13, first=3)
    for count in range(4):
        found = choose_share(NOTHING, [*loads(2, 2), ahead, *after[:count]], SETTINGS, 99)
        assert (found is not None) is (count == 3)


def test_windows_from_before_the_last_request_are_ignored() -> None:
    """They are late whatever brokers report now."""
    asked = SampleRequest(1, 3 * WINDOW_MS, "late", calm_windows=6)
    before = loads(20, 21, 22)
    assert choose_share(asked, before, SETTINGS, 99) is None
    assert choose_share(asked, before + loads(23, 24, first=3), SETTINGS, 99) is None
    found = choose_share(asked, before + loads(23, 24, 25, first=3), SETTINGS, 99)
    assert found is not None
    assert found.power == 2


def test_the_share_rises_after_a_calm_and_later_after_each_failed_increase() -> None:
    """Each failed increase doubles the wait; it is back to the minimum once the larger share has held for that long."""
    asked = SampleRequest(3, 0, "late", calm_windows=6)
    assert choose_share(asked, loads(*[2] * 5), SETTINGS, 99) is None
    assert choose_share(asked, loads(2, 2, 6, 2, 2, 2), SETTINGS, 99) is None
    up = choose_share(asked, loads(*[2] * 6), SETTINGS, 0)
    assert up is not None
    assert (up.power, up.is_raised, up.calm_windows) == (2, True, 6)
    down = choose_share(up, loads(11, 12, 13, power=2), SETTINGS, 0)
    assert down is not None
    assert (down.power, down.calm_windows) == (3, 12)
    assert choose_share(down, loads(*[2] * 6), SETTINGS, 0) is None
    again = choose_share(down, loads(*[2] * 12), SETTINGS, 0)
    assert again is not None
    assert (again.power, again.calm_windows) == (2, 12)
    held = choose_share(again, loads(*[2] * 12), SETTINGS, 0)
    assert held is not None
    assert (held.power, held.calm_windows) == (1, 6)


def test_the_share_does_not_rise_if_cells_would_be_too_many() -> None:
    """Twice the share brings at most twice as many cells."""
    settings = SamplingSettings(share_min=1 / 64, deliveries_max=1_000, calm_windows=6)
    asked = SampleRequest(3, 0, "late", calm_windows=6)
    assert choose_share(asked, loads(*[2] * 6, deliveries=501, power=3), settings, 99) is None
    assert choose_share(asked, loads(*[2] * 6, deliveries=500, power=3), settings, 99) is not None


def test_a_request_that_the_settings_no_longer_allow_is_revoked() -> None:
    """By default the settings allow no sampling: all telemetry is requested, whatever was requested before."""
    found = choose_share(SampleRequest(3, 0, "late"), [], SamplingSettings(), 99)
    assert found is not None
    assert (found.power, found.is_raised) == (0, True)
    assert choose_share(NOTHING, loads(90, 91, 92), SamplingSettings(), 99) is None


@pytest.mark.parametrize("capacity_power", range(1, 7))
def test_the_share_settles_below_the_overload(capacity_power: int) -> None:
    """A job that can handle a share of 1 / 2^power: found within some windows, then retried ever more rarely."""
    asked, seen, delay_s, changes = NOTHING, deque[WindowLoad](maxlen=1_000), 2.0, []
    for number in range(600):
        delay_s = max(delay_s - 4, 2.0) if asked.power >= capacity_power else delay_s + 2
        seen.append(WindowLoad(number * 5_000, number * 5_000 + 5_000, int(1000 * delay_s), 100, asked.power))
        found = choose_share(asked, list(seen), SETTINGS, (number + 1) * 5_000)
        if found is not None:
            changes.append(number)
            asked = found
            assert asked.calm_windows <= CALM_FACTOR_MAX * SETTINGS.calm_windows
    assert asked.power in (capacity_power, capacity_power - 1)
    first_half = sum(number < 300 for number in changes)
    assert len(changes) - first_half <= first_half
    assert len([number for number in changes if number >= 300]) <= 6
