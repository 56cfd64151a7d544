"""Small named overlays and random ones, for tests of every stage."""

import itertools
import random

import numpy as np
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration

NO_CAP = 1000


def brokers_named(count: int) -> tuple[str, ...]:
    """Return b00, b01, ..."""
    return tuple(f"b{number:02d}" for number in range(count))


def line_of(count: int, epoch: int = 0) -> TreeConfiguration:
    """Return the line b00 - b01 - b02 - ..."""
    names = brokers_named(count)
    return TreeConfiguration.of(epoch, names, itertools.pairwise(names))


def inventory_of(
    configuration: TreeConfiguration, costs: dict[tuple[str, str], float], processing: float = 1.0
) -> Inventory:
    """Return an inventory in which the named links have the given costs, and all others cost 10."""
    brokers = configuration.brokers
    link_cost = np.full((len(brokers), len(brokers)), 10.0)
    np.fill_diagonal(link_cost, 0.0)
    row = {broker: position for position, broker in enumerate(brokers)}
    for (a, b), cost in costs.items():
        link_cost[row[a], row[b]] = link_cost[row[b], row[a]] = cost
    return Inventory(brokers, np.full(len(brokers), processing), link_cost, NO_CAP, configuration)


def sets_of(
    brokers: tuple[str, ...], wanted: list[set[str]], span_s: float = 1.0, publisher: str = "p"
) -> DeliverySets:
    """Return sets with one notification of the publisher for each set of brokers in ``wanted``."""
    masks: dict[tuple[str, str, int], int] = {}
    for sequence, places in enumerate(wanted):
        for broker in places:
            key = (broker, publisher, sequence // 64)
            masks[key] = masks.get(key, 0) | 1 << sequence % 64
    return DeliverySets.of(brokers, masks, span_s)


def publishers_of(
    brokers: tuple[str, ...], published: dict[str, tuple[str, list[set[str]]]], span_s: float = 1.0
) -> DeliverySets:
    """Return sets from, for each publisher, its home and the brokers that deliver each of its notifications."""
    delivered: dict[tuple[str, str, int], int] = {}
    made: dict[tuple[str, str, int], int] = {}
    for publisher, (home, wanted) in published.items():
        for sequence, places in enumerate(wanted):
            block, bit = divmod(sequence, 64)
            made[home, publisher, block] = made.get((home, publisher, block), 0) | 1 << bit
            for broker in places:
                delivered[broker, publisher, block] = delivered.get((broker, publisher, block), 0) | 1 << bit
    return DeliverySets.of(brokers, delivered, span_s, published=made)


@st.composite
def overlays(
    draw: st.DrawFn, count_max: int = 9, degree_max: int = NO_CAP
) -> tuple[Inventory, list[set[str]], DeliverySets]:
    """Draw a random tree with random costs, and random notifications both as sets and as bits."""
    count = draw(st.integers(3, count_max))
    rng = random.Random(draw(st.integers(0, 2**32)))
    brokers = brokers_named(count)
    link_cost = np.zeros((count, count))
    for i in range(count):
        for j in range(i):
            link_cost[i, j] = link_cost[j, i] = rng.randrange(1, 100) / 4
    processing = np.array([rng.randrange(0, 40) / 4 for _ in brokers])
    tree = random_tree(brokers, degree_max, rng)
    wanted = [set(rng.sample(brokers, rng.randrange(1, count + 1))) for _ in range(rng.randrange(1, 150))]
    span_s = rng.choice([0.5, 1.0, 4.0])
    return Inventory(brokers, processing, link_cost, degree_max, tree), wanted, sets_of(brokers, wanted, span_s)


def cost_by_delivery_trees(configuration: TreeConfiguration, inventory: Inventory, wanted: list[set[str]]) -> float:
    """Jaeger07, Eq. 1-2 taken literally: prune each notification's tree leaf by leaf, then add up what is left."""
    total = 0.0
    for places in wanted:
        links = set(configuration.links)
        brokers = set(configuration.brokers)
        pruned = True
        while pruned:
            pruned = False
            for broker in sorted(brokers - places):
                own = [pair for pair in links if broker in pair]
                if len(own) <= 1:
                    brokers.discard(broker)
                    links.difference_update(own)
                    pruned = True
        total += sum(inventory.cost_of_link(*pair) for pair in sorted(links))
        total += sum(float(inventory.processing_cost[inventory.index[broker]]) for broker in sorted(brokers))
    return total
