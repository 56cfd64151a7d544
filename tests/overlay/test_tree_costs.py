"""The cost of every tree one swap away, and of trees reached by swaps, compared with costing each tree as a whole."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.swap_sequences import SwapCursor, as_swaps, lent_costs
from regraft.overlay.tree.tree_configuration import NotATreeError, TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.overlay.tree.walk_cuts import walk_cuts
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, overlays, sets_of

Drawn = tuple[Inventory, list[set[str]], DeliverySets]


def costs_of(inventory: Inventory, sets: DeliverySets, tree: TreeConfiguration | None = None) -> TreeCosts:
    return TreeCosts(tree or inventory.bootstrap, inventory, WeightedSets.over_all([sets]))


def all_swaps(tree: TreeConfiguration) -> list[LinkSwap]:
    absent = [link(a, b) for a in tree.brokers for b in tree.brokers if a < b and link(a, b) not in tree.links]
    return [LinkSwap(removed, added) for added in absent for removed in cycle_links(tree, added)]


@given(overlays(count_max=7))
def test_every_swap_costs_what_the_swapped_tree_costs(drawn: Drawn) -> None:
    """The cost after each possible swap equals the cost of the tree with its links exchanged."""
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    costs = costs_of(inventory, sets)
    assert costs.cost_per_s == pytest.approx(overlay_cost(tree, inventory, sets).total_per_s)
    for swap in all_swaps(tree):
        assert costs.cycle(swap.added) == cycle_links(tree, swap.added)
        after = overlay_cost(tree.replaced(1, [swap.removed], [swap.added]), inventory, sets).total_per_s
        assert costs.cost_after_per_s(swap) == pytest.approx(after, abs=1e-9)
        assert costs.gain_per_s(swap) == pytest.approx(costs.cost_per_s - after, abs=1e-6)


@given(overlays(count_max=7))
def test_walks_price_all_swaps_at_once(drawn: Drawn) -> None:
    """The two sides of a cut are priced separately: their sum plus the cost of the new link is the cost of the swap."""
    inventory, _, sets = drawn
    costs = costs_of(inventory, sets)
    count = len(inventory.brokers)
    change = np.full((2 * (count - 1), count), np.nan)
    for cut, place, walked in walk_cuts(costs):
        assert np.isnan(change[cut, place]).all(), "each pair comes once"
        change[cut, place] = walked
    for number, (a, b) in enumerate(costs.ends):
        onto_a, onto_b = change[2 * number + 1], change[2 * number]
        assert set(np.flatnonzero(~np.isnan(onto_a))) | set(np.flatnonzero(~np.isnan(onto_b))) == set(range(count))
        for i in np.flatnonzero(~np.isnan(onto_a)):
            for j in np.flatnonzero(~np.isnan(onto_b)):
                if (i, j) == (a, b):
                    continue
                swap = LinkSwap(costs.link_at(number), link(inventory.brokers[i], inventory.brokers[j]))
                link_costs = inventory.link_cost[i, j] - inventory.link_cost[a, b]
                priced = onto_a[i] + onto_b[j] + link_costs * costs.crossings()[number]
                assert -priced / sets.span_s == pytest.approx(costs.gain_per_s(swap), abs=1e-6)


@given(overlays(), st.integers(0, 2**32))
def test_swaps_made_one_by_one_lead_to_the_same_costs(drawn: Drawn, seed: int) -> None:
    """After any sequence of swaps all values are those of the tree costed from scratch; a copy is unaffected."""
    inventory, _, sets = drawn
    rng = random.Random(seed)
    costs = costs_of(inventory, sets)
    before, untouched = costs.cost_per_s, costs.copy()
    tree = inventory.bootstrap
    for _ in range(6):
        swap = rng.choice(all_swaps(tree))
        loads = costs.loads_after_per_s(swap)
        degree = costs.degree_after(swap)
        ends = costs.ends_after(swap)
        costs.apply(swap)
        assert {frozenset(pair) for pair in ends.tolist()} == {frozenset(pair) for pair in costs.ends.tolist()}
        tree = tree.replaced(tree.epoch + 1, [swap.removed], [swap.added])
        fresh = costs_of(inventory, sets, tree)
        assert costs.links == tree.links
        assert costs.cost_per_s == pytest.approx(fresh.cost_per_s, abs=1e-9)
        assert costs.loads_per_s == pytest.approx(fresh.loads_per_s)
        assert all(fresh.loads_per_s[broker] == pytest.approx(load) for broker, load in loads.items())
        assert (costs.degrees == fresh.degrees).all()
        assert degree == max(len(tree.neighbours[end]) for end in swap.added)
        following = rng.choice(all_swaps(tree))
        assert costs.gain_per_s(following) == pytest.approx(fresh.gain_per_s(following), abs=1e-6)
    assert untouched.cost_per_s == before
    assert untouched.links == inventory.bootstrap.links


@given(overlays(), st.integers(0, 2**32))
def test_any_two_trees_are_connected_by_swaps(drawn: Drawn, seed: int) -> None:
    """The links that differ can be exchanged one by one, with a tree after each exchange."""
    inventory, _, sets = drawn
    tree, target = inventory.bootstrap, random_tree(inventory.brokers, 1000, random.Random(seed))
    costs = costs_of(inventory, sets)
    removed, added = set(tree.links) - set(target.links), set(target.links) - set(tree.links)
    for swap in as_swaps(costs, removed, added):
        costs.apply(swap)
    assert costs.links == target.links


@given(overlays(), st.integers(0, 2**32))
def test_lent_costs_come_back_as_they_were(drawn: Drawn, seed: int) -> None:
    """Swaps on them are undone to the last bit; a copy is lent instead of small ones."""
    inventory, _, sets = drawn
    rng, costs = random.Random(seed), costs_of(inventory, sets)
    before, links = costs.copy(), costs.links
    with lent_costs(costs) as (lent, _):
        assert lent is not costs
    with lent_costs(costs, copy_bytes_max=0) as (lent, made):
        assert lent is costs
        tree = inventory.bootstrap
        for _ in range(5):
            swap = rng.choice(all_swaps(tree))
            made.append((swap, lent.costs_by_span))
            lent.apply(swap)
            tree = tree.replaced(tree.epoch + 1, [swap.removed], [swap.added])
        assert lent.links == tree.links
    assert costs.links == links
    for name in ("ends", "side", "thrice", "costs_by_span", "loads_per_s", "crossings_by_span", "degrees"):
        assert getattr(costs, name).tobytes() == getattr(before, name).tobytes(), name


def test_cost_by_span_adds_up() -> None:
    """Each window has its own cost and gain; weighted by duration they add up to those of the whole."""
    tree = line_of(4)
    inventory = inventory_of(tree, {("b00", "b03"): 2.0})
    spans = [sets_of(tree.brokers, [{"b00", "b03"}] * 5, 1.0, "p"), sets_of(tree.brokers, [{"b00", "b01"}], 3.0, "q")]
    apart = TreeCosts(tree, inventory, SpanSets.of(spans))
    whole = TreeCosts(tree, inventory, WeightedSets.over_all(spans))
    singly = [overlay_cost(tree, inventory, span).total_per_s for span in spans]
    assert apart.costs_per_s == pytest.approx(singly)
    assert apart.cost_per_s == whole.cost_per_s == pytest.approx((singly[0] + 3 * singly[1]) / 4)
    swap = LinkSwap(("b01", "b02"), ("b00", "b03"))
    gains = apart.gains_per_s(swap)
    assert gains[0] > 0 > gains[1] - 1e-9
    assert apart.gain_per_s(swap) == whole.gain_per_s(swap) == pytest.approx((gains[0] + 3 * gains[1]) / 4)


def test_no_notification_costs_nothing() -> None:
    """An idle overlay costs 0, and so does any swap in it."""
    tree = line_of(3)
    costs = costs_of(inventory_of(tree, {}), DeliverySets.of(tree.brokers, {}, 1.0))
    assert costs.cost_per_s == 0
    assert costs.gain_per_s(LinkSwap(("b00", "b01"), ("b00", "b02"))) == 0


def test_costs_over_other_brokers_are_refused() -> None:
    """Delivery sets over brokers other than the tree's raise an error."""
    tree = line_of(3)
    with pytest.raises(ValueError, match="same brokers"):
        costs_of(inventory_of(tree, {}), sets_of(brokers_named(4), [{"b00"}]))


@pytest.mark.parametrize(
    ("swap", "why"),
    [
        (LinkSwap(("b00", "b01"), ("b01", "b03")), "not on the cycle"),
        (LinkSwap(("b00", "b01"), ("b01", "b02")), "already in the tree"),
    ],
)
def test_a_swap_that_breaks_the_tree_is_refused(swap: LinkSwap, why: str) -> None:
    """A swap outside its cycle, or one that adds a present link, is refused with the reason and changes nothing."""
    tree = line_of(4)
    costs = costs_of(inventory_of(tree, {}), sets_of(tree.brokers, [{"b00", "b03"}]))
    with pytest.raises(NotATreeError, match=why):
        costs.cost_after_per_s(swap)
    with pytest.raises(NotATreeError, match=why):
        costs.apply(swap)
    assert costs.links == tree.links


def test_exchange_of_unequal_numbers_is_refused() -> None:
    """If two links are removed and one is added, the result is not a tree."""
    tree = line_of(4)
    costs = costs_of(inventory_of(tree, {}), sets_of(tree.brokers, [{"b00", "b03"}]))
    with pytest.raises(NotATreeError, match="2 links are removed and 1 added"):
        as_swaps(costs, tree.links[:2], [("b00", "b03")])


@given(overlays(count_max=7), st.integers(0, 2**32))
def test_undoing_swaps_restores_the_counts_exactly(drawn: Drawn, seed: int) -> None:
    """After swaps forth and back, all counts are bit for bit those of a copy that only went forth."""
    inventory, _, sets = drawn
    rng, costs = random.Random(seed), costs_of(inventory, sets)
    cursor, sequences = SwapCursor(costs.copy()), [()]
    for _ in range(6):
        begin = rng.choice(sequences)
        copied = costs.copy()
        for swap in begin:
            copied.apply(swap)
        swaps = all_swaps(TreeConfiguration(0, inventory.brokers, copied.links))
        if swaps:
            copied.apply(swap := rng.choice(swaps))
            begin = (*begin, swap)
            sequences.append(begin)
        tree = cursor.go_to(begin)
        assert tree.links == copied.links
        assert (tree.costs_by_span == copied.costs_by_span).all()
        assert (tree.loads_per_s == copied.loads_per_s).all()
        assert (tree.ends == copied.ends).all()
        assert (tree.side == copied.side).all()
        assert (tree.thrice == copied.thrice).all()
        assert (tree.crossings() == copied.crossings()).all()
