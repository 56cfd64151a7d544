"""All wrong settings of the check-in workload are reported at once, each with its value and its limit."""

from dataclasses import replace

import pytest

from regraft.producers.workloads.checkin_settings import CheckinSettings


def test_defaults_are_faultless() -> None:
    """The workload runs with its defaults."""
    assert CheckinSettings().errors() == []
    assert CheckinSettings(linger_days=None).errors() == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"user_count": 0}, "user_count is 0: must be from 1 to 1225"),
        ({"user_count": 1_226}, "user_count is 1226: must be from 1 to 1225"),
        ({"user_count": 4}, "friend_count is 4: must be from 0 to 3, since user_count is 4"),
        ({"friend_count": -1}, "friend_count is -1: must be from 0 to 1224"),
        ({"days_per_s": 0.0}, "days_per_s is 0: must be above 0 and at most 56"),
        ({"days_per_s": float("nan")}, "days_per_s is nan: must be above 0"),
        ({"grid_rows": 100}, "grid_rows is 100: must be from 1 to 99"),
        ({"grid_columns": 0}, "grid_columns is 0: must be from 1 to 99"),
        ({"notifications_per_s": 0.0}, "notifications_per_s is 0: must be above 0"),
        ({"linger_days": 0.0}, "linger_days is 0: must be above 0, or none"),
        ({"connect_spread_s": -1.0}, "connect_spread_s is -1: must be at least 0"),
    ],
)
def test_each_error_names_value_and_limit(change: dict[str, object], error: str) -> None:
    """Each wrong setting gives one sentence."""
    errors = replace(CheckinSettings(), **change).errors()  # type: ignore[arg-type]
    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_all_errors_are_listed_at_once() -> None:
    """One failed start reveals all mistakes."""
    assert len(CheckinSettings(user_count=0, grid_rows=0, grid_columns=0).errors()) == 3
