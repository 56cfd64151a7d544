"""The paper's three ways to pack users; ours is never more expensive than these nor below the bound."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lab.tests.yardsticks.packing_instances import drawn_instance
from regraft_lab.yardsticks.bound_packing import least_packing_cost_per_s
from regraft_lab.yardsticks.pack_drop import (
    Budget,
    closable,
    close_brokers,
    likely_changes_per_s,
    pack_drop,
)
from regraft_lab.yardsticks.pack_mixing import _grown, pack_mixing
from regraft_lab.yardsticks.pack_users import pack_clustering, pack_greedy, pack_random
from regraft_lab.yardsticks.packed_users import Homes, PackingCosts, PackingError, PackingInstance

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 14), st.integers(1, 5))


def cost_of(instance: PackingInstance, homes: Homes) -> float:
    return PackingCosts(instance, homes).cost_per_s


def packings(instance: PackingInstance, seed: int) -> list[Homes]:
    rng = np.random.default_rng(seed)
    return [pack_greedy(instance), pack_clustering(instance), pack_mixing(instance, rng), pack_random(instance, rng)]


@given(seeds, sizes, st.booleans())
@settings(max_examples=60)
def test_all_packings_respect_the_room_and_ours_is_never_more_expensive(
    seed: int, size: tuple[int, int], is_metric: bool
) -> None:
    """Nor more expensive than the greedy packing with brokers closed, and no packing is below the bound."""
    instance = drawn_instance(*size, 3, seed, is_metric=is_metric, room_factor=4.0)
    found = packings(instance, seed)
    ours = pack_drop(instance, np.random.default_rng(seed))
    assert all(instance.is_packed(homes) for homes in (ours, *found))
    least, cost = least_packing_cost_per_s(instance), cost_of(instance, ours)
    dropped = close_brokers(PackingCosts(instance, found[0]), Budget()).cost_per_s
    slack = 1e-9 * (1 + cost)
    assert cost <= min(dropped, *(cost_of(instance, homes) for homes in found[:3])) + slack
    assert least <= cost + slack


def test_ours_is_near_the_best_of_all_packings() -> None:
    """All 729 packings of six users at three brokers: ours is less than 2 % above the best on average."""
    gaps = []
    for seed in range(12):
        instance = drawn_instance(6, 3, 3, seed, is_metric=seed % 2 == 0)
        every = (np.array(homes, dtype=np.intp) for homes in itertools.product(range(3), repeat=6))
        best = min(cost_of(instance, homes) for homes in every if instance.is_packed(homes))
        assert least_packing_cost_per_s(instance) <= best * (1 + 1e-9)
        gaps.append(cost_of(instance, pack_drop(instance, np.random.default_rng(seed))) / best - 1)
    assert min(gaps) >= -1e-9
    assert np.mean(gaps) < 0.02


def test_the_bound_of_access_is_the_linear_program() -> None:
    """If trees cost nothing and users may be split: within 1 % of what HiGHS finds, and not above it."""
    instance = drawn_instance(40, 5, 4, 3, room_factor=1.1)
    free = PackingInstance(instance.rates, instance.wants, instance.access_price, np.zeros((5, 5)), instance.room_per_s)
    solved = linprog(
        free.access_cost_per_s.ravel(),
        A_ub=np.kron(free.demand_per_s[None, :], np.eye(5)),
        b_ub=free.room_per_s,
        A_eq=np.kron(np.eye(40), np.ones((1, 5))),
        b_eq=np.ones(40),
    ).fun
    assert solved * 0.99 <= least_packing_cost_per_s(free) <= solved * (1 + 1e-9)


def test_greedy_takes_the_cheapest_broker_with_room() -> None:
    """In the order of users: the third finds the cheap broker full."""
    wants = np.ones((3, 1), dtype=np.bool_)
    price = np.array([[1.0, 2.0]] * 3)
    instance = PackingInstance.of(np.ones((3, 1)), wants, price, np.array([[0.0, 1.0], [1.0, 0.0]]), 1.4)
    assert pack_greedy(instance).tolist() == [0, 0, 1]


def test_clustering_brings_communicating_users_together() -> None:
    """Two pairs at equal prices: each pair ends at one broker."""
    wants = np.array([[False, False], [True, False], [False, True], [False, False]])
    rates = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    instance = PackingInstance.of(rates, wants, np.ones((4, 2)), np.array([[0.0, 1.0], [1.0, 0.0]]))
    homes = pack_clustering(instance)
    assert homes[0] == homes[1] != homes[2] == homes[3]


@given(seeds, st.integers(1, 8), st.integers(1, 5))
def test_trees_grow_as_prim_grows_them(seed: int, receivers: int, brokers: int) -> None:
    """One receiver at a time, by the lowest price of its access to a broker and that broker's link."""
    rng = np.random.default_rng(seed)
    access, core = rng.random((receivers, brokers)), np.triu(rng.random((brokers, brokers)), 1)
    core += core.T
    near, free = core[0].copy(), set(range(receivers))
    expected = np.zeros(receivers, dtype=np.intp)
    while free:
        _, user, at = min((near[b] + access[v, b], v, b) for v in free for b in range(brokers))
        expected[user] = at
        free.discard(user)
        near = np.minimum(near, core[at])
    assert _grown(access, core, 0).tolist() == expected.tolist()


@given(seeds)
@settings(max_examples=30)
def test_the_likely_change_of_a_move_is_exact_if_one_set_changes(seed: int) -> None:
    """A subscriber that leaves or meets others changes each tree by at most one broker."""
    instance = drawn_instance(8, 3, 2, seed)
    homes = np.random.default_rng(seed).integers(0, 3, 8)
    costs = PackingCosts(instance, homes)
    likely = likely_changes_per_s(costs)
    publishes = instance.rates.sum(axis=1) > 0
    outside = ((costs.published > 1e-12) & (costs.subscribers == 0)).any()
    for user, broker in itertools.product(np.flatnonzero(~publishes).tolist(), range(3)):
        wants, old = instance.wants[user], homes[user]
        leaves, joins = costs.subscribers[wants, old] == 1, costs.subscribers[wants, broker] == 0
        left_behind = leaves & (costs.published[wants, old] > 1e-12)
        if broker != old and not outside and not (leaves & joins).any() and not left_behind.any():
            assert likely[user, broker] == pytest.approx(costs.change_per_s(user, broker), abs=1e-9)


def test_users_without_room_are_reported() -> None:
    """The error says how much room is left."""
    instance = drawn_instance(6, 2, 2, 1)
    small = PackingInstance(
        instance.rates, instance.wants, instance.access_price, instance.core_price, instance.room_per_s / 3
    )
    with pytest.raises(PackingError, match="no broker has room for user"):
        pack_greedy(small)


def test_brokers_without_users_can_be_closed() -> None:
    """They are named; homes beyond the room are refused."""
    instance = drawn_instance(5, 4, 2, 2, room_factor=10.0)
    assert closable(instance, np.array([1, 1, 3, 3, 1])).tolist() == [0, 2]
    with pytest.raises(PackingError, match="more traffic than they have room for"):
        closable(drawn_instance(9, 4, 2, 2, room_factor=1.0), np.zeros(9, dtype=np.intp))
