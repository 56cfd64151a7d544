"""Derived values and last results are computed once, and handed on as they are."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

from regraft.overlay.derived_values import LastResult, derived_value, fill_in, hand_on
from regraft.overlay.sets.publisher_sets import PublisherSets
from regraft.overlay.tree import overlay_costs
from regraft.overlay.tree.overlay_costs import OverlayCosts
from tests.overlay.count_computations import count_computations
from tests.overlay.published_overlays import draw_overlay


@dataclass(frozen=True)
class Square:
    """A frozen value with two derived ones."""

    side_mm: int

    @derived_value
    def area_mm2(self) -> int:
        """The area."""
        return self.side_mm**2

    @derived_value
    def outline_mm(self) -> int:
        """The outline."""
        return 4 * self.side_mm


def test_a_value_that_is_handed_on_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source has not computed, the target computes itself, and the source stays without it."""
    areas, outlines = (count_computations(monkeypatch, one) for one in (Square.area_mm2, Square.outline_mm))
    one, other = Square(3), Square(3)
    assert one.area_mm2 == 9
    hand_on(one, other, Square.area_mm2, Square.outline_mm)
    assert (other.area_mm2, areas) == (9, [one])
    assert other.outline_mm == one.outline_mm == 12
    assert outlines == [other, one]
    assert one == other == Square(3)


def test_a_value_that_is_filled_in_is_never_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller vouches for it."""
    areas = count_computations(monkeypatch, Square.area_mm2)
    one = Square(3)
    fill_in(one, Square.area_mm2, 9)
    assert (one.area_mm2, areas) == (9, [])


def test_the_last_result_is_kept_until_another_is_asked() -> None:
    """One result is kept: going back computes it again."""
    asked: list[str] = []
    kept: LastResult[str, int] = LastResult()
    found = [kept.of(key, lambda key=key: asked.append(key) or len(asked)) for key in "aabba"]  # type: ignore[misc]
    assert found == [1, 1, 2, 2, 3]
    assert asked == ["a", "b", "a"]


def test_a_copy_of_costs_prices_no_home_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of homes are those of the links, which a copy has until it is changed."""
    overlay = draw_overlay(random.Random(4), brokers_max=9)
    sets = PublisherSets.of(overlay.spans, overlay.homes)
    costs, priced = OverlayCosts(overlay.configuration, overlay.inventory, sets), []

    class Counted(overlay_costs.HomeCosts):
        def __init__(self, *given: object) -> None:
            priced.append(self)
            super().__init__(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(overlay_costs, "HomeCosts", Counted)
    first = costs.at_homes
    copied = costs.copy()
    assert copied.at_homes is first
    assert priced == [first]
    copied.links_changed()
    assert copied.at_homes is not first
    assert np.array_equal(copied.at_homes.costs_per_s, first.costs_per_s)
    assert costs.at_homes is first
