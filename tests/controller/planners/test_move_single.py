"""A subscriber that is reported separately moves where it saves most; the judge finds the same price."""

import random
from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.kinds.tree.reached_tree import ReachedTree
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.planners.tree.steps.move_single import single_moves
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.prices import Prices
from regraft.overlay.registered_clients import RegisteredClients
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.client import Client, Role
from regraft.schemas.part_blocks import number_of_subscriber
from regraft.schemas.sampled_blocks import FULL
from tests.controller.windows.test_take_parts import BROKERS, draw, window_of
from tests.overlay.small_overlays import inventory_of

TREE = TreeConfiguration.of(0, BROKERS, [("b0", "b1"), ("b1", "b2"), ("b1", "b3")])
REPORTED = ("b1-0", "b1-3", "b2-1")


def inventory(load_max_per_s: float | None = None) -> Inventory:
    """Return an inventory with prices by link and broker, but without processing, which the planner does not price."""
    drawn = np.triu(np.random.default_rng(1).uniform(1.0, 5.0, (4, 4)), 1)
    prices = Prices("USD", drawn + drawn.T, np.array([1.0, 1.2, 0.8, 1.1]), message_bytes=1000.0)
    caps = None if load_max_per_s is None else np.full(4, load_max_per_s)
    return replace(inventory_of(TREE, {}, processing=0.0), prices=prices, load_max_per_s=caps).charged


def state_of(seed: int, caps_per_s: float | None = None) -> TreeState:
    """Return two windows in which brokers report three subscribers separately, named by the register."""
    rng, register = random.Random(seed), RegisteredClients()
    for name in REPORTED:
        register.put(Client(name, Role.SUBSCRIBER, name[:2], (), 0.0, 0))
    numbers = {name: (name[:2], number_of_subscriber(name)) for name in REPORTED}
    windows: list[ClosedWindow] = []
    for at in range(2):
        window = window_of(draw(rng, 6_400 * at), {}, FULL, reports_parts=False, single=numbers)
        windows.append(
            replace(
                window, start_ms=5_000 * at, end_ms=5_000 * at + 5_000, single=register.named(window.parts.received)
            )
        )
    return TreeState(
        TreeConfiguration.of(0, BROKERS, TREE.links, windows[0].homes), inventory(caps_per_s), tuple(windows)
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_promised_gain_equals_the_judges(seed: int) -> None:
    """Moves are a sequence, each on the state that the earlier ones leave; each subscriber moves at most once."""
    state = state_of(seed)
    assert set(state.single) == set(REPORTED)
    reached, found = ReachedTree(state), list(single_moves("p", state, 3, 1e9, 1e-9))
    assert found
    for proposal, after in found:
        judged = reached.after(proposal)
        assert reached.cost_per_s - judged.cost_per_s == pytest.approx(proposal.gain_per_s)
        assert after.single[proposal.moves[0].client] == proposal.moves[0].home_to
        reached = judged
    assert len({proposal.moves[0].client for proposal, _ in found}) == len(found)


def test_bounds_are_kept() -> None:
    """Bounds of number, of distance and of the least saving, and caps that leave no broker room."""
    state = state_of(0)
    assert len(list(single_moves("p", state, 1, 1e9, 1e-9))) == 1
    assert not list(single_moves("p", state, 3, 0.0, 1e-9))
    assert not list(single_moves("p", state, 3, 1e9, 0.9))
    tight = state_of(0, caps_per_s=1.0)
    for proposal, after in single_moves("p", tight, 1, 1e9, 1e-9):
        assert (after.tree_costs.loads_per_s <= tight.tree_costs.loads_per_s * 1.001).all(), proposal


def test_a_reported_subscriber_that_may_move_has_its_price() -> None:
    """What it receives is known, and where it is then registered, too."""
    state = state_of(0)
    ((proposal, after),) = single_moves("p", state, 1, 1e9, 1e-9)
    (move,) = proposal.moves
    windows = (*state.windows[:-1], replace(state.newest, movable={move.client: move.home_from, "other": "b1"}))
    reached = ReachedTree(TreeState(state.configuration, state.inventory, windows)).after(proposal)
    assert reached.cost_per_s == pytest.approx(ReachedTree(after).cost_per_s)
    assert reached.state.newest.movable == {move.client: move.home_to, "other": "b1"}
