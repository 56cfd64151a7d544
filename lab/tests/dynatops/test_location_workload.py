"""Check-ins on a grid: visits, their statistics, and users' interests while they and their friends move."""

from pathlib import Path

import numpy as np
import pytest

from regraft.api.emulation import Checkins, checkins_of, load_checkins
from regraft_lab.dynatops.location_grid import RTT_MS_PER_KM, LocationGrid, draw_rtt_ms
from regraft_lab.dynatops.location_workload import (
    CheckinFileError,
    LocationWorkload,
    Visits,
    draw_friends,
    draw_location_changes,
    merge_visits,
    read_checkins,
    visit_statistics,
)

SEED = 5
LINE = LocationGrid(0.0, 1.0, 0.0, 4.0, rows=1, columns=4)


def _on_a_line(rows: list[tuple[int, float, int]]) -> Checkins:
    """Return check-ins (user, hour, cell 0 to 3)."""
    users, hours, cells = (np.array(column) for column in zip(*rows, strict=True))
    return checkins_of(users, (hours * 60).astype(np.int64), np.full(len(users), 0.5), cells + 0.5, 30)


@pytest.fixture(scope="module")
def shipped() -> Visits:
    checkins = load_checkins()
    return merge_visits(checkins, LocationGrid.around(checkins.lat, checkins.lon))


@pytest.fixture(scope="module")
def shipped_workload(shipped: Visits) -> LocationWorkload:
    return draw_location_changes(shipped, np.random.default_rng(SEED))


def test_cells_are_counted_from_the_south_west() -> None:
    """Rows go north; the area's borders belong to it."""
    grid = LocationGrid(40.0, 42.0, -74.0, -71.0, rows=2, columns=3)
    lat, lon = np.array([40.0, 40.9, 41.1, 42.0, 39.0]), np.array([-74.0, -72.5, -71.1, -71.0, -75.0])
    assert grid.cells(lat, lon).tolist() == [0, 1, 5, 5, 0]
    assert grid.cell_count == 6
    with pytest.raises(ValueError, match="area"):
        LocationGrid(40.0, 40.0, -74.0, -71.0)


def test_a_degree_of_latitude_is_111_km() -> None:
    """And a degree of longitude at 60 degrees is half of that."""
    grid = LocationGrid(59.0, 61.0, 10.0, 12.0, rows=2, columns=2)
    distances = grid.distances_km(np.arange(4))
    assert distances[0, 2] == pytest.approx(111.2, rel=0.001)
    assert distances[0, 1] == pytest.approx(55.6, rel=0.001)
    assert distances[0, 3] == pytest.approx(np.hypot(111.2, 55.6), rel=0.001)
    assert not distances.diagonal().any()
    own = grid.access_distances_km(np.arange(4)).diagonal()
    assert own == pytest.approx(np.full(4, 0.5214 * np.sqrt(111.2 * 55.6)), rel=0.001)


def test_round_trip_times_are_proportional_to_distances_in_the_mean() -> None:
    """Symmetric, 0 to itself, within half of the mean, unbiased within 5 standard errors."""
    distances = LocationGrid(40.4, 41.0, -74.3, -73.7).distances_km(np.arange(400))
    rtt_ms = draw_rtt_ms(distances, np.random.default_rng(SEED))
    assert (rtt_ms == rtt_ms.T).all()
    assert not rtt_ms.diagonal().any()
    factors = rtt_ms[distances > 0] / (distances[distances > 0] * RTT_MS_PER_KM)
    assert 0.5 <= factors.min() <= factors.max() <= 1.5
    assert factors.mean() == pytest.approx(1.0, abs=5 / np.sqrt(12 * 400 * 399 / 2))


def test_successive_checkins_in_one_cell_are_one_visit() -> None:
    """It lasts until the user checks in elsewhere; a later return is another visit (Zhao13, section 6.1.1)."""
    checkins = _on_a_line([(0, 0, 1), (0, 5, 1), (1, 6, 1), (0, 10, 2), (0, 34, 1), (0, 300, 1), (0, 301, 3)])
    visits = merge_visits(checkins, LINE)
    assert visits.users.tolist() == [0, 0, 0, 0, 1]
    assert visits.cells.tolist() == [1, 2, 1, 3, 1]
    assert visits.times_h.tolist() == [0, 10, 34, 301, 6]
    assert visits.linger_h.tolist() == [10, 24, 267]


def test_statistics_of_a_small_example() -> None:
    """User 0 comes twice to cell 1 and once to cells 2 and 3, user 1 once to cell 1."""
    checkins = _on_a_line([(0, 0, 1), (0, 5, 1), (1, 6, 1), (0, 10, 2), (0, 34, 1), (0, 300, 1), (0, 301, 3)])
    found = visit_statistics(merge_visits(checkins, LINE))
    assert (found.checkins, found.users, found.visits, found.pairs, found.cells_used) == (7, 2, 5, 4, 3)
    assert found.single_share == 3 / 4
    assert found.under_day_share == pytest.approx(1 / 3)
    assert found.over_week_share == pytest.approx(1 / 3)


def test_shipped_checkins_move_as_in_the_paper_if_possible(shipped: Visits) -> None:
    """More than half of the visits last less than a day, 5 % more than a week; the paper has 1/2 and 10 %.

    More pairs occur only once than the paper's third, because users are sparse: 16 check-ins each, not 75.
    """
    found = visit_statistics(shipped)
    assert found.cells == 1_200
    assert 400 < found.cells_used < 700
    assert found.checkins > found.visits > found.pairs > found.users
    assert 0.5 < found.under_day_share < 0.75
    assert 0.03 < found.over_week_share < 0.12
    assert 0.4 < found.single_share < 0.75


def test_users_want_their_cell_and_those_of_their_friends() -> None:
    """Two users with one friend each, so that each follows the other."""
    checkins = _on_a_line([(0, 1, 1), (1, 2, 3), (0, 5, 2), (1, 6, 2), (0, 8, 3), (1, 9, 3)])
    workload = draw_location_changes(merge_visits(checkins, LINE), np.random.default_rng(SEED), friend_count=1)
    assert workload.cells.tolist() == [1, 2, 3]  # topics 0, 1, 2: cell 0 is never visited
    assert [topics.tolist() for topics in workload.changes.initial_topics()] == [[0, 2], [0, 2]]
    found = [(time_h, user, topics.tolist()) for time_h, user, topics in workload.changes.changes()]
    assert found == [
        (5, 0, [1, 2]),
        (5, 1, [1, 2]),
        (6, 0, [1]),
        (6, 1, [1]),
        (8, 0, [1, 2]),
        (8, 1, [1, 2]),
        (9, 0, [2]),
        (9, 1, [2]),
    ]
    assert workload.own_first.tolist() == [0, 2]
    assert workload.own_after.tolist() == [1, 2, 1, 1, 2, 1, 2, 2]


def test_a_move_that_changes_no_set_is_still_a_move() -> None:
    """User 0 moves to its friend's cell, and another friend to the one that it left."""
    rows = [(0, 0, 1), (1, 0, 2), (2, 0, 1), (0, 5, 2)]
    workload = draw_location_changes(merge_visits(_on_a_line(rows), LINE), np.random.default_rng(SEED), 2)
    assert [(user, topics.tolist()) for _, user, topics in workload.changes.changes()] == [(0, [0, 1])]
    assert workload.own_after.tolist() == [1]


def test_wanted_cells_are_those_where_user_and_friends_were_last_seen(
    shipped: Visits, shipped_workload: LocationWorkload
) -> None:
    """Checked by walking through the visits of some users."""
    workload = shipped_workload
    rng = np.random.default_rng(SEED)

    def cell_of(user: int, time_h: float) -> int:
        own = np.flatnonzero(shipped.users == user)
        before = own[shipped.times_h[own] <= time_h]
        return int(shipped.cells[before[-1] if len(before) else own[0]])

    changes = workload.changes
    for change in rng.choice(changes.change_count, 200, replace=False).tolist():
        user, time_h = int(changes.users[change]), float(changes.times_h[change])
        watched = [user, *workload.friends[user].tolist()]
        wanted = {cell_of(one, time_h) for one in watched}
        found = changes.new_wanted[changes.new_starts[change] : changes.new_starts[change + 1]]
        assert set(workload.cells[found].tolist()) == wanted
        assert workload.cells[workload.own_after[change]] == cell_of(user, time_h)


def test_own_cells_change_with_each_visit_but_the_first(shipped: Visits, shipped_workload: LocationWorkload) -> None:
    """A user whose home follows its position has this many handovers; visits in the same minute are one."""
    workload = shipped_workload
    before = np.where(
        workload.changes.previous < 0,
        workload.own_first[workload.changes.users],
        workload.own_after[workload.changes.previous],
    )
    key = shipped.users * 1e6 + np.round(shipped.times_h * 60)
    assert (before != workload.own_after).sum() <= len(shipped.users) - shipped.user_count
    assert (before != workload.own_after).sum() >= len(np.unique(key)) - shipped.user_count - 50


def test_friends_are_different_others_and_equally_likely() -> None:
    """No user follows itself or another user twice; counts of followers are within 5 standard deviations."""
    friends = draw_friends(2_000, 4, np.random.default_rng(SEED))
    ordered = np.sort(np.column_stack([np.arange(2_000), friends]), axis=1)
    assert (np.diff(ordered) > 0).all()
    small = draw_friends(6, 4, np.random.default_rng(SEED))
    assert all(len({user, *row}) == 5 for user, row in enumerate(small.tolist()))
    followers = np.bincount(friends.ravel(), minlength=2_000)
    assert followers.max() < 4 + 5 * np.sqrt(4) + 3
    halves = np.bincount(friends.ravel() // 1_000)
    assert halves[0] == pytest.approx(4_000, abs=5 * np.sqrt(2_000))


def test_too_few_users_cannot_follow_four_others() -> None:
    """The message says what to do."""
    visits = merge_visits(_on_a_line([(0, 1, 1), (1, 2, 3)]), LINE)
    with pytest.raises(ValueError, match="take more check-ins"):
        draw_location_changes(visits, np.random.default_rng(SEED))


def test_recorded_checkins_are_read_with_their_own_clock(tmp_path: Path) -> None:
    """Users get numbers from 0, time starts with the first check-in, positions are those of the venues."""
    (tmp_path / "checkins").mkdir()
    np.savez(
        tmp_path / "checkins" / "foursquare_nyc.npz",
        user=np.array([7, 3, 7], dtype=np.int32),
        venue=np.array([2, 1, 1], dtype=np.int32),
        minute=np.array([100, 160, 2_000], dtype=np.int32),
        venue_lat=np.array([40.7, 40.8]),
        venue_lon=np.array([-74.0, -73.9]),
    )
    found = read_checkins(tmp_path)
    assert found.user.tolist() == [1, 0, 1]
    assert found.minute.tolist() == [0, 60, 1_900]
    assert found.lat.tolist() == [40.8, 40.7, 40.7]
    assert found.days == 2
    np.savez(
        tmp_path / "checkins" / "gowalla_nyc.npz",
        user=np.array([5], dtype=np.int32),
        time=np.array([1_280_000_000]),
        lat=np.array([40.7]),
        lon=np.array([-74.0]),
    )
    assert read_checkins(tmp_path, "gowalla_nyc").minute.tolist() == [0]


def test_without_a_folder_the_shipped_cut_is_read() -> None:
    """Quick runs need no other data."""
    assert read_checkins(None) is load_checkins()


def test_missing_checkins_report_what_the_option_must_name(tmp_path: Path) -> None:
    """And for an unknown source the message lists the known ones."""
    with pytest.raises(CheckinFileError, match="--data must name the folder with checkins/foursquare_nyc"):
        read_checkins(tmp_path)
    with pytest.raises(ValueError, match="gowalla_nyc"):
        read_checkins(tmp_path, "twitter")
