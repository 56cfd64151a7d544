"""Jaeger07, what brokers of Cost and Interest know: bounded caches, Bloom filters, interest of three brokers."""

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planners import (
    LocalKnowledge,
    cycle_costs,
    indirect_costs,
    mean_common_interest,
    wanted_links,
    wanting_paths,
)
from regraft.api.planning import ClosedWindow, TreeContext, TreeState
from regraft.api.records import Proposal
from regraft.api.trees import overlay_cost, paths_within
from regraft_lab.planners.swap_links_ci_paper import InterestSettings, local_knowledge, swap_links_ci_paper
from regraft_lab.yardsticks.bloom_filters import FilterShape
from regraft_lab.yardsticks.interest_caches import InterestCaches
from tests.overlay.small_overlays import inventory_of, line_of, overlays, sets_of

PathInterest = Literal["estimate", "conjunction"]
Drawn = tuple[Inventory, list[set[str]], DeliverySets]

EXACT = InterestSettings()
COUNTED = replace(EXACT, path_interest="conjunction")
HUGE_BITS = 1 << 22


def state_of(inventory: Inventory, *windows: DeliverySets) -> TreeState:
    spans = (ClosedWindow(1000 * at, 1000 * at + 1000, sets) for at, sets in enumerate(windows))
    return TreeState(inventory.bootstrap, inventory, tuple(spans))


def planned(state: TreeState, settings: InterestSettings) -> list[Proposal]:
    return swap_links_ci_paper(state, settings, TreeContext(), random.Random(0))


def links_added(state: TreeState, settings: InterestSettings) -> list[tuple[str, str]]:
    return [pair for proposal in planned(state, settings) for pair in proposal.links_added]


@given(overlays(count_max=3))
def test_counted_costs_are_the_true_ones_on_a_line_of_three(drawn: Drawn) -> None:
    """The cost of B_i's notifications on the line by Eq. 1-2 equals its C_ij if I_ikj is counted (Eq. 3, 7)."""
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    known = local_knowledge(state_of(inventory, sets), COUNTED, paths_within(tree, 2))
    p = inventory.processing_cost
    for i, k, j in paths_within(tree, 2)[2].tolist():
        words = sets.words & sets.words[i]
        of_i = DeliverySets(sets.brokers, sets.columns, words, sets.span_s, words)
        c_ij = indirect_costs(np.array([[i, k, j]]), known)[0, -1]
        total = known.interest[i, i] * p[i]
        total += known.interest[i, k] * (inventory.link_cost[i, k] + p[k]) + known.interest[i, j] * (c_ij + p[j])
        assert total == pytest.approx(overlay_cost(tree, inventory, of_i).total_per_s * sets.span_s)


def test_the_estimate_includes_common_interest_that_the_count_excludes() -> None:
    """b00 shares 10 with b01 and 10 with b02, none with both: counted it wants the direct link, estimated it does not.

    The detour costs 10 + 1 + 10 = 21 for each of the 10. The mean over the neighbourhood assumes that b01 wants all of
    them, so only the last link's 10 remain, less than the direct link's 15.
    """
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 15.0})
    sets = sets_of(tree.brokers, [{"b00", "b01"}] * 10 + [{"b00", "b02"}] * 10)
    path = np.array([[0, 1, 2]])
    found = {}
    for settings in (EXACT, COUNTED):
        known = local_knowledge(state_of(inventory, sets), settings, paths_within(tree, 4))
        found[settings.path_interest] = indirect_costs(path, known)[0, -1], len(wanting_paths(path, known))
    assert found == {"estimate": (10, 0), "conjunction": (21, 1)}


@given(overlays(), st.sampled_from(["estimate", "conjunction"]))
def test_a_huge_filter_decides_as_masks_do(drawn: Drawn, path_interest: PathInterest) -> None:
    """A Bloom filter without false positives changes no decision; neither does a cache that holds everything."""
    inventory, _, sets = drawn
    state = state_of(inventory, sets)
    exact = replace(EXACT, path_interest=path_interest)
    filtered = replace(exact, bloom_bits=HUGE_BITS, cache_ids_max=8192)
    assert planned(state, exact) == planned(state, filtered)


def ids_of(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> set[int]:
    return {64 * column + bit for column, word in enumerate(words.tolist()) for bit in range(64) if word >> bit & 1}


@given(overlays(), st.sampled_from(["estimate", "conjunction"]), st.integers(20, 200))
def test_every_broker_uses_its_own_estimates(drawn: Drawn, path_interest: PathInterest, bits: int) -> None:
    """With false positives I_ij and I_ji differ; phi, C_ij and cost_R(e) use B_i's own, as Eq. 6-9 do literally."""
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    caches = InterestCaches.of_filters(sets, FilterShape(bits, 2))
    own, claimed = [[ids_of(row) for row in words] for words in (caches.own, caches.claimed)]
    paths = paths_within(tree, 4)
    settings = replace(EXACT, path_interest=path_interest, bloom_bits=bits, bloom_hashes=2)
    known = local_knowledge(state_of(inventory, sets), settings, paths)

    def interest(i: int, j: int) -> int:
        return len(own[i] & claimed[j])

    def phi(i: int) -> float:
        near = [j for found in paths.values() for j in found[found[:, 0] == i][:, -1].tolist()]
        return sum(interest(i, j) for j in near) / len(near)

    def c(path: list[int]) -> float:
        if len(path) < 3:
            return float(inventory.link_cost[path[0], path[-1]])
        i, k, j = path[0], path[-2], path[-1]
        estimated = min(phi(i), interest(i, j), interest(i, k))
        shared = len(own[i] & claimed[k] & claimed[j]) if path_interest == "conjunction" else estimated
        share = (interest(i, j) - shared) / interest(i, j) if interest(i, j) else 1.0
        return share * (c(path[:-1]) + float(inventory.processing_cost[k])) + float(inventory.link_cost[k, j])

    assert known.phi.tolist() == pytest.approx([phi(i) for i in range(len(tree.brokers))])
    for found in (paths[hops] for hops in (2, 3, 4) if len(paths[hops])):
        path = found[0].tolist()
        for removed, cost in enumerate(cycle_costs(found[:1], known)[0]):
            line = path[removed + 1 :] + path[: removed + 1]
            walks = [
                line[a : b + 1] if a < b else line[b : a + 1][::-1]
                for a in range(len(line))
                for b in range(len(line))
                if a != b
            ]
            assert cost == pytest.approx(sum(interest(walk[0], walk[-1]) * c(walk) for walk in walks))


def test_either_end_may_want_the_link() -> None:
    """Only b02 estimates a common interest, as false positives may cause: the link is requested once, from that end."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 1.0})
    interest = np.array([[9, 9, 0], [9, 9, 9], [4, 9, 9]])
    phi = mean_common_interest(paths_within(tree, 2), interest)
    known = LocalKnowledge(inventory.link_cost, inventory.processing_cost, interest, phi)
    both = np.array([[0, 1, 2], [2, 1, 0]])
    assert wanting_paths(both, known).tolist() == [[2, 1, 0]]
    assert wanted_links(both, known).tolist() == [[0, 1, 2]]


def test_a_bounded_cache_forgets_old_interest() -> None:
    """b00 and b02 once had everything in common; once other notifications fill their caches, no link joins them."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 1.0})
    before = sets_of(tree.brokers, [{"b00", "b02"}] * 100, publisher="p")
    since = sets_of(tree.brokers, [{"b00"}, {"b02"}] * 100, publisher="q")
    state = state_of(inventory, before, since)
    assert links_added(state, EXACT) == [("b00", "b02")]
    assert links_added(state, replace(EXACT, cache_ids_max=150)) == [("b00", "b02")]
    assert links_added(state, replace(EXACT, cache_ids_max=100)) == []


def test_a_coarse_filter_may_join_brokers_without_common_interest() -> None:
    """A filter of 64 bits claims everything, so b00 and b02 seem to share what they do not."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 1.0})
    state = state_of(inventory, sets_of(tree.brokers, [{"b00"}, {"b02"}] * 200))
    assert links_added(state, EXACT) == []
    assert links_added(state, replace(EXACT, bloom_bits=64)) == [("b00", "b02")]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (InterestSettings(cache_ids_max=0), "cache_ids_max is 0: must be at least 1, or none for the whole horizon"),
        (InterestSettings(bloom_bits=0), "bloom_bits is 0: must be at least 1, or none for exact masks"),
        (InterestSettings(bloom_hashes=65), "bloom_hashes is 65: must be from 1 to 64"),
        (InterestSettings(path_interest="mean"), "path_interest is 'mean': estimate or conjunction"),  # type: ignore[arg-type]
    ],
)
def test_impossible_settings_are_reported(settings: InterestSettings, error: str) -> None:
    """Each error names the value and the limit."""
    assert settings.errors() == [error]
