"""Homes are where windows saw publishers, updated by the plans since."""

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.tree.configuration import TreeConfiguration
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of, sets_of

TREE = line_of(4)
NOTHING = sets_of(TREE.brokers, [])


def window(start_ms: int, epoch_min: int, epoch_max: int, **homes: str) -> ClosedWindow:
    return ClosedWindow(start_ms, start_ms + 1000, NOTHING, epoch_min=epoch_min, epoch_max=epoch_max, homes=homes)


def homes_after(*windows: ClosedWindow, moved: dict[str, str] | None = None) -> dict[str, str]:
    return (
        tree_kind(inventory_of(TREE, {}))
        .with_homes(TreeConfiguration.of(3, TREE.brokers, TREE.links, moved or {}), windows)
        .home_of
    )


def test_the_newest_window_decides_where_a_publisher_is() -> None:
    """Of two windows the later one counts, and a publisher that is silent in it stays where it was seen."""
    assert homes_after(window(0, 3, 3, p="b00", q="b01"), window(1000, 3, 3, p="b02")) == {"p": "b02", "q": "b01"}


def test_a_publisher_silent_since_its_move_is_where_the_plan_put_it() -> None:
    """Windows from before or during the transition do not outweigh the plan that moved it."""
    old, between = window(0, 2, 2, p="b00"), window(1000, 2, 3, p="b00")
    assert homes_after(old, between, window(2000, 3, 3), moved={"p": "b03"}) == {"p": "b03"}


def test_a_publisher_seen_elsewhere_since_its_move_is_there() -> None:
    """What a window of the present epoch saw outweighs the plan."""
    assert homes_after(window(0, 3, 3, p="b01"), window(1000, 3, 3), moved={"p": "b03"}) == {"p": "b01"}


def test_a_publisher_known_only_from_plans_has_no_home() -> None:
    """Only publishers seen in the horizon have a home: the others may have left."""
    assert homes_after(window(0, 3, 3, q="b01"), moved={"p": "b03"}) == {"q": "b01"}
