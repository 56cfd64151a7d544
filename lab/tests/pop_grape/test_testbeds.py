"""The two testbeds: shapes, machines, costs."""

import random
from collections import Counter

import pytest

from regraft.api.emulation import measured_rtt_ms
from regraft_lab.pop_grape.testbeds import (
    CLUSTER_LINK_MS,
    CLUSTER_SAME_MACHINE_MS,
    TESTBEDS,
    balanced_tree,
    cluster_testbed,
    hops_between,
    planetlab_testbed,
)


@pytest.mark.parametrize(("testbed", "brokers", "leaves"), [("planetlab", 63, 32), ("cluster", 127, 64)])
def test_trees_are_complete_and_binary(testbed: str, brokers: int, leaves: int) -> None:
    """The root has two links, inner brokers three, leaves one."""
    tree = TESTBEDS[testbed](random.Random(1)).bootstrap
    links = Counter(len(peers) for peers in tree.neighbours.values())
    assert len(tree.brokers) == brokers
    assert links == {2: 1, 3: leaves - 2, 1: leaves}


def test_planetlab_links_cost_half_of_a_measured_round_trip() -> None:
    """Hosts are real and different, and service takes 1 to 3 ms."""
    inventory = planetlab_testbed(random.Random(2))
    measured = set((measured_rtt_ms() / 2).ravel().tolist())
    assert set(inventory.link_cost.ravel().tolist()) <= measured
    assert ((inventory.processing_cost >= 1.0) & (inventory.processing_cost <= 3.0)).all()
    with pytest.raises(ValueError, match="491"):
        planetlab_testbed(random.Random(2), 491)


def test_cluster_machines_run_six_or_seven_brokers_each() -> None:
    """Thirteen machines have six brokers and seven have seven; a machine's brokers share its two cores."""
    inventory = cluster_testbed(random.Random(3))
    together = (inventory.link_cost == CLUSTER_SAME_MACHINE_MS).sum(axis=1) + 1
    assert Counter(together.tolist()) == {6: 13 * 6, 7: 7 * 7}
    assert (inventory.processing_cost == together / 2).all()
    assert set(inventory.link_cost.ravel().tolist()) == {0.0, CLUSTER_SAME_MACHINE_MS, CLUSTER_LINK_MS}


def test_hops_are_the_links_of_the_path() -> None:
    """From the first leaf to the last it goes over the root."""
    tree = balanced_tree(15)
    hops = hops_between(tree, "b07")
    assert hops["b07"] == 0
    assert hops["b14"] == 6
    assert all(hops[broker] == len(tree.path("b07", broker)) - 1 for broker in tree.brokers)
