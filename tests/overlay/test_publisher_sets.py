"""Sets merged by publisher give the same counts as single notifications, wherever publishers are."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.publisher_sets import PublisherSets
from regraft.overlay.tree.build_tree import bootstrap_tree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_costs import TreeCosts
from tests.overlay.published_overlays import PublishedOverlay, published_overlays


@given(published_overlays(), st.integers(0, 2**32))
def test_any_homes_cost_what_the_notifications_published_there_cost(overlay: PublishedOverlay, seed: int) -> None:
    """The sets with every publisher at any home give the cost of the notifications published there."""
    inventory, tree = overlay.inventory, bootstrap_tree(overlay.inventory)
    sets = PublisherSets.of(overlay.spans, overlay.homes)
    rng = random.Random(seed)
    homes = {name: rng.choice(inventory.brokers) for name in sets.publishers}
    placed = sets.at_homes(np.array([inventory.index[homes[name]] for name in sets.publishers], dtype=np.intp))
    expected = overlay_cost(tree, inventory, DeliverySets.joined(span.at_homes(homes) for span in overlay.spans))
    assert TreeCosts(tree, inventory, placed).cost_per_s == pytest.approx(expected.total_per_s)


@given(published_overlays())
def test_every_publisher_has_its_own_bits(overlay: PublishedOverlay) -> None:
    """The counts of each publisher's publications, and of its deliveries at each broker, are the exact ones."""
    sets = PublisherSets.of(overlay.spans, overlay.homes)
    delivered = sets.counts(sets.words)
    for place, name in enumerate(sets.publishers):
        own = [one for one in overlay.notifications if one.publisher == name]
        assert sets.published[place] == len(own)
        bits = sets.owners == place
        assert (sets.weights[sets.columns[bits]] * np.bitwise_count(sets.masks[bits])).sum() == len(own)
        for broker, count in zip(sets.brokers, delivered[place], strict=True):
            assert count == sum(broker in one.delivered for one in own)


@given(published_overlays())
def test_a_publisher_without_a_known_home_stays(overlay: PublishedOverlay) -> None:
    """What it published is counted at the original broker and assigned to no publisher that could move."""
    stranger = min(overlay.homes)
    known = {name: home for name, home in overlay.homes.items() if name != stranger}
    sets = PublisherSets.of(overlay.spans, known)
    assert stranger not in sets.publishers
    inventory, tree = overlay.inventory, bootstrap_tree(overlay.inventory)
    homes = np.array([inventory.index[known[name]] for name in sets.publishers], dtype=np.intp)
    expected = overlay_cost(tree, inventory, DeliverySets.joined(overlay.spans)).total_per_s
    assert TreeCosts(tree, inventory, sets.at_homes(homes)).cost_per_s == pytest.approx(expected)
