"""What all publishers together cost and load with each at a given home."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from regraft.api.trees import Floats, PublisherCosts


def cost_at_per_s(costs: PublisherCosts, homes: Mapping[str, str]) -> float:
    """Return the cost of all publishers at these homes. Raises KeyError if a publisher has none."""
    if homeless := set(costs.publishers) - homes.keys():
        raise KeyError(min(homeless))
    return float(costs.costs_at_per_s(homes).sum())


def loads_at_per_s(costs: PublisherCosts, homes: Mapping[str, str]) -> Floats:
    """Return the notifications that pass each broker with these homes. Raises KeyError if a publisher has none."""
    loads = np.zeros(len(costs.brokers))
    for publisher in costs.publishers:
        loads += costs.loads_per_s(publisher, homes[publisher])
    return loads
