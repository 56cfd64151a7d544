"""The cost of messages for adapting: broadcasts, requests, reports, exchanges of links.

Reading: the paper counts costs "per message as we assume that messages do not vary too much in size" (section 3), so a
message costs as much as a notification on the same path by Eq. 1: c of every link it crosses and p of every broker that
handles it, including the sender.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Inventory, Link
from regraft.api.records import Proposal
from regraft.api.trees import Paths, TreeConfiguration

# An exchange is announced around its cycle and confirmed; the paper refers to its [9].
CONTROL_MESSAGES_PER_LINK = 2
COMMANDS_PER_BROKER = 4  # Ours: prepare and its result, activate and its result.


def broadcast_cost(paths: Mapping[int, Paths], inventory: Inventory) -> float:
    """Return the cost of one broadcast by every broker: it sends its cache to all brokers within the horizon.

    Source: Jaeger07, section 4.3.1: a broadcast floods the tree up to eta hops. ``paths``: those of
    ``controller.planners.tree.swap_links_ci`` for eta; each adds its last link and its last broker to the delivery
    tree of its first one.
    """
    cost = float(inventory.processing_cost.sum())
    for length_paths in paths.values():
        before, last = length_paths[:, -2], length_paths[:, -1]
        cost += float((inventory.link_cost[before, last] + inventory.processing_cost[last]).sum())
    return cost


def request_cost(paths: Paths, inventory: Inventory) -> float:
    """Return the cost of one request along each of these paths (section 4.3.2)."""
    return float(inventory.link_cost[paths[:, :-1], paths[:, 1:]].sum() + inventory.processing_cost[paths].sum())


def exchange_cost(
    configuration: TreeConfiguration, inventory: Inventory, proposal: Proposal, members: NDArray[np.int64]
) -> float:
    """Return the cost of exchanging links: control messages and moved subscriptions, around the cycle of each new link.

    ``members`` (types, brokers of V): the brokers that currently want each type. The paper leaves the exchange to its
    reference [9]. We assume two control messages over every link of the cycle (announcement and confirmation), and one
    subscription message over every link for each type whose notifications crossed a removed link, because only their
    routes change.
    """
    moved = np.zeros(len(members), dtype=np.bool_)
    for ends in proposal.links_removed:
        beyond = behind_link(configuration, inventory, ends)[members]
        moved |= beyond.any(axis=1) & ~beyond.all(axis=1)
    messages = CONTROL_MESSAGES_PER_LINK + int(moved.sum())
    total = 0.0
    for ends in proposal.links_added:
        cycle = [inventory.index[broker] for broker in configuration.path(*ends)]
        links = inventory.link_cost[cycle, np.roll(cycle, -1)].sum()
        total += messages * float(links + inventory.processing_cost[cycle].sum())
    return total


def behind_link(configuration: TreeConfiguration, inventory: Inventory, ends: Link) -> NDArray[np.bool_]:
    """Return a mask of the brokers on the side of a link's second end, shape (brokers,)."""
    beyond = np.zeros(len(inventory.brokers), dtype=np.bool_)
    frontier = [ends[1]]
    came_from = {ends[1]: ends[0]}
    for broker in frontier:
        beyond[inventory.index[broker]] = True
        for peer in configuration.neighbours[broker]:
            if peer != came_from[broker]:
                came_from[peer] = broker
                frontier.append(peer)
    return beyond


def path_costs(configuration: TreeConfiguration, inventory: Inventory) -> NDArray[np.float64]:
    """Return the cost of one message from broker i to broker j along the tree, shape (n, n); p_i for i = j."""
    root = configuration.brokers[0]
    index = inventory.index
    costs = np.zeros_like(inventory.link_cost)
    np.fill_diagonal(costs, inventory.processing_cost)
    done = [index[root]]
    for broker, parent in configuration.parents_from(root).items():
        here, above = index[broker], index[parent]
        step = inventory.link_cost[here, above] + inventory.processing_cost[here]
        costs[here, done] = costs[done, here] = costs[above, done] + step
        done.append(here)
    return costs


def report_cost(configuration: TreeConfiguration, inventory: Inventory) -> float:
    """Return the cost of one report by every broker to a controller at the best placed broker.

    A central controller needs no broadcasts. Sending its messages over the overlay's links is an assumption against it:
    it can have its own links.
    """
    return float(path_costs(configuration, inventory).sum(axis=0).min())


def transition_cost(configuration: TreeConfiguration, inventory: Inventory) -> float:
    """Return the cost of a plan on the tree it starts from, without subscriptions: commands, results, END markers."""
    ends = np.array([[inventory.index[a], inventory.index[b]] for a, b in configuration.links])
    # END crosses every link in both directions and is handled at both ends each time.
    markers = 2 * (inventory.link_cost[ends[:, 0], ends[:, 1]].sum() + inventory.processing_cost[ends].sum())
    return COMMANDS_PER_BROKER * report_cost(configuration, inventory) + float(markers)
