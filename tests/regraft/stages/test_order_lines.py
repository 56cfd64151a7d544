"""Lines about a run are in order of time, as far as a short wait allows; a later one names its own time."""

from hypothesis import given
from hypothesis import strategies as st

from regraft.stages.show_run import HOLD_S, LineOrder


def test_what_is_known_a_second_late_is_sorted_in() -> None:
    """Status files are read every second, services are watched continuously."""
    order = LineOrder()
    order.add("81.0 is known at once", 81.0)
    order.add("80.2 is known later", 80.2)
    assert order.due(82.0) == []
    assert order.due(81.0 + HOLD_S) == ["  80.2 s  80.2 is known later", "  81.0 s  81.0 is known at once"]


def test_what_is_known_too_late_names_its_own_time() -> None:
    """A controller that was killed reports earlier events only once it runs again."""
    order = LineOrder()
    order.add("killed the controller", 61.2)
    assert order.due(64.0) == ["  61.2 s  killed the controller"]
    order.add("plan-3 is draining", 52.2)
    order.add("controller started", 63.0)
    assert order.rest() == ["  61.2 s  plan-3 is draining (at 52.2 s)", "  63.0 s  controller started"]


@given(st.lists(st.tuples(st.floats(0, 1_000), st.floats(0, 30)), max_size=30))
def test_times_never_fall_and_nothing_is_lost(events: list[tuple[float, float]]) -> None:
    """However late events are known, each line comes once, with a time not before that of the line above."""
    order, lines = LineOrder(), []
    for number, (time_s, late_s) in enumerate(sorted(events, key=sum)):
        order.add(f"<{number}>", time_s)
        lines += order.due(time_s + late_s)
    lines += order.rest()
    times = [float(line.split(" s ")[0]) for line in lines]
    assert times == sorted(times)
    assert sorted(line[line.index("<") : line.index(">")] for line in lines) == sorted(
        f"<{number}" for number in range(len(events))
    )
