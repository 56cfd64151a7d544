"""A clock that is behind is found by the windows that have closed, and corrected by them."""

import pytest

from regraft.controller.windows.read_windows import MARKERS_MIN, ProvenTime
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.state import WindowClosed
from tests.controller.scripted_windows import marker_of
from tests.controller.test_membership import fleet_of

HOUR_MS = 3_600_000


def marker(start_ms: int) -> WindowClosed:
    return marker_of((), start_ms, ())


def test_a_single_window_in_the_future_proves_nothing() -> None:
    """It may be wrong itself; several in a row, each after the one before, cannot all be."""
    proven = ProvenTime()
    for start_ms in (HOUR_MS, 0, HOUR_MS, 2 * HOUR_MS, 5 * HOUR_MS, HOUR_MS):
        proven.note(marker(start_ms), 1_000)
        assert proven.behind_ms == 0
    for number in range(MARKERS_MIN):
        proven.note(marker(2 * HOUR_MS + 1_000 * number), 1_000)
    assert proven.behind_ms == 2 * HOUR_MS + 1_000 * (MARKERS_MIN - 1)
    proven.note(marker(2 * HOUR_MS + 4_000), 2 * HOUR_MS + 6_000)
    assert proven.behind_ms == 0  # The clock was set.


@pytest.mark.parametrize("behind_ms", [60_000, HOUR_MS])
def test_a_controller_whose_clock_is_behind_still_notices_a_death(behind_ms: int) -> None:
    """It says so once, and repairs the overlay by the time of the windows."""
    fleet = fleet_of()
    fleet.run_windows(6)
    right = fleet.loop.step
    fleet.loop.step = lambda now_ms: right(now_ms - behind_ms)  # type: ignore[method-assign]
    fleet.dead.add("b01")
    fleet.run_windows(20)
    assert fleet.member("b01").state is MemberState.DEAD
    assert fleet.lost == frozenset()
    behind = [text for text in fleet.events_of(EventKind.WINDOW_STALE) if "clock is at least" in text]
    assert len(behind) == 1
