"""Movements, grids and users' positions."""

from pathlib import Path

import numpy as np
import pytest

from regraft_lab.dynatops.location_setting import (
    CHANGES_PER_UPDATE,
    PAPER_DAYS,
    Placement,
    draw_location_setting,
    recorded_movements,
)
from regraft_lab.dynatops.location_workload import CheckinFileError
from regraft_lab.dynatops.user_model import UserHomes


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a year of check-ins of three users, most of them from day 200 on."""
    folder = tmp_path_factory.mktemp("data") / "checkins"
    folder.mkdir()
    rng = np.random.default_rng(1)
    day = np.concatenate([rng.integers(0, 360, 100), rng.integers(200, 200 + PAPER_DAYS, 900), [0, 359]])
    second = day * 86_400 + rng.integers(0, 86_400, len(day))
    np.savez(
        folder / "gowalla_nyc.npz",
        user=rng.integers(7, 10, len(day)),
        time=second,
        lat=rng.uniform(40, 41, len(day)),
        lon=rng.uniform(-74, -73, len(day)),
    )
    return folder.parent


def test_the_busiest_three_months_are_taken(recording: Path) -> None:
    """Days 200 to 291 of the year, renumbered from day 0."""
    found = recorded_movements(recording)
    assert found.days == PAPER_DAYS
    assert 0 <= found.minute.min() <= found.minute.max() < PAPER_DAYS * 1440
    assert 900 <= len(found.user) < 960
    assert found.user_count == 3


def test_the_shipped_cut_is_shorter_and_kept_whole(tmp_path: Path) -> None:
    """A folder without check-ins is reported."""
    assert recorded_movements(None).days < PAPER_DAYS
    with pytest.raises(CheckinFileError, match="--data must name the folder"):
        recorded_movements(tmp_path)


def test_located_users_are_near_and_placed_ones_farther() -> None:
    """The broker of a user's own cell is near, random ones are farthest, and asking nearby keeps users nearer."""
    setting = draw_location_setting(1, 0, 8, 8)
    workload, times_h = setting.workload, [200.0, 700.0, 1200.0]
    located = UserHomes(workload.own_first, workload.own_after)
    users = workload.changes.user_count
    static = UserHomes(np.random.default_rng(1).integers(setting.broker_count, size=users))
    near, home = (setting.place(Placement(asks, 0.0, 10))[0] for asks in ("near", "home"))
    access_ms = [setting.mean_access_ms(homes, times_h) for homes in (located, near, home, static)]
    assert access_ms == sorted(access_ms)
    assert access_ms[0] < access_ms[1] < access_ms[3]


def test_brokers_exchange_after_a_number_of_changes() -> None:
    """20 changes for each broker between two exchanges, on any grid."""
    for side in (4, 8):
        setting = draw_location_setting(1, 0, side, side)
        per_broker_h = setting.workload.changes.change_count / setting.broker_count / setting.duration_h
        assert setting.update_h * per_broker_h == pytest.approx(CHANGES_PER_UPDATE)


def test_draws_differ_in_friends_and_rings_alone() -> None:
    """Movements are recorded; the same draw gives the same setting."""
    one, again, other = (draw_location_setting(3, draw, 4, 4) for draw in (0, 0, 1))
    assert one.configuration == again.configuration
    assert one.configuration != other.configuration
    assert (one.workload.cells == other.workload.cells).all()
    assert (one.workload.friends != other.workload.friends).any()
