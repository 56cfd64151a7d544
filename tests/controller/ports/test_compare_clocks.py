"""The controller's clock against the times of records: a late read is no wrong clock, a wrong clock is found."""

import pytest

from regraft.controller.ports.compare_clocks import OFF_MS_MAX, SAMPLES, ClockCheck, clock_text


@pytest.mark.parametrize("ahead_ms", [60_000, -60_000, 3_600_000, -3_600_000])
def test_a_wrong_clock_is_found_however_late_single_records_are_read(ahead_ms: int) -> None:
    """The record that was read soonest after it was written shows it best."""
    check = ClockCheck()
    for number in range(SAMPLES):
        assert check.ahead_ms == 0
        check.add(1_000_000, 1_000_000 + ahead_ms + 5 * number)
    assert check.ahead_ms == ahead_ms


def test_a_right_clock_is_not_doubted_for_a_pause_of_the_reader() -> None:
    """After it, old records are read late, and soon new ones in time."""
    check = ClockCheck()
    for late_ms in (60_000, 50_000, 40_000, 30_000, 20_000, 15_000, 12_000, 20):
        check.add(1_000_000, 1_000_000 + late_ms)
    assert check.ahead_ms == 0
    for _ in range(SAMPLES):
        check.add(1_000_000, 1_000_000 - OFF_MS_MAX)
    assert check.ahead_ms == 0


def test_the_offset_is_described() -> None:
    """In seconds, with its direction."""
    assert clock_text(60_000) == "its clock is 60 s ahead of the times of records in Kafka"
    assert clock_text(-3_600_000) == "its clock is 3,600 s behind the times of records in Kafka"
