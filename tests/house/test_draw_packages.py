"""The figures of the packages match the code."""

import pytest

from tests.house.draw_packages import PAGE, drawn, floors, page_with, room_graph


def test_the_page_shows_the_packages_as_they_are() -> None:
    """After a change of imports: `python -m tests.house.draw_packages`."""
    assert PAGE.read_text(encoding="utf-8") == page_with(drawn())


def test_floors_are_counted_from_the_ground() -> None:
    """A node is one above the highest that it imports; a cycle has no lowest node."""
    assert floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": 3, "b": 2, "c": 1}
    with pytest.raises(ValueError, match="a circle among a, b"):
        floors({"a": {"b"}, "b": {"a"}})


def test_a_module_at_the_door_is_a_room() -> None:
    """The control loop composes the rooms."""
    assert {"decide", "execute", "windows"} <= room_graph("controller")["compose_loop"]
