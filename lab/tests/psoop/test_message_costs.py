import random
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from regraft.api.overlays import Inventory, link
from regraft.api.records import Proposal
from regraft.api.trees import TreeConfiguration, paths_within, random_tree
from regraft_lab.psoop.message_costs import (
    behind_link,
    broadcast_cost,
    exchange_cost,
    path_costs,
    report_cost,
    request_cost,
    transition_cost,
)

BROKERS = [f"b{number:02d}" for number in range(14)]


def drawn_inventory(seed: int) -> Inventory:
    """Return fourteen brokers on a random tree with random costs."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(1, 10, (14, 14)), 1)
    tree = random_tree(BROKERS, 14, random.Random(seed))
    return Inventory(tree.brokers, rng.uniform(1, 10, 14), upper + upper.T, 14, tree)


def line_of_four() -> Inventory:
    """Return b0 - b1 - b2 - b3, each link costs 2, each broker 1."""
    brokers = [f"b{number}" for number in range(4)]
    tree = TreeConfiguration.of(0, brokers, pairwise(brokers))
    costs = np.full((4, 4), 2.0)
    np.fill_diagonal(costs, 0)
    return Inventory(tree.brokers, np.ones(4), costs, 4, tree)


def swap(removed: tuple[str, str], added: tuple[str, str]) -> Proposal:
    """Return a proposal of one exchange."""
    return Proposal("any", (link(*removed),), (link(*added),), 2.0, 1.0, 0.0, "")


@pytest.mark.parametrize("eta", [1, 2, 4])
def test_a_broadcast_costs_what_the_subtree_within_the_horizon_costs(eta: int) -> None:
    """Each sender's message crosses every link and passes every broker up to eta hops away, including its own."""
    inventory = drawn_inventory(eta)
    graph = nx.Graph(inventory.bootstrap.links)
    expected = 0.0
    for sender in BROKERS:
        near = nx.ego_graph(graph, sender, radius=eta)
        expected += sum(inventory.cost_of_link(*ends) for ends in near.edges)
        expected += sum(inventory.processing_cost[inventory.index[broker]] for broker in near)
    assert broadcast_cost(paths_within(inventory.bootstrap, eta), inventory) == pytest.approx(expected)


def test_a_request_costs_its_path() -> None:
    """From b0 to b3: three links at 2, four brokers at 1."""
    assert request_cost(np.array([[0, 1, 2, 3]]), line_of_four()) == 10.0


def test_an_exchange_moves_only_what_crossed_the_removed_link() -> None:
    """On the cycle b0 b1 b2 b3 (4 links at 2, 4 brokers at 1): 2 control messages and 1 of the 2 types."""
    inventory = line_of_four()
    proposal = swap(("b1", "b2"), ("b0", "b3"))
    members = np.array([[0, 1], [1, 3]])
    assert exchange_cost(inventory.bootstrap, inventory, proposal, members) == (2 + 1) * (4 * 2 + 4 * 1)


def test_removing_a_link_splits_the_tree() -> None:
    """Behind b1-b2 are b2 and b3."""
    inventory = line_of_four()
    assert behind_link(inventory.bootstrap, inventory, ("b1", "b2")).tolist() == [False, False, True, True]


def test_messages_along_the_tree_cost_their_paths() -> None:
    """Compared with paths that are looked up one by one."""
    inventory = drawn_inventory(5)
    costs = path_costs(inventory.bootstrap, inventory)
    for i, source in enumerate(inventory.brokers):
        for j, target in enumerate(inventory.brokers):
            path = inventory.bootstrap.path(source, target)
            links = sum(inventory.cost_of_link(a, b) for a, b in pairwise(path))
            brokers = sum(inventory.processing_cost[inventory.index[broker]] for broker in path)
            assert costs[i, j] == pytest.approx(links + brokers)
    assert report_cost(inventory.bootstrap, inventory) == pytest.approx(min(costs.sum(axis=0)))


def test_a_transition_pays_commands_and_markers() -> None:
    """Line of four: reports to b1 cost 4 + 1 + 4 + 7; each of 3 links carries END twice, 2 + 1 + 1 each time."""
    inventory = line_of_four()
    assert report_cost(inventory.bootstrap, inventory) == 16
    assert transition_cost(inventory.bootstrap, inventory) == 4 * 16 + 3 * 2 * 4
