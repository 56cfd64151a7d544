"""Inventory: the brokers, and the costs of processing and of every potential link. Known before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory_checks import InventoryValues, value_errors
from regraft.overlay.inventory.prices import Prices
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.arrays import Places
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.status_file import replace_file
from regraft.schemas.topics import NO_AGENT
from regraft.schemas.units import SECOND_MS

NEAR = 8  # How many other brokers count as near to each one.
REASON_LENGTH_MAX = 500  # A reason may quote a name of any length.


class InventoryError(ValueError):
    """The inventory is not usable; the message says which values are wrong, and ``errors`` lists all of them."""

    def __init__(self, message: str, errors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors) or (message,)


@dataclass(frozen=True, eq=False)
class Inventory:
    """Brokers, their processing cost p and the cost c of every potential link.

    ``brokers`` is sorted; ``processing_cost`` (n,) and ``link_cost`` (n, n, symmetric, diagonal 0) follow its order.
    Costs are per notification in one common unit; the demo takes milliseconds of one-way delay and of service.
    ``degree_max`` caps the links of a broker, except on a ring, whose fingers follow from the IDs. ``bootstrap`` is the
    overlay of epoch 0, of any kind: over all brokers in the file, and unchanged if brokers were added or left out.
    ``load_max_per_s`` (n,) caps the notifications per second that may pass each broker; None means no caps.
    ``positions`` (n, 2) are those of brokers on a map, x to the right and y upwards like longitude and latitude; None
    if unknown. They are displayed, and price the links of brokers added without costs. ``agent_of`` maps a broker to
    the agent that represents it in Kafka, in its own topics; brokers without an agent share topics. ``clients_stay``
    means that the brokers are real ones of a tree whose clients stay where they connect, so that plans move only those
    that an agent can take along (:attr:`schemas.client.Client.may_move`).
    ``prices`` is what traffic costs in money, None if it is not billed. With prices, ``link_cost`` still holds delays,
    and decisions use :attr:`charged`.
    """

    brokers: tuple[str, ...]
    processing_cost: NDArray[np.float64]
    link_cost: NDArray[np.float64]
    degree_max: int
    bootstrap: OverlayConfiguration
    load_max_per_s: NDArray[np.float64] | None = None
    positions: NDArray[np.float64] | None = None
    agent_of: Mapping[str, str] = field(default_factory=dict)
    clients_stay: bool = False
    prices: Prices | None = None

    def __post_init__(self) -> None:
        if errors := value_errors(self._values()):
            raise InventoryError("; ".join(errors)[:REASON_LENGTH_MAX])

    def _values(self) -> InventoryValues:
        return InventoryValues(
            self.brokers,
            self.processing_cost,
            self.link_cost,
            self.bootstrap,
            self.load_max_per_s,
            self.positions,
            self.agent_of,
            self.prices,
        )

    @cached_property
    def digest(self) -> str:
        """16 digits that identify the brokers and the initial overlay; costs, caps and agents may be corrected."""
        text = "\n".join((self.bootstrap.KIND, self.bootstrap.digest, *self.brokers))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def broker_topics(self, namespace: str) -> BrokerTopics:
        """Return the topics of a namespace in which each broker gets its commands and reports its telemetry."""
        agent_of = {broker: self.agent_of.get(broker, NO_AGENT) for broker in self.brokers} if self.agent_of else {}
        return BrokerTopics(namespace, agent_of)

    @cached_property
    def index(self) -> dict[str, int]:
        """Each broker's position in ``brokers``."""
        return {broker: position for position, broker in enumerate(self.brokers)}

    @cached_property
    def nearest(self) -> Places:
        """The brokers with the cheapest links to each broker, the cheapest first, shape (brokers, at most ``NEAR``)."""
        few = min(NEAR, len(self.brokers) - 1)
        nearest = np.empty((len(self.brokers), few), dtype=np.intp)
        for broker in range(len(nearest) if few else 0):
            costs = self.link_cost[broker].copy()
            costs[broker] = np.inf
            cheap = np.flatnonzero(costs <= np.partition(costs, few - 1)[few - 1])
            nearest[broker] = cheap[np.argsort(costs[cheap], kind="stable")][:few]
        return nearest

    @cached_property
    def charged(self) -> Inventory:
        """The inventory with link and broker costs in money, delays at their price; itself if there are no prices."""
        prices = self.prices
        if prices is None or prices.is_charged:
            return self
        per_ms = prices.delay_price / SECOND_MS
        return replace(
            self,
            link_cost=prices.link_money + per_ms * self.link_cost,
            processing_cost=per_ms * self.processing_cost,
            prices=replace(prices, delay_ms=self.link_cost),
        )

    @property
    def delay_cost(self) -> NDArray[np.float64]:
        """The cost of each link's delay per notification, shape (n, n); without prices, the whole cost of the link."""
        prices = self.prices
        if prices is None or prices.delay_ms is None:
            return self.link_cost
        return prices.delay_price / SECOND_MS * prices.delay_ms

    @property
    def delay_ms(self) -> NDArray[np.float64]:
        """The delay of each link in ms, shape (n, n): its cost unless that is money."""
        delays = None if self.prices is None else self.prices.delay_ms
        return self.link_cost if delays is None else delays

    def cost_of_link(self, broker: str, peer: str) -> float:
        """Return c of the link between two brokers, per notification."""
        return float(self.link_cost[self.index[broker], self.index[peer]])

    def restricted_to(self, brokers: Iterable[str]) -> Inventory:
        """Return the inventory of only these brokers; the bootstrap overlay stays as it is.

        Raises InventoryError if one of them is unknown or fewer than 2 are left.
        """
        wanted = tuple(sorted(set(brokers)))
        if wanted == self.brokers:
            return self
        if unknown := [broker for broker in wanted if broker not in self.index]:
            raise InventoryError(_unknown_text(unknown))
        rows = [self.index[broker] for broker in wanted]
        return Inventory(
            wanted,
            self.processing_cost[rows],
            self.link_cost[np.ix_(rows, rows)],
            self.degree_max,
            self.bootstrap,
            None if self.load_max_per_s is None else self.load_max_per_s[rows],
            None if self.positions is None else self.positions[rows],
            {broker: agent for broker, agent in self.agent_of.items() if broker in wanted},
            self.clients_stay,
            None if self.prices is None else self.prices.restricted_to(rows),
        )

    def save(self, path: Path) -> None:
        """Write the inventory as JSON, atomically: another process may be reading it."""
        replace_file(path, self.to_json())

    def to_json(self) -> str:
        """Return the inventory as JSON, which :mod:`overlay.read_inventory` reads.

        Raises InventoryError if brokers were added or left out: the file holds the initial fleet.
        """
        if self.bootstrap.brokers != self.brokers:
            count = len(self.bootstrap.brokers)
            raise InventoryError(
                f"the overlay of epoch 0 has {count} brokers, but the inventory has {len(self.brokers)}"
            )
        document: dict[str, Any] = {
            "brokers": self.brokers,
            "processing_cost": self.processing_cost.tolist(),
            "link_cost": self.link_cost.tolist(),
            "degree_max": self.degree_max,
        }
        document |= self.bootstrap.overlay_fields()
        if self.load_max_per_s is not None:
            document["load_max_per_s"] = self.load_max_per_s.tolist()
        if self.positions is not None:
            document["positions"] = self.positions.tolist()
        if self.agent_of:
            document["agents"] = dict(self.agent_of)
        if self.clients_stay:
            document["clients_stay"] = True
        if self.prices is not None:
            document["prices"] = self.prices.to_fields()
        return json.dumps(document)


def _unknown_text(brokers: Sequence[str]) -> str:
    if len(brokers) == 1:
        return f"{brokers[0]} is not a broker of the inventory"
    return f"{brokers[0]} and {len(brokers) - 1} more are not brokers of the inventory"
