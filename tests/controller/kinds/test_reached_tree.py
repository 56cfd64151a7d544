"""The cost of the overlay that proposals lead to equals the one cost, whatever their order and kind."""

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from regraft.controller.kinds.overlay_kind import HomeError
from regraft.controller.kinds.tree.reached_tree import ReachedTree
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import NotATreeError, TreeConfiguration
from regraft.schemas.plan import ClientMove, HomeMove, Proposal
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, publishers_of


def proposal_of(
    removed: tuple[Link, ...] = (), added: tuple[Link, ...] = (), moves: tuple[ClientMove, ...] = ()
) -> Proposal:
    return Proposal("p", removed, added, 0.0, 0.0, 0.0, "because", moves=moves)


def random_state(rng: random.Random) -> TreeState:
    brokers = brokers_named(rng.randint(3, 9))
    tree = random_tree(brokers, len(brokers), rng)
    costs = {link(a, b): float(rng.randint(1, 20)) for a in brokers for b in brokers if a < b}
    base = inventory_of(tree, costs)
    inventory = Inventory(brokers, np.array([rng.randint(0, 9) / 2 for _ in brokers]), base.link_cost, 99, tree)
    homes = {f"p{number}": rng.choice(brokers) for number in range(rng.randint(1, 4))}
    windows = []
    for at in range(rng.randint(1, 3)):
        published = {
            name: (home, [set(rng.sample(brokers, rng.randint(0, len(brokers)))) for _ in range(rng.randint(0, 9))])
            for name, home in homes.items()
        }
        sets = publishers_of(brokers, published, span_s=rng.choice([1.0, 2.0]))
        seen = {name: home for name, (home, sent) in published.items() if sent}
        windows.append(ClosedWindow(1000 * at, 1000 * at + 1000, sets, epoch_min=0, epoch_max=0, homes=seen))
    return TreeState(TreeConfiguration.of(0, brokers, tree.links, homes), inventory, tuple(windows))


def random_change(reached: ReachedTree, rng: random.Random) -> Proposal:
    present = reached.configuration
    seen = set().union(*(window.homes for window in reached.state.windows))
    free = [link(a, b) for a in present.brokers for b in present.brokers if a < b and link(a, b) not in present.links]
    removed: tuple[Link, ...] = ()
    added: tuple[Link, ...] = ()
    if free and rng.random() < 0.6:
        added = (rng.choice(free),)
        removed = (rng.choice(cycle_links(present, added[0])),)
    movable = sorted(name for name in present.home_of if name in seen)
    moves = tuple(
        ClientMove(name, present.home_of[name], rng.choice(present.brokers))
        for name in rng.sample(movable, rng.randint(0, len(movable)))
    )
    return proposal_of(removed, added, moves)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_reached_costs_and_loads_equal_those_from_scratch(seed: int) -> None:
    """After any swaps and moves, each window's cost and each broker's load equal those from scratch."""
    rng = random.Random(seed)
    reached = ReachedTree(random_state(rng))
    for _ in range(4):
        reached = reached.after(random_change(reached, rng))
        state, target = reached.state, reached.configuration
        parts = [overlay_cost(target, state.inventory, window.sets_at(target.home_of)) for window in state.windows]
        by_window = reached.costs_per_s.reshape(len(parts), -1).mean(axis=1)
        assert by_window == pytest.approx([part.total_per_s for part in parts])
        spans_s = [window.sets.span_s for window in state.windows]
        assert reached.cost_per_s == pytest.approx(np.average(by_window, weights=spans_s))
        assert state.tree_costs.cost_per_s == pytest.approx(reached.cost_per_s)
        assert reached.loads_per_s == pytest.approx(state.tree_costs.loads_per_s)
        assert target.epoch == 0


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_proposals_leave_earlier_overlays_unchanged(seed: int) -> None:
    """Whatever is tried from an overlay or its successors, its costs and loads stay the same, and so do later ones."""
    rng = random.Random(seed)
    reached = [ReachedTree(random_state(rng))]
    recorded = [(reached[0].costs_per_s.copy(), reached[0].loads_per_s.copy())]
    for _ in range(8):
        found = (before := rng.choice(reached)).after(random_change(before, rng))
        alone = ReachedTree(TreeState(found.configuration, found.state.inventory, found.state.windows))
        assert found.costs_per_s == pytest.approx(alone.costs_per_s)
        assert found.loads_per_s == pytest.approx(alone.loads_per_s)
        reached.append(found)
        recorded.append((found.costs_per_s.copy(), found.loads_per_s.copy()))
        for each, (costs_per_s, loads_per_s) in zip(reached, recorded, strict=True):
            assert (each.costs_per_s == costs_per_s).all()
            assert (each.loads_per_s == loads_per_s).all()


def test_a_proposal_that_does_not_fit_is_refused_by_name() -> None:
    """A publisher that is elsewhere, an absent broker, links that leave no tree: each has its error."""
    tree = line_of(3)
    inventory = inventory_of(tree, {})
    sets = publishers_of(tree.brokers, {"p": ("b00", [{"b02"}])})
    state = TreeState(
        TreeConfiguration.of(0, tree.brokers, tree.links, {"p": "b00"}), inventory, (ClosedWindow(0, 1000, sets),)
    )
    reached = ReachedTree(state)
    with pytest.raises(HomeError, match="p would leave b01, but its home is b00"):
        reached.after(proposal_of(moves=(ClientMove("p", "b01", "b02"),)))
    with pytest.raises(HomeError, match="q would leave b01, but its home is not known"):
        reached.after(proposal_of(moves=(ClientMove("q", "b01", "b02"),)))
    with pytest.raises(KeyError):
        reached.after(proposal_of(moves=(ClientMove("p", "b00", "b09"),)))
    with pytest.raises(NotATreeError):
        reached.after(proposal_of(removed=(link("b00", "b01"),), added=(link("b01", "b02"),)))
    assert reached.after(proposal_of(moves=(ClientMove("p", "b00", "b02"),))).cost_per_s == 1.0


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_moved_subscribers_cost_what_they_would_have_cost_there(seed: int) -> None:
    """Whatever moves before and after, the cost is that of windows in which the new broker wanted everything itself."""
    rng = random.Random(seed)
    start = ReachedTree(random_state(rng))
    reached = start.after(random_change(start, rng))
    brokers = reached.configuration.brokers
    emptied, target = rng.sample(brokers, 2)
    reached = reached.after(structs.replace(proposal_of(), subscribers_moved=(HomeMove(emptied, target),)))
    reached = reached.after(random_change(reached, rng))
    homes, total = reached.configuration.home_of, 0.0
    index = {broker: place for place, broker in enumerate(brokers)}
    for window in start.state.windows:
        sets = window.sets
        delivered = sets.delivered.copy()
        delivered[index[target]] |= delivered[index[emptied]]
        delivered[index[emptied]] = 0
        moved = dataclasses.replace(sets, words=sets.words | delivered, delivered=delivered).at_homes(homes)
        total += overlay_cost(reached.configuration, start.state.inventory, moved).total_per_s * sets.span_s
    assert reached.cost_per_s == pytest.approx(total / sum(window.sets.span_s for window in start.state.windows))


def test_subscribers_that_may_move_change_no_cost_unless_reported() -> None:
    """Each leaves the home where it is registered; one that has left since moves nowhere, if clients stay."""
    tree = line_of(3)
    sets = publishers_of(tree.brokers, {"p": ("b00", [{"b00", "b02"}] * 9)})
    window = ClosedWindow(0, 1000, sets, epoch_min=0, epoch_max=0, homes={"p": "b00"}, movable={"s": "b02"})
    inventory = dataclasses.replace(inventory_of(tree, {}), clients_stay=True)
    placed = TreeConfiguration.of(0, tree.brokers, tree.links, {"p": "b00"})
    start = ReachedTree(TreeState(placed, inventory, (window,)))
    to_the_middle = proposal_of(moves=(ClientMove("s", "b02", "b01"),))
    reached = start.after(to_the_middle)
    assert (reached.cost_per_s, reached.configuration) == (start.cost_per_s, placed)
    assert (reached.state.newest.movable, start.state.newest.movable) == ({"s": "b01"}, {"s": "b02"})
    with pytest.raises(HomeError, match="subscriber s would leave b02, but its home is b01"):
        reached.after(to_the_middle)
    with pytest.raises(KeyError, match="b9"):
        start.after(proposal_of(moves=(ClientMove("s", "b02", "b9"),)))
    gone = start.after(proposal_of(moves=(ClientMove("gone", "b02", "b01"),)))
    assert (gone.cost_per_s, gone.state.newest.movable) == (start.cost_per_s, {"s": "b02"})
    with pytest.raises(HomeError, match="publisher p would leave b02"):
        start.after(proposal_of(moves=(ClientMove("p", "b02", "b01"),)))
    swap = proposal_of(removed=(link("b01", "b02"),), added=(link("b00", "b02"),))
    assert reached.after(swap).cost_per_s == start.after(swap).cost_per_s < start.cost_per_s
