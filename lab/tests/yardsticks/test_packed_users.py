"""The cost of packed users is that of all messages, and moves change it as a recount does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.tests.yardsticks.packing_instances import counted_cost_per_s, drawn_instance, tree_price
from regraft_lab.yardsticks.packed_users import PackingCosts, PackingError, PackingInstance, tree_prices

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 9), st.integers(1, 6))
def test_trees_are_minimum_spanning_trees(seed: int, brokers: int, sets: int) -> None:
    """Any sets of brokers are allowed, including empty sets and single brokers."""
    rng = np.random.default_rng(seed)
    core = np.triu(rng.random((brokers, brokers)), 1)
    core += core.T
    members = rng.random((sets, brokers)) < rng.random()
    expected = [tree_price(core, set(np.flatnonzero(row).tolist())) for row in members]
    assert tree_prices(core, members) == pytest.approx(expected)


@given(seeds, st.integers(1, 10), st.integers(1, 5), st.integers(1, 4))
def test_the_cost_is_that_of_all_messages(seed: int, users: int, brokers: int, channels: int) -> None:
    """Counted one by one: an access link for each sender and receiver, one tree for each publisher and sub-channel."""
    instance = drawn_instance(users, brokers, channels, seed)
    homes = np.random.default_rng(seed).integers(0, brokers, users)
    costs = PackingCosts(instance, homes)
    assert (costs.access_per_s, costs.core_per_s) == pytest.approx(counted_cost_per_s(instance, homes))


@given(seeds, st.integers(1, 10), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4))))
def test_moves_change_the_cost_as_a_recount_does(
    seed: int, users: int, brokers: int, moves: list[tuple[int, int]]
) -> None:
    """This holds for each move, and for all of them together."""
    instance = drawn_instance(users, brokers, 3, seed)
    costs = PackingCosts(instance, np.zeros(users, dtype=np.intp))
    for user, broker in moves:
        before, change = costs.cost_per_s, costs.change_per_s(user % users, broker % brokers)
        costs.move(user % users, broker % brokers)
        assert costs.cost_per_s - before == pytest.approx(change, abs=1e-9)
    again = PackingCosts(instance, costs.homes)
    assert costs.cost_per_s == pytest.approx(again.cost_per_s)
    assert costs.unicast_per_s == pytest.approx(again.unicast_per_s)


def test_a_tree_is_charged_once_and_unicast_for_each_broker() -> None:
    """Brokers 0, 1, 2 in a row at a price of 1: a message from 0 to both others is 2 by tree, 3 by unicast."""
    core = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    wants = np.array([[False], [True], [True]])
    instance = PackingInstance.of(np.array([[5.0], [0.0], [0.0]]), wants, np.zeros((3, 3)), core)
    costs = PackingCosts(instance, np.arange(3))
    assert (costs.core_per_s, costs.unicast_per_s) == (10.0, 15.0)


def test_a_message_without_other_subscribers_is_not_sent() -> None:
    """A publisher's own subscription does not count."""
    wants = np.array([[True, False], [False, False]])
    instance = PackingInstance.of(np.ones((2, 2)), wants, np.ones((2, 2)), np.zeros((2, 2)))
    assert instance.rates.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert instance.demand_per_s.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"published": np.ones((2, 1))}, "rates are"),
        ({"core_price": np.zeros((3, 3))}, "3 by 3|2 by 2"),
        ({"access_price": -np.ones((2, 2))}, "negative"),
        ({"core_price": np.array([[0.0, 1.0], [2.0, 0.0]])}, "symmetric"),
    ],
)
def test_inconsistent_instances_are_refused(change: dict[str, np.ndarray], what: str) -> None:
    """The message says what is wrong."""
    good = {
        "published": np.ones((2, 2)),
        "wants": np.ones((2, 2), dtype=np.bool_),
        "access_price": np.ones((2, 2)),
        "core_price": np.zeros((2, 2)),
    }
    with pytest.raises(PackingError, match=what):
        PackingInstance.of(**(good | change))
