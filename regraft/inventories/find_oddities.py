"""What is odd about an inventory that can be used: probably not what its operator meant.

What cannot be used is refused by the reader (:mod:`overlay.inventory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from regraft.inventories.found_brokers import counted
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.node_kinds import kind_error
from regraft.schemas.texts import name_some

TRIANGLE_BROKERS_MAX = 1_000  # Some seconds; the work grows with the cube.
DETOUR_FACTOR = 1.1  # Measured delays of shorter detours are noise.
SHOWN_MAX = 5


def find_oddities(inventory: Inventory) -> list[str]:
    """Return what is odd, one sentence each; empty if nothing is."""
    checks: tuple[Callable[[Inventory], Iterator[str]], ...] = (_costs, _triangles, _degrees, _agents, _clients)
    return [sentence for check in checks for sentence in check(inventory)]


def _costs(inventory: Inventory) -> Iterator[str]:
    brokers, costs = inventory.brokers, inventory.link_cost
    if own := [broker for broker, cost in zip(brokers, costs.diagonal(), strict=True) if cost]:
        yield f"link_cost of {_listed(own)} to itself is not 0: it is not used"
    others = costs[np.triu_indices(len(brokers), 1)]
    if len(others) > 1 and (others == others[0]).all():
        yield (
            f"all links cost {others[0]:g}: if these are placeholders, set controller.links.estimate_unmeasured, so "
            "that plans wait for what nodes measure"
        )
        return
    free = np.argwhere(np.triu(costs == 0, 1)).tolist()
    if free:
        pairs = [f"{brokers[i]}-{brokers[j]}" for i, j in free]
        yield f"the cost is 0 for {counted(len(pairs), 'link')}: {_listed(pairs)}"


def _triangles(inventory: Inventory) -> Iterator[str]:
    """Yield how many links a detour over one broker undercuts, and the worst."""
    brokers, costs = inventory.brokers, inventory.link_cost
    if len(brokers) > TRIANGLE_BROKERS_MAX:
        yield (
            f"detours are not checked: there are {len(brokers)} brokers, but at most {TRIANGLE_BROKERS_MAX} are checked"
        )
        return
    links = costs.copy()
    np.fill_diagonal(links, np.inf)  # So that no detour begins or ends at its middle.
    least, over = np.full_like(costs, np.inf), np.empty_like(costs)
    for middle in range(len(brokers)):
        np.minimum(least, np.add(links[:, middle, None], links[None, middle, :], out=over), out=least)
    worse = np.triu(costs > DETOUR_FACTOR * least, 1)
    if not worse.any():
        return
    i, j = np.unravel_index(np.argmax(np.where(worse, costs - least, -1.0)), costs.shape)
    via = brokers[int(np.argmin(links[i] + links[j]))]
    pairs = len(brokers) * (len(brokers) - 1) // 2
    yield (
        f"a detour over one broker costs at least 10% less for {counted(int(worse.sum()), 'link')} of {pairs:,}: "
        f"most so for {brokers[i]}-{brokers[j]}, {costs[i, j]:g} directly and {least[i, j]:g} over {via}"
    )


def _degrees(inventory: Inventory) -> Iterator[str]:
    overlay, most = inventory.bootstrap, inventory.degree_max
    if not isinstance(overlay, TreeConfiguration):
        return
    if above := [broker for broker, peers in overlay.neighbours.items() if len(peers) > most]:
        yield (
            f"degree_max is {most}, but the initial overlay has up to {overlay.degree_max} links at a broker: "
            f"{_listed(above)} get no further link until they have fewer"
        )


def _agents(inventory: Inventory) -> Iterator[str]:
    without = [broker for broker in inventory.brokers if broker not in inventory.agent_of]
    if inventory.agent_of and without:
        yield f"{len(without)} of {len(inventory.brokers)} brokers have no agent and share topics: {_listed(without)}"


def _clients(inventory: Inventory) -> Iterator[str]:
    if inventory.clients_stay and (error := kind_error(inventory)):
        yield f"clients_stay is true on {error}"


def _listed(names: list[str]) -> str:
    return name_some(names, SHOWN_MAX)
