"""Swap links of the tree by Cost and Interest: Jaeger07, section 4, Eq. 3-10.

In: the state over a horizon, read as the caches of all brokers. Out: proposals. The true cost of a swap, and whether it
is worth its transition cost, do not belong here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.shared_settings import HorizonSettings, Order
from regraft.controller.state.planner_interface import PlannerSpec
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.plan import Proposal
from regraft.schemas.texts import figure

Paths = NDArray[np.intp]


def paths_within(configuration: TreeConfiguration, hops_max: int) -> dict[int, Paths]:
    """Return, for each hop count from 1 to ``hops_max``, all directed paths of that length.

    Each array has shape (paths, hops + 1) and is sorted; it contains each path and its reverse. If the tree has no path
    of a length, its array is empty. Raises ValueError if ``hops_max`` is below 1. Cost O(paths).
    """
    if hops_max < 1:
        raise ValueError(f"hops_max is {hops_max}, a horizon has at least 1 hop")
    position = {broker: index for index, broker in enumerate(configuration.brokers)}
    neighbours = [[position[peer] for peer in configuration.neighbours[broker]] for broker in configuration.brokers]
    degrees = np.array([len(peers) for peers in neighbours], dtype=np.intp)
    flat = np.array([peer for peers in neighbours for peer in peers], dtype=np.intp)
    starts = np.cumsum(degrees) - degrees
    paths = np.column_stack([np.repeat(np.arange(len(degrees), dtype=np.intp), degrees), flat])
    by_hops = {1: paths}
    for hops in range(2, hops_max + 1):
        paths = _extended(paths, degrees, starts, flat)
        by_hops[hops] = paths
    return by_hops


def _extended(paths: Paths, degrees: Paths, starts: Paths, flat: Paths) -> Paths:
    """Return every path extended by one hop without turning back, which cannot close a cycle in a tree."""
    ends = paths[:, -1]
    counts = degrees[ends]
    origin = np.repeat(np.arange(len(paths), dtype=np.intp), counts)
    within = np.arange(len(origin), dtype=np.intp) - np.repeat(np.cumsum(counts) - counts, counts)
    following = flat[starts[ends[origin]] + within]
    onward = following != paths[origin, -2]
    return np.column_stack([paths[origin[onward]], following[onward]])


PLANNER = "swap_links_ci"
TIE_SHARE = 1e-9  # Cycle costs closer than this are equal: the order of summation changes the last digits of floats.

Costs = NDArray[np.float64]


def rank_swaps(
    state: TreeState,
    order: Order,
    context: TreeContext,
    planner: str,
    reasons: Mapping[LinkSwap, str],
    rng: random.Random,
) -> list[Proposal]:
    """Return proposals for the swaps (keys of ``reasons``), at most ``proposals_max``, in the given ``order``.

    No proposal removes a link of another's cycle, so any subset of them, in any order, leaves a tree. Swaps that break
    ``degree_max``, alone or after the earlier ones, are left out. Cost: one pricing of each swap if they are ranked by
    gain, and one for each proposal.
    """
    costs = state.tree_costs.copy()
    taken: list[tuple[Link, frozenset[Link]]] = []
    proposals: list[Proposal] = []
    for swap in _ordered(state, order, reasons, rng):
        if len(proposals) == context.proposals_max:
            break
        cycle = frozenset(costs.cycle(swap.added))
        if any(removed in cycle or swap.removed in other for removed, other in taken):
            continue
        if context.degree_max is not None and costs.degree_after(swap) > context.degree_max:
            continue
        taken.append((swap.removed, cycle))
        before_per_s = costs.cost_per_s
        costs.apply(swap)
        proposals.append(
            Proposal(
                planner=planner,
                links_removed=(swap.removed,),
                links_added=(swap.added,),
                cost_before_per_s=before_per_s,
                cost_after_per_s=costs.cost_per_s,
                price_per_s=0.0,
                reason=reasons[swap],
            )
        )
    return proposals


def _ordered(state: TreeState, order: Order, reasons: Mapping[LinkSwap, str], rng: random.Random) -> list[LinkSwap]:
    swaps = sorted(reasons)
    if order == "arrival":
        rng.shuffle(swaps)
        return swaps
    return sorted(swaps, key=lambda swap: (-state.tree_costs.gain_per_s(swap), swap))


class CommonInterest(Protocol):
    """Counts what three brokers have in common from what they exchanged."""

    def common(self, i: NDArray[np.intp], k: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return I_ikj as broker i counts it for each triple."""


@dataclass(frozen=True, eq=False)
class LocalKnowledge:
    """What the brokers know of each other: c_ij and p_k, I_ij, and each broker's phi of Eq. 6.

    Row i is what broker i knows: with Bloom filters I_ij and I_ji differ. With ``caches`` the common interest of three
    brokers is counted from what they exchanged, without them it is the paper's estimate by phi.
    """

    link_cost: Costs
    processing_cost: Costs
    interest: NDArray[np.int64]
    phi: Costs
    caches: CommonInterest | None = None

    def path_interest(self, i: NDArray[np.intp], k: NDArray[np.intp], j: NDArray[np.intp]) -> Costs | NDArray[np.int64]:
        """Return broker i's value of I_ikj: min(phi, I_ij, I_ik), or counted."""
        if self.caches is not None:
            return self.caches.common(i, k, j)
        return np.minimum(self.phi[i], np.minimum(self.interest[i, j], self.interest[i, k]))


def swap_links_ci(
    state: TreeState, settings: HorizonSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return the swaps on which the brokers of each reconfiguration cycle would agree.

    Source: Jaeger07, section 4.1 (evaluation) and 4.2 (consensus). Readings where the text is open: B_i belongs to its
    own neighbourhood in Eq. 6, Eq. 7 runs along the path from B_i with B_i's own estimates, a pair without common
    interest adds 0 to Eq. 8, a tie keeps the present topology. Cost O(pairs within eta * eta^3) in array operations.
    Guarantee: none, heuristic. The estimate of I_ikj can approve a swap that makes the tree more expensive. So
    ``cost_before_per_s`` and ``cost_after_per_s`` hold the true cost (``overlay.tree.overlay_cost``), by which all
    planners are compared; the decision itself uses the paper's local criterion only. Departures: interests are exact
    counts over the whole horizon (the lab's ``swap_links_ci_paper`` has the paper's caches and Bloom filters); swaps
    are ordered by true gain (``order`` reverts it); with ``degree_max`` set, only removals that keep the cap are
    compared. Swaps of one call are independent of each other (:mod:`controller.planners.tree.swap_links_ci`).
    ``rng`` draws the order of arrival, if that is chosen.
    """
    paths = paths_within(state.configuration, settings.horizon_hops)
    return rank_swaps(
        state, settings.order, context, PLANNER, agreed_swaps(state, context, paths, local_knowledge(state, paths)), rng
    )


def agreed_swaps(
    state: TreeState, context: TreeContext, paths: Mapping[int, Paths], known: LocalKnowledge
) -> dict[LinkSwap, str]:
    """Return the swaps on which the brokers of each cycle would agree by what they know, each with its reason.

    ``paths`` is from ``controller.planners.tree.swap_links_ci``, whose greatest length is the horizon eta.
    """
    inventory = state.inventory
    degrees = np.array([len(state.configuration.neighbours[broker]) for broker in inventory.brokers])
    reasons: dict[LinkSwap, str] = {}
    for hops in sorted(paths.keys() - {1}):
        wanted = wanted_links(paths[hops], known)
        if len(wanted):
            reasons |= _agreed_swaps(wanted, known, degrees, context.degree_max, inventory.brokers)
    return reasons


def local_knowledge(state: TreeState, paths: Mapping[int, Paths]) -> LocalKnowledge:
    """Return what brokers know if they compare everything that they received in the horizon exactly.

    ``paths`` is from ``controller.planners.tree.swap_links_ci``.
    """
    inventory, interest = state.inventory, state.interest
    phi = mean_common_interest(paths, interest)
    return LocalKnowledge(inventory.link_cost, inventory.processing_cost, interest, phi)


def mean_common_interest(paths: Mapping[int, Paths], interest: NDArray[np.int64]) -> Costs:
    """Return phi of each broker: its mean common interest with the others of its neighbourhood (Eq. 6).

    Eq. 6 sums over the neighbourhood with B_i in it, subtracts I_i and divides by the size less one, which is the mean
    over the others.
    """
    totals = np.zeros(len(interest))
    others = np.zeros(len(interest))
    for length_paths in paths.values():
        np.add.at(totals, length_paths[:, 0], interest[length_paths[:, 0], length_paths[:, -1]])
        np.add.at(others, length_paths[:, 0], 1)
    return totals / np.maximum(others, 1)


def indirect_costs(lines: Paths, known: LocalKnowledge) -> Costs:
    """Return C_ij from the first broker of each line to every broker on it (Eq. 7), shape like ``lines``."""
    first = lines[:, 0]
    costs = np.zeros(lines.shape)
    costs[:, 1] = known.link_cost[first, lines[:, 1]]
    for place in range(2, lines.shape[1]):
        before, here = lines[:, place - 1], lines[:, place]
        common = known.interest[first, here]  # I_ij
        shared = known.path_interest(first, before, here)  # I_ikj
        # Without common notifications nothing is shared, so the whole detour is paid.
        share = np.where(common > 0, (common - shared) / np.maximum(common, 1), 1.0)
        detour = costs[:, place - 1] + known.processing_cost[before]
        costs[:, place] = share * detour + known.link_cost[before, here]
    return costs


def wanting_paths(paths: Paths, known: LocalKnowledge) -> Paths:
    """Return the paths whose first broker would rather join the last directly: I_ij > 0 and c_ij < C_ij."""
    first, last = paths[:, 0], paths[:, -1]
    wants = (known.interest[first, last] > 0) & (known.link_cost[first, last] < indirect_costs(paths, known)[:, -1])
    return paths[wants]


def wanted_links(paths: Paths, known: LocalKnowledge) -> Paths:
    """Return the paths whose ends at least one end would rather join directly.

    A path and its reverse are one new link; it is returned once, from its lesser end.
    """
    chosen = wanting_paths(paths, known)
    forward = np.where((chosen[:, 0] < chosen[:, -1])[:, None], chosen, chosen[:, ::-1])
    return np.unique(forward, axis=0)


def cycle_costs(paths: Paths, known: LocalKnowledge) -> Costs:
    """Return cost_R(e) for every link of each reconfiguration cycle (Eq. 8-9), shape (paths, hops + 1).

    Column t is the removal of the path's link t, the last column the removal of the new link itself.
    """
    size = paths.shape[1]
    costs = np.empty(paths.shape)
    for removed in range(size):
        line = np.roll(paths, -(removed + 1), axis=1)  # The cycle without e is a line that starts behind e.
        costs[:, removed] = _line_cost(line, known)
    return costs


def _line_cost(line: Paths, known: LocalKnowledge) -> Costs:
    """Return the sum of I_ij * C_ij over all ordered pairs of the line; a pair without interest adds 0."""
    total = np.zeros(len(line))
    for place in range(line.shape[1]):
        for walk in (line[:, place:], line[:, place::-1]):
            if walk.shape[1] > 1:
                total += (known.interest[walk[:, :1], walk] * indirect_costs(walk, known))[:, 1:].sum(axis=1)
    return total


def _agreed_swaps(
    paths: Paths, known: LocalKnowledge, degrees: NDArray[np.int64], degree_max: int | None, brokers: tuple[str, ...]
) -> dict[LinkSwap, str]:
    """Return the swap of each cycle if consensus removes another link than the new one, with its reason."""
    costs = cycle_costs(paths, known)
    staying = costs[:, -1]
    removals = costs[:, :-1].copy()
    if degree_max is not None:
        _forbid_above_cap(removals, paths, degrees, degree_max)
    best = removals.argmin(axis=1)
    rows = np.arange(len(paths))
    # A tie keeps the present topology.
    agreed = removals[rows, best] < staying * (1 - TIE_SHARE)
    swaps = {}
    for row in rows[agreed]:
        path, cut = paths[row], int(best[row])
        swap = LinkSwap(
            link(brokers[path[cut]], brokers[path[cut + 1]]),
            link(brokers[path[0]], brokers[path[-1]]),
        )
        swaps[swap] = (
            f"cycle of {len(path)}: its brokers estimate {figure(removals[row, cut])} "
            f"without {swap.removed[0]}-{swap.removed[1]} against {figure(staying[row])} "
            f"without {swap.added[0]}-{swap.added[1]}"
        )
    return swaps


def _forbid_above_cap(removals: Costs, paths: Paths, degrees: NDArray[np.int64], degree_max: int) -> None:
    """Rule out removals that leave an end of the new link above the cap: a full end must lose a link itself."""
    for end, own_link in ((0, 0), (-1, -1)):
        after = degrees[paths[:, end]] + 1
        removals[after > degree_max + 1, :] = np.inf
        others = np.ones(removals.shape[1], dtype=bool)
        others[own_link] = False
        removals[np.ix_(after == degree_max + 1, others)] = np.inf


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    swap_links_ci,
    HorizonSettings,
    summary="links of a tree, by cost and common interest",
    source="Jaeger07, section 4",
)
