"""Small random overlays on which every tree can be priced, to compare planners with the optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import ClosedWindow, TreeState
from regraft_lab.psoop.exact_optimum import all_trees, tree_at

COST_MAX = 10.0  # c and p are uniform in [0, 10] (Jaeger07, section 5).
NOTIFICATIONS_PER_FLOW = 50  # Mean in a window: 250 ticks between two broadcasts at 0.2 notifications a tick.
WINDOW_MS = 1000  # A tick is 4 ms. Ratios of costs do not depend on it.


@dataclass(frozen=True, slots=True)
class SmallSetting:
    """One kind of small overlay: how its link costs are drawn, how many flows it has and how many brokers want each.

    ``costs``: ``uniform`` draws each link cost in [0, 10], with a mean of 5; ``euclidean`` uses the distances of random
    points in a square of side 10, with a mean of 5.2.
    """

    costs: str
    flow_count: int
    subscriber_count: int


SMALL_SETTINGS = tuple(
    SmallSetting(costs, flow_count, subscriber_count)
    for costs in ("uniform", "euclidean")
    for flow_count, subscriber_count in ((10, 2), (50, 1), (50, 3))
)


def small_instance(setting: SmallSetting, broker_count: int, seed: int) -> TreeState:
    """Return one random overlay of a setting; the same arguments give the same overlay.

    Each flow has one publisher and ``subscriber_count`` different brokers with subscribers, possibly including the
    publisher's. Brokers are chosen with probabilities proportional to random load values, and the notifications of each
    flow are Poisson with the same mean (Jaeger07, section 5). The bootstrap tree is uniform among all trees. Raises
    ValueError if there are fewer brokers than subscribers.
    """
    if setting.subscriber_count > broker_count:
        raise ValueError(
            f"a flow cannot have subscribers at {setting.subscriber_count} of {broker_count} brokers: take more brokers"
        )
    kind = (setting.costs == "euclidean", setting.flow_count, setting.subscriber_count)
    rng = np.random.default_rng([seed, broker_count, *map(int, kind)])
    brokers = tuple(f"b{number}" for number in range(broker_count))
    link_cost = _distances(broker_count, rng) if setting.costs == "euclidean" else _uniform_costs(broker_count, rng)
    bootstrap = tree_at(brokers, int(rng.integers(len(all_trees(broker_count).side))))
    processing_cost = rng.uniform(0, COST_MAX, broker_count)
    # A cap that no tree exceeds: Jaeger07 has none.
    inventory = Inventory(brokers, processing_cost, link_cost, broker_count - 1, bootstrap)
    return TreeState(bootstrap, inventory, (ClosedWindow(0, WINDOW_MS, _flows(setting, brokers, rng)),))


def _uniform_costs(broker_count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    upper = np.triu(rng.uniform(0, COST_MAX, (broker_count, broker_count)), 1)
    return upper + upper.T


def _distances(broker_count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    places = rng.uniform(0, COST_MAX, (broker_count, 2))
    away = places[:, None] - places[None]
    return np.hypot(away[..., 0], away[..., 1])


def _flows(setting: SmallSetting, brokers: tuple[str, ...], rng: np.random.Generator) -> DeliverySets:
    load = rng.random(len(brokers))
    load /= load.sum()
    masks: dict[tuple[str, str, int], int] = {}
    for flow in range(setting.flow_count):
        publisher = rng.choice(len(brokers), p=load)
        subscribers = rng.choice(len(brokers), setting.subscriber_count, replace=False, p=load)
        count = int(rng.poisson(NOTIFICATIONS_PER_FLOW))
        for broker in {int(publisher), *map(int, subscribers)}:
            for block in range(-(-count // 64)):
                masks[brokers[broker], f"p{flow:02d}", block] = (1 << min(64, count - 64 * block)) - 1
    return DeliverySets.of(brokers, masks, WINDOW_MS / 1000)
