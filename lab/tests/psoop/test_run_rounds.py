import random
from dataclasses import replace

import numpy as np
import pytest

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import TreeState
from regraft.api.trees import TreeConfiguration, random_tree
from regraft_lab.psoop.adapt_overlay import CI, MST, RANDOM_TREE
from regraft_lab.psoop.broker_caches import CacheReader
from regraft_lab.psoop.paper_workload import Workload, WorkloadSettings, draw_workload
from regraft_lab.psoop.run_rounds import CacheKnowledge, OverlayRun, paper_caches, run_rounds
from regraft_lab.psoop.topologies import uniform_costs
from regraft_lab.yardsticks.yardstick_trees import minimum_spanning_tree

BROKERS = [f"b{number:02d}" for number in range(12)]
SETTINGS = WorkloadSettings(broker_count=12, type_count=8, duration_ticks=1_000)


@pytest.fixture
def workload() -> Workload:
    return draw_workload(SETTINGS, np.random.default_rng(1))


def drawn_costs(seed: int, tree: TreeConfiguration) -> Inventory:
    """Return uniform costs over the tree's brokers."""
    rng = np.random.default_rng(seed)
    return Inventory(tree.brokers, rng.uniform(0, 10, 12), uniform_costs(12, rng), 12, tree)


@pytest.fixture
def tree() -> TreeConfiguration:
    return random_tree(BROKERS, 12, random.Random(1))


def test_costs_hold_from_the_round_that_starts_with_them(workload: Workload, tree: TreeConfiguration) -> None:
    """Twice the costs from tick 500 on: the third and the fourth round cost twice as much."""
    low = drawn_costs(1, tree)
    high = replace(low, link_cost=2 * low.link_cost, processing_cost=2 * low.processing_cost)
    steady = OverlayRun(RANDOM_TREE, lambda tick: low, tree, random.Random(1))
    rising = OverlayRun(RANDOM_TREE, lambda tick: low if tick < 500 else high, tree, random.Random(1))
    run_rounds(workload, [steady, rising], (0, 1_000))
    assert np.array(rising.forwarding) / steady.forwarding == pytest.approx([1, 1, 2, 2])


def test_a_change_at_the_end_of_a_round_is_seen_one_round_later(workload: Workload, tree: TreeConfiguration) -> None:
    """The MST of the new costs is only in use after a round under them."""
    old, new = drawn_costs(1, tree), drawn_costs(2, tree)
    run = OverlayRun(MST, lambda tick: old if tick < 500 else new, tree, random.Random(1))
    run_rounds(workload, [run], (0, 500))
    assert run.configuration.links == minimum_spanning_tree(old).links
    run_rounds(workload, [run], (500, 750))
    assert run.configuration.links == minimum_spanning_tree(new).links


def test_all_overlays_carry_all_notifications(workload: Workload, tree: TreeConfiguration) -> None:
    """With no link costs and p = 1 the cost counts brokers of delivery trees: at least the ten of V(n) each."""
    free = Inventory(tree.brokers, np.ones(12), np.zeros((12, 12)), 12, tree)
    runs = [OverlayRun(variant, lambda tick: free, tree, random.Random(1)) for variant in (RANDOM_TREE, CI)]
    reported: list[int] = []
    run_rounds(workload, runs, (0, 1_000), report_rounds=reported.append)
    for run in runs:
        assert 10 * workload.notification_count <= sum(run.forwarding) <= 12 * workload.notification_count
    assert reported == [2] * 4


def test_what_the_caches_know_is_computed_once_for_all_overlays(
    workload: Workload, tree: TreeConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No planner finds the sets of the caches, the distinct ones among them, or the interest again."""
    computed: list[object] = []
    for value in (TreeState.sets, TreeState.weighted, TreeState.interest, DeliverySets.distinct):
        monkeypatch.setattr(value, "func", computed.append)
    caches = paper_caches(CacheReader(workload), workload, 1_000)
    knowledge = CacheKnowledge(caches, BROKERS, 1_000.0)
    one, other = (knowledge.state(tree, drawn_costs(seed, tree)) for seed in range(2))
    assert one.sets is other.sets
    assert one.weighted is other.weighted
    assert one.interest is other.interest is caches.interest
    assert one.sets.distinct[1].sum() == caches.counts.sum()
    assert computed == []
