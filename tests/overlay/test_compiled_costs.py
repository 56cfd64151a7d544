"""The compiled code gives, bit for bit, what the numpy code gives: trees, costs, swaps, budgets and random draws."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.planners.tree.steps.escape_links import kicked
from regraft.controller.planners.tree.steps.price_frailty import FrailtyPrice
from regraft.controller.planners.tree.steps.search_swaps import Search, best_swaps, descend
from regraft.overlay.cut_off import DeliveryPairs
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.weighted_sets import EXACT_MAX, WeightedSets
from regraft.overlay.tree import compiled_costs
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.compiled_costs import kernels_for, prepare_compiled
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.overlay.tree.tree_cut_off import tree_cut_off
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, overlays, sets_of

Drawn = tuple[Inventory, list[set[str]], DeliverySets]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """The kernels are prepared for these tests only: others use numpy."""
    pytest.importorskip("numba")
    assert tree_kind(inventory_of(line_of(3), {})).prepare() == ""
    yield
    compiled_costs._Prepared.kernels = None


@contextmanager
def no_kernels() -> Iterator[None]:
    """Do without the kernels, which are prepared, for a while."""
    prepared, compiled_costs._Prepared.kernels = compiled_costs._Prepared.kernels, None
    assert prepared is not None
    try:
        yield
    finally:
        compiled_costs._Prepared.kernels = prepared


def both_of(inventory: Inventory, sets: WeightedSets | SpanSets) -> tuple[TreeCosts, TreeCosts]:
    """Return the costs of the bootstrap tree by numpy and by the kernels."""
    by_kernels = TreeCosts(inventory.bootstrap, inventory, sets)
    assert by_kernels.kernels is not None
    with no_kernels():
        by_numpy = TreeCosts(inventory.bootstrap, inventory, sets)
    assert_same(by_numpy, by_kernels)
    return by_numpy, by_kernels


def assert_same(first: TreeCosts, second: TreeCosts) -> None:
    assert first.links == second.links
    for name in ("ends", "side", "thrice", "costs_by_span", "loads_per_s", "crossings_by_span", "degrees"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


def large_overlay(seed: int, brokers: int, spans: int) -> tuple[Inventory, WeightedSets]:
    """Return brokers with a random tree, uneven interests and costs, every third seed with many equal costs."""
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    names = tuple(f"b{place:03d}" for place in range(brokers))
    link_cost = np.triu(generator.uniform(0, 10, (brokers, brokers)), 1)
    if seed % 3 == 0:
        link_cost = np.round(link_cost)
    tree = random_tree(names, 4, rng)
    inventory = Inventory(names, generator.uniform(0, 10, brokers), link_cost + link_cost.T, 4, tree)
    groups = [set(rng.sample(names, rng.randrange(1, brokers // 2))) for _ in range(2 * brokers)]
    windows = [sets_of(names, [rng.choice(groups) for _ in range(700)], 5.0, f"p{span}") for span in range(spans)]
    return inventory, WeightedSets.over_all(windows)


def frailty_of(inventory: Inventory) -> FrailtyPrice:
    """Return a price of frailty that matters: what a death cuts off is worth about as much as the traffic."""
    count = len(inventory.brokers)
    counts = np.random.default_rng(0).integers(0, 9, (count, count)).astype(np.float64)
    return FrailtyPrice(inventory.brokers, DeliveryPairs.of_matrix(counts), 1000.0)


@settings(max_examples=60)
@given(overlays(), st.integers(0, 2**32), st.booleans())
def test_swaps_are_priced_and_made_alike(drawn: Drawn, seed: int, are_spans_apart: bool) -> None:
    """Gains, loads and the tree after each of some random swaps have the same bits."""
    inventory, _, sets = drawn
    rng = random.Random(seed)
    spans = [sets, replace(sets, span_s=0.3)]
    by_numpy, by_kernels = both_of(inventory, SpanSets.of(spans) if are_spans_apart else WeightedSets.over_all(spans))
    for _ in range(6):
        absent = [link(a, b) for a in inventory.brokers for b in inventory.brokers if a < b]
        added = rng.choice([pair for pair in absent if pair not in by_numpy.links])
        swap = LinkSwap(rng.choice(by_numpy.cycle(added)), added)
        assert by_numpy.gains_per_s(swap).tobytes() == by_kernels.gains_per_s(swap).tobytes()
        assert by_numpy.loads_after_per_s(swap) == by_kernels.loads_after_per_s(swap)
        assert by_numpy.apply(swap) == by_kernels.apply(swap)
        assert_same(by_numpy, by_kernels)
        if are_spans_apart:
            continue
        everything = np.arange(len(by_numpy.ends), dtype=np.intp)
        degree_max = rng.randint(2, 9)
        first, second = (
            best_swaps(costs, Search(10**9, degree_max, None), everything) for costs in (by_numpy, by_kernels)
        )
        assert first == second


@pytest.mark.parametrize("spans", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_searches_lead_to_the_same_tree(seed: int, spans: int) -> None:
    """A descent and kicks, with and without caps and limits, end alike and leave budget and random state alike."""
    inventory, sets = large_overlay(seed, 40, spans)
    ends = []
    for costs in both_of(inventory, sets):
        load_max_per_s = costs.loads_per_s * 1.05 + 1 if seed % 2 else None
        search = Search(40_000_000, 4 + seed, load_max_per_s, frailty_of(inventory) if seed in (1, 2) else None)
        swaps = list(descend(costs, search, 30))
        rng = random.Random(seed)
        limits = Search(3_000_000, 4 + seed, load_max_per_s, None, frozenset(costs.links), (None, 6)[seed % 2])
        better = kicked(costs, limits, rng) or costs
        ends.append((costs, better, swaps, search.words_left, rng.getstate()))
    (first, first_better, *first_rest), (second, second_better, *second_rest) = ends
    assert first_rest == second_rest
    assert_same(first, second)
    assert_same(first_better, second_better)


def test_a_path_is_that_of_the_tree_after_many_swaps() -> None:
    """The way between two brokers, kept through swaps, is the one that the links of the tree give."""
    inventory, sets = large_overlay(1, 40, 1)
    costs, rng = both_of(inventory, sets)[1], random.Random(1)
    tree = inventory.bootstrap
    for _ in range(200):
        added = link(*rng.sample(inventory.brokers, 2))
        assert costs.cycle(added) == cycle_links(tree, added)
        if added not in costs.links:
            swap = LinkSwap(rng.choice(costs.cycle(added)), added)
            costs.apply(swap)
            tree = tree.replaced(tree.epoch + 1, [swap.removed], [swap.added])


def test_counts_that_float32_rounds_are_left_to_numpy() -> None:
    """From 2^24 notifications on the sums of the numpy code depend on their order: the kernels do not apply."""
    inventory = inventory_of(line_of(3), {})
    sets = WeightedSets.over_all([sets_of(brokers_named(3), [{"b00", "b02"}])])
    assert kernels_for(inventory, sets) is not None
    assert kernels_for(inventory, replace(sets, weights=sets.weights * np.float32(EXACT_MAX))) is None
    assert kernels_for(inventory, replace(sets, weights=sets.weights * np.float32(0.5))) is None


def test_without_numba_the_reason_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernels are not available, nothing fails: the reason is returned, and numpy computes the same."""
    monkeypatch.setattr(compiled_costs._Prepared, "kernels", None)
    monkeypatch.setattr(compiled_costs, "KERNELS_MODULE", "regraft.overlay.tree.no_such_kernels")
    assert prepare_compiled().startswith("ModuleNotFoundError")
    inventory = inventory_of(line_of(3), {})
    assert kernels_for(inventory, WeightedSets.over_all([sets_of(brokers_named(3), [{"b00"}])])) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32))
def test_what_deaths_cut_off(count: int, seed: int) -> None:
    """Compiled loops follow every path, numpy counts subtrees; pairs may recur, and some are local."""
    rng, brokers = random.Random(seed), brokers_named(count)
    tree = random_tree(brokers, count, rng) if count > 1 else TreeConfiguration.of(0, brokers, [])
    ends = [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 60))]
    sources, targets = np.array(ends, dtype=np.intp).reshape(-1, 2).T
    pairs = DeliveryPairs(sources, targets, np.array([float(rng.randint(0, 5)) for _ in ends]), 3.0)
    by_kernels = tree_cut_off(tree, pairs)
    with no_kernels():
        by_numpy = tree_cut_off(tree, pairs)
    assert by_kernels.per_s.tobytes() == by_numpy.per_s.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 150), st.integers(0, 2**20))
def test_sides_of_links(count: int, words: int, seed: int) -> None:
    """Compiled loops go from broker to broker, numpy from level to level."""
    rng, brokers = random.Random(seed), brokers_named(count)
    tree = RootedTree.of(random_tree(brokers, count, rng) if count > 1 else TreeConfiguration.of(0, brokers, []))
    wanted = np.random.default_rng(seed).integers(0, 1 << 64, (count, words), dtype=np.uint64)
    wanted &= np.random.default_rng(seed + 1).integers(0, 1 << 64, (count, words), dtype=np.uint64)
    by_kernels = link_sides(tree, wanted)
    with no_kernels():
        by_numpy = link_sides(tree, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regraft.overlay.tree.link_sides.WORDS_AT_ONCE", 1_000)
        in_parts = link_sides(tree, wanted)
    for sides in (by_kernels, in_parts):
        assert [side.tobytes() for side in sides] == [side.tobytes() for side in by_numpy]
