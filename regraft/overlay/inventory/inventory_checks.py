"""Check the values of an inventory against each other.

Reading them belongs to :mod:`overlay.inventory_fields`, what is odd but usable to ``regraft inventory check``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from regraft.overlay.inventory.prices import Prices
from regraft.overlay.overlay_configuration import TREE, OverlayConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.topics import AGENT_PATTERN

PAIRS_MAX = 20  # Sentences about asymmetric pairs.


@dataclass(frozen=True, eq=False)
class InventoryValues:
    """The values of an inventory's fields, None if unknown or not usable."""

    brokers: Sequence[str] | None
    processing_cost: Floats | None
    link_cost: Floats | None
    bootstrap: OverlayConfiguration | None
    load_max_per_s: Floats | None
    positions: Floats | None
    agent_of: Mapping[str, Any]
    prices: Prices | None


def value_errors(values: InventoryValues) -> list[str]:
    """Return every error, one sentence each."""
    brokers = values.brokers
    if brokers is None:
        return []
    if errors := list(_broker_errors(brokers)):
        return errors
    count = len(brokers)
    return [
        *_cost_errors(values, brokers),
        *_optional_errors(values, count),
        *_price_errors(values, count),
        *_agent_errors(brokers, values.agent_of),
    ]


def _broker_errors(brokers: Sequence[str]) -> Iterator[str]:
    if len(brokers) < 2:
        yield f"brokers has {len(brokers)} name{'s' * (len(brokers) != 1)}: at least 2 are needed"
    twice = [name for name, times in Counter(brokers).items() if times > 1]
    yield from (f"brokers has {name} twice: each name must be unique" for name in twice)
    if not twice and (late := next((a for a, b in pairwise(brokers) if a > b), None)):
        after = brokers[list(brokers).index(late) + 1]
        yield f"brokers has {late} before {after}: sort the names, and all other lists with them"


def _cost_errors(values: InventoryValues, brokers: Sequence[str]) -> Iterator[str]:
    for name, shape in (("processing_cost", (len(brokers),)), ("link_cost", (len(brokers),) * 2)):
        costs: Floats | None = getattr(values, name)
        if costs is None:
            continue
        if costs.shape != shape:
            yield f"{name} has shape {costs.shape}: {len(brokers)} brokers need {shape}"
        elif not np.isfinite(costs).all():
            yield f"{name} has a cost that is not a finite number"
        elif (costs < 0).any():
            yield f"{name} has a negative cost: costs are at least 0"
        elif name == "link_cost":
            yield from _asymmetric(costs, brokers)


def _asymmetric(costs: Floats, brokers: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each of the first pairs whose costs differ by direction."""
    different = np.argwhere(np.triu(~np.isclose(costs, costs.T)))
    for one, other in different[:PAIRS_MAX].tolist():
        there, back = f"{brokers[one]} to {brokers[other]}", f"{brokers[other]} to {brokers[one]}"
        yield (
            f"link_cost is not symmetric: {costs[one, other]:g} from {there}, {costs[other, one]:g} from {back}; a "
            "link costs the same both ways"
        )
    if len(different) > PAIRS_MAX:
        yield f"link_cost is not symmetric for {len(different) - PAIRS_MAX} further pairs"


def _optional_errors(values: InventoryValues, count: int) -> Iterator[str]:
    loads, places = values.load_max_per_s, values.positions
    if loads is not None and (loads.shape != (count,) or not (loads > 0).all()):
        yield f"load_max_per_s must be {count} numbers above 0, got shape {loads.shape}: {loads}"
    if places is not None and (places.shape != (count, 2) or not np.isfinite(places).all()):
        yield f"positions must be {count} pairs of finite numbers, got shape {places.shape}"


def _price_errors(values: InventoryValues, count: int) -> Iterator[str]:
    prices, overlay = values.prices, values.bootstrap
    if prices is not None and len(prices.access_per_gb) != count:
        yield f"prices cover {len(prices.access_per_gb)} brokers, but there are {count}"
    if prices is not None and overlay is not None and overlay.KIND != TREE:
        yield f"prices are given for a {overlay.KIND}: only trees are charged; remove them"


def _agent_errors(brokers: Sequence[str], agent_of: Mapping[str, Any]) -> Iterator[str]:
    allowed = set(brokers) if agent_of else set()
    for broker, agent in agent_of.items():
        if broker not in allowed:
            yield f"agents names {broker!r}, which is not a broker of the inventory: correct or remove it"
        elif not isinstance(agent, str) or not AGENT_PATTERN.fullmatch(agent):
            yield (
                f"the agent of {broker} is {agent!r}: 1 to 64 letters, digits, _ or - are allowed; leave out a broker "
                "that has no agent"
            )
