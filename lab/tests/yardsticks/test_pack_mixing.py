"""Mixing against Zhao11: the first path of Algorithm 3 leads over one broker or over two, whichever is cheaper."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.yardsticks.pack_mixing import _first_brokers, pack_mixing
from regraft_lab.yardsticks.packed_users import PackingCosts, PackingInstance


def test_a_publisher_reaches_its_first_receiver_over_two_brokers_where_that_is_cheaper() -> None:
    """Access [1, 10] and [10, 1], 2 between brokers: 1 + 2 + 1 = 4, the optimum; over one broker it is 1 + 10 = 11."""
    rates, wants = np.array([[1.0], [0.0]]), np.array([[False], [True]])
    access_price, core_price = np.array([[1.0, 10.0], [10.0, 1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    instance = PackingInstance.of(rates, wants, access_price, core_price, room_factor=4.0)
    homes = pack_mixing(instance, np.random.default_rng(0))
    assert homes.tolist() == [0, 1]
    assert PackingCosts(instance, homes).cost_per_s == 4


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 5))
def test_the_first_path_is_the_cheapest_and_never_dearer_than_over_one_broker(
    seed: int, users: int, brokers: int
) -> None:
    """Of all pairs of brokers and receivers other than the publisher, the path over its first broker costs least."""
    rng = np.random.default_rng(seed)
    access, core = rng.random((users, brokers)), np.triu(rng.random((brokers, brokers)), 1)
    core += core.T
    receivers = np.sort(rng.choice(users, size=rng.integers(2, users + 1), replace=False)).astype(np.intp)
    senders = np.arange(users, dtype=np.intp)
    first = _first_brokers(access, core, receivers, senders)
    for sender, broker in zip(senders.tolist(), first.tolist(), strict=True):
        others = receivers[receivers != sender]
        beyond = (core[:, :, None] + access[others].T[None]).min(axis=(1, 2))  # From each broker to its nearest user.
        over_one = (access[sender] + access[others]).min()
        assert access[sender, broker] + beyond[broker] <= (access[sender] + beyond).min() + 1e-12
        assert access[sender, broker] + beyond[broker] <= over_one + 1e-12
