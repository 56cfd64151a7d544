"""Clusters of brokers: each broker is in one, sizes are as even as possible, and close brokers are together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.ring.user_clusters import NO_BROKER, UserClusters


def groups_of(clusters: UserClusters) -> list[list[int]]:
    return [[broker for broker in row if broker != NO_BROKER] for row in clusters.members.tolist()]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 3))
def test_every_broker_is_in_one_cluster_and_clusters_are_even(brokers: int, size: int, seed: int) -> None:
    """There are as few clusters of at most c brokers as possible, and their sizes differ by at most one."""
    rng = np.random.default_rng(seed)
    points = rng.random((brokers, 2))
    distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    for clusters in (
        UserClusters.in_order(brokers, size),
        UserClusters.at_random(brokers, size, rng),
        UserClusters.by_nearness(distances, size),
    ):
        groups = groups_of(clusters)
        assert sorted(broker for group in groups for broker in group) == list(range(brokers))
        assert clusters.count == math.ceil(brokers / size)
        assert clusters.sizes.tolist() == [len(group) for group in groups]
        assert clusters.sizes.max() <= size
        assert clusters.sizes.max() - clusters.sizes.min() <= 1
        assert clusters.broker_count == brokers
        for broker in range(brokers):
            cluster, place = clusters.cluster_of[broker], clusters.place_of[broker]
            assert clusters.members[cluster, place] == broker
            assert clusters.slot_of[broker] == cluster * clusters.places + place


def test_clusters_are_reproducible() -> None:
    """In order: brokers that follow each other. At random: determined by the seed."""
    assert groups_of(UserClusters.in_order(7, 3)) == [[0, 1, 2], [3, 4], [5, 6]]
    once, again = (UserClusters.at_random(20, 6, np.random.default_rng(4)) for _ in range(2))
    assert groups_of(once) == groups_of(again)
    assert groups_of(once) != groups_of(UserClusters.at_random(20, 6, np.random.default_rng(5)))


def test_close_brokers_share_a_cluster() -> None:
    """Four towns with five brokers each, with mixed numbers; two brokers may have the same position."""
    town = np.arange(20) * 7 % 4
    east = town * 100.0 + np.arange(20) * 7 % 20 // 4
    east[town == 2] = 200.0
    clusters = UserClusters.by_nearness(np.abs(east[:, None] - east[None, :]), 5)
    assert sorted(groups_of(clusters)) == sorted(np.flatnonzero(town == one).tolist() for one in range(4))
    along = np.arange(6.0)
    halves = UserClusters.by_nearness(np.abs(along[:, None] - along[None, :]), 3)
    assert sorted(groups_of(halves)) == [[0, 1, 2], [3, 4, 5]]  # Grown from the border, not from the middle.


@pytest.mark.parametrize(("brokers", "size", "messages"), [(100, 10, 900), (100, 1, 0), (25, 10, 9 * 8 + 2 * 8 * 7)])
def test_an_exchange_takes_c_times_c_minus_1_messages_in_each_cluster(brokers: int, size: int, messages: int) -> None:
    """25 brokers in clusters of at most 10 make clusters of 9, 8 and 8."""
    assert UserClusters.in_order(brokers, size).messages_per_exchange == messages


def test_an_invalid_partition_is_refused() -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=r"each broker from 0 on once, they hold \[0, 1, 1\]"):
        UserClusters.of([[0, 1], [1]])
    with pytest.raises(ValueError, match="each broker"):
        UserClusters.of([[0, 2]])
    with pytest.raises(ValueError, match="cluster_brokers is 0"):
        UserClusters.in_order(3, 0)
