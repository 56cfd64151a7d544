"""Moves that are good together, in steps that each pay off and keep the caps."""

from itertools import pairwise

import numpy as np
import pytest

from regraft.controller.planners.tree.relocate_publishers_joint import steps_to
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from tests.overlay.published_overlays import Published, spans_of
from tests.overlay.small_overlays import inventory_of, line_of

LINE = line_of(3)
BORNE = {"p": 60, "q": 30, "r": 90, "s": 8}  # What each publishes per second; nobody wants any of it.


def placement_of(homes: dict[str, int], caps: list[float]) -> PublisherPlacement:
    """Return publishers that each load their home by what they publish, and nothing else."""
    named = {name: LINE.brokers[home] for name, home in homes.items()}
    notifications = [Published(name, 0, frozenset()) for name in homes for _ in range(BORNE[name])]
    costs = PublisherCosts(LINE, inventory_of(LINE, {}), spans_of(LINE.brokers, notifications, named, [1.0]))
    assert costs.publishers == tuple(homes)
    return PublisherPlacement(costs, range(len(homes)), list(homes.values()), np.array(caps))


def test_single_moves_come_best_first() -> None:
    """Moves that do not depend on each other are separate steps."""
    present = placement_of({"p": 0, "q": 0, "r": 0}, [500, 500, 500])
    assert steps_to(present, np.array([1, 2, 1]), np.array([1.0, 3.0, 2.0]), 0.0) == [(1,), (2,), (0,)]


def test_a_move_waits_for_the_room_that_another_one_frees() -> None:
    """The better move comes second if it fits only then."""
    present = placement_of({"q": 2, "r": 1}, [100, 100, 100])
    assert steps_to(present, np.array([1, 0]), np.array([5.0, 1.0]), 0.0) == [(1,), (0,)]


def test_a_move_that_does_not_pay_is_in_a_step_with_the_one_it_makes_room_for() -> None:
    """The smallest group that pays and fits is one step."""
    present = placement_of({"p": 0, "q": 2, "r": 1, "s": 0}, [100, 100, 100])
    steps = steps_to(present, np.array([0, 1, 2, 2]), np.array([0.0, 5.0, -1.0, 2.0]), 0.0)
    assert steps == [(3,), (1, 2)]


def test_a_step_may_not_undo_the_relief_of_a_broker_above_its_cap() -> None:
    """b00 is above its cap; p leaves and q arrives, which is less than before but more than the cap: one step."""
    present = placement_of({"p": 0, "q": 2, "r": 0}, [100, 100, 100])
    assert steps_to(present, np.array([2, 0, 0]), np.array([9.0, 5.0, 0.0]), 0.0) == [(0, 1)]
    present = placement_of({"p": 0, "q": 2, "r": 0}, [120, 100, 100])
    assert steps_to(present, np.array([2, 0, 0]), np.array([9.0, 5.0, 0.0]), 0.0) == [(0,), (1,)]


def test_remaining_moves_that_save_nothing_are_dropped() -> None:
    """Moves that only cost are not a step, whichever moves they were found with."""
    present = placement_of({"p": 0, "q": 0, "r": 0}, [500, 500, 500])
    assert steps_to(present, np.array([1, 1, 1]), np.array([2.0, -1.0, -0.5]), 0.0) == [(0,)]


@pytest.mark.parametrize("cap", [95.0, 130.0, 170.0])
def test_every_step_keeps_the_caps(cap: float) -> None:
    """After each step no broker bears more than its cap, or than before if that is more."""
    present = placement_of({"p": 0, "q": 2, "r": 0, "s": 1}, [cap, cap, cap])
    target, gains = np.array([1, 0, 0, 2]), np.array([1.0, 4.0, 0.0, 2.0])
    loads, reached = [present.loads_per_s], present.copy()
    for step in steps_to(present, target, gains, 0.0):
        for place in step:
            reached.move(place, int(target[place]))
        loads.append(reached.loads_per_s)
    assert reached.homes.tolist() == target.tolist()
    assert all((after <= np.maximum(cap, before) * (1 + 1e-8)).all() for before, after in pairwise(loads))
