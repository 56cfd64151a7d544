"""Small random overlays whose publishers and deliveries are known, for tests of every stage."""

import random
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from tests.overlay.small_overlays import NO_CAP, brokers_named


@dataclass(frozen=True)
class Published:
    """One notification: its publisher, the span it falls into, and the brokers that delivered it."""

    publisher: str
    span: int
    delivered: frozenset[str]


def spans_of(
    brokers: tuple[str, ...], notifications: list[Published], homes: dict[str, str], spans_s: list[float]
) -> list[DeliverySets]:
    """Return the delivery sets of each span, with publications at the homes kept separate from deliveries."""
    delivered: list[dict[tuple[str, str, int], int]] = [{} for _ in spans_s]
    published: list[dict[tuple[str, str, int], int]] = [{} for _ in spans_s]
    sequences = dict.fromkeys(homes, 0)
    for one in sorted(notifications, key=lambda notification: notification.span):
        sequence = sequences[one.publisher]
        sequences[one.publisher] += 1
        block, bit = sequence // 64, 1 << sequence % 64
        at_home = (homes[one.publisher], one.publisher, block)
        published[one.span][at_home] = published[one.span].get(at_home, 0) | bit
        for broker in one.delivered:
            key = (broker, one.publisher, block)
            delivered[one.span][key] = delivered[one.span].get(key, 0) | bit
    return [DeliverySets.of(brokers, *each) for each in zip(delivered, spans_s, published, strict=True)]


@dataclass(frozen=True)
class PublishedOverlay:
    """A tree with costs, its notifications, and the same notifications as one delivery set per span."""

    inventory: Inventory
    homes: dict[str, str]
    notifications: list[Published]
    spans: list[DeliverySets]

    @property
    def configuration(self) -> TreeConfiguration:
        """Return the tree with the publishers at their homes."""
        tree = self.inventory.bootstrap
        return TreeConfiguration.of(tree.epoch, tree.brokers, tree.links, self.homes)


def draw_overlay(
    rng: random.Random, brokers_max: int = 9, publishers_max: int = 4, notifications_max: int = 150
) -> PublishedOverlay:
    """Return a random tree with random costs; most notifications of a publisher go to the same few brokers."""
    brokers = brokers_named(rng.randrange(2, brokers_max + 1))
    count = len(brokers)
    link_cost = np.zeros((count, count))
    for i in range(count):
        for j in range(i):
            link_cost[i, j] = link_cost[j, i] = rng.randrange(0, 100) / 4
    processing = np.array([rng.randrange(0, 40) / 4 for _ in brokers])
    tree = random_tree(brokers, NO_CAP, rng)
    homes = {f"p{number}": rng.choice(brokers) for number in range(rng.randrange(1, publishers_max + 1))}
    spans_s = [rng.choice([0.5, 1.0, 4.0]) for _ in range(rng.randrange(1, 4))]
    share = {(name, broker): rng.choice([0.0, 0.0, 0.1, 0.5, 1.0]) for name in homes for broker in brokers}
    notifications = []
    for _ in range(rng.randrange(1, notifications_max)):
        name = rng.choice(sorted(homes))
        wanted = frozenset(broker for broker in brokers if rng.random() < share[name, broker])
        notifications.append(Published(name, rng.randrange(len(spans_s)), wanted))
    inventory = Inventory(brokers, processing, link_cost, NO_CAP, tree)
    return PublishedOverlay(inventory, homes, notifications, spans_of(brokers, notifications, homes, spans_s))


@st.composite
def published_overlays(draw: st.DrawFn, brokers_max: int = 9, publishers_max: int = 4) -> PublishedOverlay:
    """Draw a random overlay with publishers."""
    return draw_overlay(random.Random(draw(st.integers(0, 2**32))), brokers_max, publishers_max)
