"""The networks of Zhao and Wu's evaluation: users, brokers, what is published and wanted, and what links cost.

In: a setting and a generator. Out: an instance to be packed. The paper gives no prices, no number of sub-channels and
no coefficients: see the readings in README.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from regraft.overlay.packed_users import Flags, Floats, PackingInstance
from regraft.producers.emulator.place_overlay import measured_rtt_ms
from regraft.producers.workloads.stock_workload import load_stock_data

CHANNEL_COUNT = 20
NARROW_SHARE = 0.05


class Setting(msgspec.Struct, frozen=True):
    """What is drawn; ``core_scale`` times the price of links between brokers as drawn.

    ``prices``: ``euclidean`` (users and brokers at random in a square), ``independent`` (drawn link by link; between
    brokers the cheapest way), ``planetlab`` (measured round trips, users at hosts like brokers). ``interests``:
    ``wide`` (a random interval), ``narrow`` (a twentieth of the content space), ``stocks`` (real subscriptions, a
    sub-channel a symbol).
    """

    users: int
    brokers: int
    prices: str = "euclidean"
    core_scale: float = 1.0
    interests: str = "wide"


def draw_instance(setting: Setting, rng: np.random.Generator) -> PackingInstance:
    """Return an instance with room for twice the traffic, each broker as much (section VI.A)."""
    wants = INTERESTS[setting.interests](setting.users, rng)
    access, core = PRICES[setting.prices](setting.users, setting.brokers, rng)
    return PackingInstance.of(_published(wants.shape[1], setting.users, rng), wants, access, setting.core_scale * core)


def _published(channels: int, users: int, rng: np.random.Generator) -> Floats:
    """Return for each user a quadratic function over the content space, what is negative as 0."""
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
    """Return the sub-channels that an interval touches: a subscription is as few of them as hold it."""
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
    return _apart(at_users, at_brokers), _apart(at_brokers, at_brokers)


def _apart(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.linalg.norm(one[:, None] - other, axis=2))


def _independent(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    return rng.random((users, brokers)), _cheapest_ways(_symmetric(rng.random((brokers, brokers))))


def _planetlab(users: int, brokers: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    rtt_ms = measured_rtt_ms()
    at_brokers = rng.choice(len(rtt_ms), brokers, replace=False)
    at_users = rng.integers(0, len(rtt_ms), users)
    return rtt_ms[np.ix_(at_users, at_brokers)], _cheapest_ways(rtt_ms[np.ix_(at_brokers, at_brokers)])


def _symmetric(drawn: Floats) -> Floats:
    upper = np.triu(drawn, 1)
    return np.asarray(upper + upper.T)


def _cheapest_ways(core: Floats) -> Floats:
    """Return the prices of the cheapest ways: between brokers the paper asks for the triangle inequality."""
    for via in range(len(core)):
        core = np.minimum(core, core[:, via, None] + core[None, via])
    return core


PRICES: dict[str, Callable[[int, int, np.random.Generator], tuple[Floats, Floats]]] = {
    "euclidean": _euclidean,
    "independent": _independent,
    "planetlab": _planetlab,
}
INTERESTS: dict[str, Callable[[int, np.random.Generator], Flags]] = {
    "wide": _wide,
    "narrow": _narrow,
    "stocks": _stocks,
}
