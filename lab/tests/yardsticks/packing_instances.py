"""Small instances of users to be packed, with their cost counted message by message."""

import itertools

import networkx as nx
import numpy as np

from regraft.api.trees import Floats
from regraft_lab.yardsticks.packed_users import Homes, PackingInstance


def drawn_instance(
    users: int, brokers: int, channels: int, seed: int, *, room_factor: float = 2.0, is_metric: bool = False
) -> PackingInstance:
    """Return an instance with random rates, subscriptions and prices; half of the rates are 0."""
    rng = np.random.default_rng(seed)
    rates = rng.random((users, channels)) * (rng.random((users, channels)) < 0.5)
    wants = rng.random((users, channels)) < 0.5
    if is_metric:
        places = rng.random((users + brokers, 2))
        price = np.linalg.norm(places[:, None] - places, axis=2)
        access, core = price[:users, users:], price[users:, users:]
    else:
        access, core = rng.random((users, brokers)), np.triu(rng.random((brokers, brokers)), 1)
        core = core + core.T
    return PackingInstance.of(rates, wants, access, core, room_factor)


def counted_cost_per_s(instance: PackingInstance, homes: Homes) -> tuple[float, float]:
    """Return the cost of access links and of trees, summed over publishers and sub-channels."""
    access = core = 0.0
    for publisher, channel in itertools.product(range(instance.user_count), range(instance.rates.shape[1])):
        rate = instance.rates[publisher, channel]
        takers = [user for user in np.flatnonzero(instance.wants[:, channel]).tolist() if user != publisher]
        if rate == 0 or not takers:
            continue
        access += rate * sum(instance.access_price[user, homes[user]] for user in (publisher, *takers))
        core += rate * tree_price(instance.core_price, {int(homes[user]) for user in (publisher, *takers)})
    return access, core


def tree_price(core_price: Floats, brokers: set[int]) -> float:
    """Return the price of a minimum spanning tree over some brokers, computed by another implementation."""
    graph = nx.Graph()
    graph.add_nodes_from(brokers)
    graph.add_weighted_edges_from((a, b, core_price[a, b]) for a, b in itertools.combinations(sorted(brokers), 2))
    return float(sum(data["weight"] for _, _, data in nx.minimum_spanning_edges(graph)))
