"""The networks of Zhao11's evaluation: users, brokers, publications, interests, and prices of links.

In: a setting and a generator. Out: an instance to be packed. The paper gives no prices, no number of sub-channels and
no coefficients: see the readings in README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from regraft.api.emulation import load_stock_data, measured_rtt_ms, shipped_regions
from regraft.api.trees import Flags, Floats
from regraft_lab.yardsticks.packed_users import PackingInstance

CHANNEL_COUNT = 20
NARROW_SHARE = 0.05
WONDERPROXY, WONDERPROXY_FILE = "wonderproxy", "wonderproxy_rtt.npz"


class Setting(msgspec.Struct, frozen=True):
    """What to draw; ``core_scale`` multiplies the drawn prices of links between brokers.

    ``prices``: ``euclidean`` (users and brokers at random in a square), ``independent`` (drawn link by link; between
    brokers the cheapest path), ``planetlab`` (measured round trips, users at hosts like brokers), ``aws`` (the price of
    a GB between the cloud regions of users and brokers), ``wonderproxy`` (round trips that are not shipped).
    ``interests``: ``wide`` (a random interval), ``narrow`` (a twentieth of the content space), ``stocks`` (real
    subscriptions, one sub-channel per symbol).
    """

    users: int
    brokers: int
    prices: str = "euclidean"
    core_scale: float = 1.0
    interests: str = "wide"


def draw_instance(setting: Setting, rng: np.random.Generator, data: Path | None = None) -> PackingInstance:
    """Return an instance with room for twice the traffic, equal at all brokers (section VI.A).

    ``data`` is the folder with WonderProxy's round trips. Raises FileNotFoundError if the setting needs them and they
    are missing.
    """
    wants = INTERESTS[setting.interests](setting.users, rng)
    if setting.prices == WONDERPROXY:
        access, core = _among_hosts(wonderproxy_rtt_ms(data or Path()), setting.users, setting.brokers, rng)
    else:
        access, core = PRICES[setting.prices](setting.users, setting.brokers, rng)
    return PackingInstance.of(_published(wants.shape[1], setting.users, rng), wants, access, setting.core_scale * core)


def _published(channels: int, users: int, rng: np.random.Generator) -> Floats:
    """Return for each user a quadratic function over the content space, clipped at 0."""
    place = (np.arange(channels) + 0.5) / channels
    square, slope, level = rng.uniform(-1.0, 1.0, (3, users, 1))
    return np.asarray(np.maximum(square * place**2 + slope * place + level, 0.0))


def _wide(users: int, rng: np.random.Generator) -> Flags:
    ends = np.sort(rng.random((users, 2)), axis=1)
    return _between(ends[:, :1], ends[:, 1:])


def _narrow(users: int, rng: np.random.Generator) -> Flags:
    start = rng.random((users, 1)) * (1 - NARROW_SHARE)
    return _between(start, start + NARROW_SHARE)


def _between(start: Floats, end: Floats) -> Flags:
    """Return the sub-channels that an interval touches: the fewest that cover the subscription."""
    first = np.arange(CHANNEL_COUNT) / CHANNEL_COUNT
    return np.asarray((first < end) & (first + 1 / CHANNEL_COUNT > start))


def _stocks(users: int, rng: np.random.Generator) -> Flags:
    subscriptions = np.array([len(rows) for _, rows in sorted(load_stock_data().thresholds.items())])
    wants = np.zeros((users, len(subscriptions)), dtype=np.bool_)
    chosen = rng.choice(len(subscriptions), users, p=subscriptions / subscriptions.sum())
    wants[np.arange(users), chosen] = True
    return wants


def _euclidean(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    at_users, at_brokers = rng.random((users, 2)), rng.random((brokers, 2))
    return _distances(at_users, at_brokers), _distances(at_brokers, at_brokers)


def _distances(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.linalg.norm(one[:, None] - other, axis=2))


def _independent(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    return rng.random((users, brokers)), _cheapest_path_prices(_symmetric(rng.random((brokers, brokers))))


def _planetlab(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    return _among_hosts(measured_rtt_ms(), users, brokers, rng)


def _among_hosts(price: Floats, users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return prices with each broker at its own host and users at any host; between brokers the cheapest path."""
    at_brokers = rng.choice(len(price), brokers, replace=False)
    at_users = rng.integers(0, len(price), users)
    return price[np.ix_(at_users, at_brokers)], _cheapest_path_prices(price[np.ix_(at_brokers, at_brokers)])


def _aws(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return USD per GB, the mean of both directions; brokers are assigned to regions in turn, users at random."""
    regions = shipped_regions()
    price = (regions.per_gb + regions.per_gb.T) / 2
    order = rng.permutation(len(price))
    at_brokers = order[np.arange(brokers) % len(order)]
    at_users = rng.integers(0, len(price), users)
    core = price[np.ix_(at_brokers, at_brokers)]
    np.fill_diagonal(core, 0.0)
    return price[np.ix_(at_users, at_brokers)], _cheapest_path_prices(core)


@cache
def wonderproxy_rtt_ms(data: Path) -> Floats:
    """Return the round trips between WonderProxy's servers, the mean of both directions.

    Raises FileNotFoundError if the folder has none.
    """
    with np.load(data / WONDERPROXY_FILE) as columns:
        rtt_ms = columns["avg_us"] / 1000.0
    both = (rtt_ms + rtt_ms.T) / 2
    np.fill_diagonal(both, 0.0)
    return np.asarray(both)


def _symmetric(drawn: Floats) -> Floats:
    upper = np.triu(drawn, 1)
    return np.asarray(upper + upper.T)


def _cheapest_path_prices(core: Floats) -> Floats:
    """Return the prices of the cheapest paths: the paper requires the triangle inequality between brokers."""
    for via in range(len(core)):
        core = np.minimum(core, core[:, via, None] + core[None, via])
    return core


PRICES: dict[str, Callable[[int, int, np.random.Generator], tuple[Floats, Floats]]] = {
    "euclidean": _euclidean,
    "independent": _independent,
    "planetlab": _planetlab,
    "aws": _aws,
}
INTERESTS: dict[str, Callable[[int, np.random.Generator], Flags]] = {
    "wide": _wide,
    "narrow": _narrow,
    "stocks": _stocks,
}
