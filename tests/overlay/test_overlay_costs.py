"""Costs after changing links and homes one by one, compared with costing each overlay as a whole."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.publisher_sets import PublisherSets
from regraft.overlay.tree.build_tree import cycle_links
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.overlay.tree.walk_cuts import walk_cuts
from tests.overlay.published_overlays import PublishedOverlay, published_overlays


def drawn_swap(tree: TreeConfiguration, rng: random.Random) -> LinkSwap | None:
    absent = [link(a, b) for a in tree.brokers for b in tree.brokers if a < b and link(a, b) not in tree.links]
    if not absent:
        return None
    added = rng.choice(absent)
    return LinkSwap(rng.choice(cycle_links(tree, added)), added)


@given(published_overlays(), st.integers(0, 2**32))
def test_changes_of_links_and_homes_lead_to_the_same_costs(overlay: PublishedOverlay, seed: int) -> None:
    """After any swaps and moves, in any order, all values are those of the overlay costed from scratch."""
    inventory, present = overlay.inventory, overlay.configuration
    sets = PublisherSets.of(overlay.spans, overlay.homes)
    costs, rng = OverlayCosts(present, inventory, sets), random.Random(seed)
    untouched, before = costs.copy(), costs.cost_per_s
    for _ in range(6):
        swap = drawn_swap(present, rng) if rng.random() < 0.5 else None
        homes = dict(present.home_of)
        if swap is not None:
            costs.apply(swap)
            present = present.replaced(present.epoch + 1, [swap.removed], [swap.added])
        elif sets.publishers:
            moved = rng.sample(range(len(sets.publishers)), rng.randint(1, len(sets.publishers)))
            going = {publisher: rng.randrange(len(inventory.brokers)) for publisher in moved}
            costs.move(going)
            homes |= {sets.publishers[publisher]: inventory.brokers[home] for publisher, home in going.items()}
        present = TreeConfiguration.of(present.epoch, present.brokers, present.links, homes)
        fresh = OverlayCosts(present, inventory, sets)
        whole = DeliverySets.joined(span.at_homes(homes) for span in overlay.spans)
        assert costs.cost_per_s == pytest.approx(overlay_cost(present, inventory, whole).total_per_s)
        assert (costs.homes == fresh.homes).all()
        assert costs.tree.loads_per_s == pytest.approx(fresh.tree.loads_per_s)
        assert prices(costs) == pytest.approx(prices(fresh), abs=1e-6)
    assert untouched.cost_per_s == before


def prices(costs: OverlayCosts) -> dict[tuple[str, str, str], float]:
    """Return what each swap changes, by the removed link, the side that is walked and the place of attachment."""
    ends = costs.tree.directed_ends()
    names = costs.inventory.brokers
    found = {}
    for rows, places, changes in walk_cuts(costs.tree):
        for row, place, change in zip(rows, places, changes, strict=True):
            found[names[ends[0][row]], names[ends[1][row]], names[place]] = float(change)
    return found


@given(published_overlays())
def test_homes_are_priced_as_before_merging(overlay: PublishedOverlay) -> None:
    """Cost and load of every publisher at every home are those counted notification by notification."""
    inventory, present = overlay.inventory, overlay.configuration
    costs = OverlayCosts(present, inventory, PublisherSets.of(overlay.spans, overlay.homes)).at_homes
    expected = PublisherCosts(present, inventory, overlay.spans)
    chosen = [expected.place_of(name) for name in PublisherSets.of(overlay.spans, overlay.homes).publishers]
    assert np.allclose(costs.costs_per_s, expected.costs_per_s[chosen])
    assert np.allclose(costs.below_per_s, expected.below_per_s[chosen])
    assert np.allclose(costs.above_per_s, expected.above_per_s[chosen])
