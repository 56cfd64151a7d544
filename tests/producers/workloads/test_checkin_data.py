"""The shipped check-ins are as SOURCES.md describes, and a grid of quantiles assigns them to cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.workloads.checkin_data import cell_name, cell_numbers, checkins_of, load_checkins
from regraft.producers.workloads.checkin_settings import USERS_SHIPPED, CheckinSettings
from tests.producers.cut_data import CHECKIN_GAP_S_MIN, CHECKINS_PER_USER_MIN

DATA = load_checkins()
DAYS_SHIPPED = 56


def test_shipped_checkins_are_complete() -> None:
    """1,225 users with several check-ins each, a quarter of an hour apart, in 56 days and in New York City."""
    assert (DATA.user_count, DATA.days, len(DATA.user)) == (USERS_SHIPPED, DAYS_SHIPPED, 19_981)
    assert np.bincount(DATA.user).min() == CHECKINS_PER_USER_MIN
    assert np.all(np.diff(DATA.minute) >= 0)
    assert 0 <= DATA.minute[0] <= DATA.minute[-1] < DATA.minutes
    assert 40.48 < DATA.lat.min() < DATA.lat.max() < 40.92
    assert -74.26 < DATA.lon.min() < DATA.lon.max() < -73.70
    for user in range(USERS_SHIPPED):
        assert np.diff(DATA.minute[DATA.user == user]).min() >= CHECKIN_GAP_S_MIN // 60


def test_positions_are_no_finer_than_a_street_corner() -> None:
    """Positions of people are known to a thousandth of a degree."""
    for degrees in (DATA.lat, DATA.lon):
        assert np.abs(degrees * 1_000 - np.round(degrees * 1_000)).max() < 1e-6


def test_shared_data_cannot_be_changed() -> None:
    """The data is read once, and writing to it is refused."""
    assert load_checkins() is DATA
    with pytest.raises(ValueError, match="read-only"):
        DATA.minute[0] = 1


def test_default_grid_has_a_topic_for_nearly_every_cell() -> None:
    """Of 120 cells one is empty; a row has about a twelfth of the check-ins and a column about a tenth."""
    settings = CheckinSettings()
    cells = cell_numbers(DATA, settings.grid_rows, settings.grid_columns)
    assert len(set(cells.tolist())) == 119
    for parts, place in ((settings.grid_rows, cells // settings.grid_columns), (10, cells % settings.grid_columns)):
        shares = np.bincount(place) / len(cells)
        assert len(shares) == parts
        assert np.all(np.abs(shares - 1 / parts) < 0.15 / parts)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_rows_go_north_and_columns_east(places: list[tuple[int, int]], rows: int, columns: int) -> None:
    """A place further north is in no lower row, one further east in no lower column, and equal places share a cell."""
    lat, lon = (np.array(axis, dtype=np.float64) for axis in zip(*places, strict=True))
    numbers = np.arange(len(places))
    cells = cell_numbers(checkins_of(numbers, numbers, lat, lon, 1), rows, columns)
    assert cells.min() >= 0
    assert cells.max() < rows * columns
    for degrees, place in ((lat, cells // columns), (lon, cells % columns)):
        order = np.argsort(degrees)
        steps = np.diff(place[order])
        assert np.all(steps >= 0)
        assert np.all(steps[np.diff(degrees[order]) == 0] == 0)


def test_a_topic_names_row_and_column() -> None:
    """Cell 82 of a grid with ten columns is in row 8, column 2."""
    assert cell_name(82, 10) == "cell-08-02"
