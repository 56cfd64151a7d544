"""The figures of the packages match the code."""

import pytest

from tests.house.draw_packages import PAGE, drawn, layers, module_graph, page_with


def test_the_page_shows_the_packages_as_they_are() -> None:
    """After a change of imports: `python -m tests.house.draw_packages`."""
    assert PAGE.read_text(encoding="utf-8") == page_with(drawn())


def test_layers_are_counted_from_the_lowest() -> None:
    """A node is one above the highest that it imports; a cycle has no lowest node."""
    assert layers({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": 3, "b": 2, "c": 1}
    with pytest.raises(ValueError, match="a cycle among a, b"):
        layers({"a": {"b"}, "b": {"a"}})


def test_a_module_outside_the_subpackages_counts_as_one() -> None:
    """It starts the controller from the subpackages."""
    assert {"decide", "execute", "report"} <= module_graph("controller")["run_controller"]
