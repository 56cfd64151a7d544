import random

import numpy as np
import pytest

from regraft.api.overlays import Inventory
from regraft.api.planning import TreeState
from regraft.api.trees import random_tree
from regraft_lab.psoop.adapt_overlay import CI, OURS, RANDOM_TREE, Round, adapt
from regraft_lab.psoop.broker_caches import CacheReader
from regraft_lab.psoop.message_costs import report_cost, transition_cost
from regraft_lab.psoop.paper_workload import WorkloadSettings, draw_workload
from regraft_lab.psoop.run_rounds import CacheKnowledge
from regraft_lab.psoop.topologies import uniform_costs

SETTINGS = WorkloadSettings(broker_count=16, type_count=8, duration_ticks=1_000)


@pytest.fixture(scope="module")
def known() -> tuple[TreeState, np.ndarray]:
    """Return sixteen brokers on a random tree after 1,000 ticks of traffic, and who wants what now."""
    workload = draw_workload(SETTINGS, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    tree = random_tree([f"b{number:02d}" for number in range(16)], 16, random.Random(1))
    inventory = Inventory(tree.brokers, rng.uniform(0, 10, 16), uniform_costs(16, rng), 16, tree)
    caches = CacheReader(workload).newest(workload.notification_count, 8192)
    return CacheKnowledge(caches, tree.brokers, 1_000.0).state(tree, inventory), workload.members_at(1_000)


def test_our_exchanges_must_pay_back_in_time(known: tuple[TreeState, np.ndarray]) -> None:
    """Without time to pay back nothing is exchanged and only the reports are paid; with a lifetime links change."""
    state, members = known
    refused = adapt(OURS, state, members, 0.0, random.Random(1))
    assert refused == Round(state.configuration, report_cost(state.configuration, state.inventory))
    accepted = adapt(OURS, state, members, 2_500.0, random.Random(1))
    assert accepted.exchanges > 0
    assert accepted.exchange > transition_cost(state.configuration, state.inventory)
    assert accepted.configuration.degree_max <= max(8, state.configuration.degree_max)


def test_unsuccessful_requests_are_paid_too(known: tuple[TreeState, np.ndarray]) -> None:
    """More brokers request a direct link than get one in a round."""
    state, members = known
    done = adapt(CI, state, members, 0.0, random.Random(1))
    assert done.exchanges > 0
    assert done.request > 0
    assert done.configuration.epoch == state.configuration.epoch + done.exchanges


def test_a_static_tree_stays(known: tuple[TreeState, np.ndarray]) -> None:
    """Leaving it unchanged costs nothing."""
    state, members = known
    assert adapt(RANDOM_TREE, state, members, 0.0, random.Random(1)) == Round(state.configuration)
