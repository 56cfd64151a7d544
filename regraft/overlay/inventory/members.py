"""The fleet: all known brokers, the state of each, and an inventory of them all.

In: the inventory from its file, and the records of members. Out: the state of each broker, and an inventory of all
known brokers. The configuration defines which of them are in the overlay; reading topics belongs to the stages.

The inventory file is the initial fleet: its brokers are in service unless a record says otherwise. The facts of a
record replace what the file says about its broker. A link between brokers of the file keeps the file's cost unless
facts price it. Any other link without a price costs, if both ends have positions, as much per distance as the
inventory's links do at the median; else UNKNOWN_COST_FACTOR times the most expensive known link, so that it is used
only if nothing else joins the overlay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.estimated_costs import EstimatedCosts
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link
from regraft.schemas.member import BrokerFacts, Member, MemberState

UNKNOWN_COST_FACTOR = 100.0
INITIAL_REASON = "from the inventory"
RESTRICTED_KEPT_MAX = 8  # For the overlays before, in force and planned, and those of shadow planners.


@dataclass(frozen=True, eq=False)
class FleetView:
    """All known brokers: the initial inventory, and the newest record of each member by name.

    ``records`` come from the members' topic and from orders; ``members`` has every known broker. ``measured`` are the
    link costs that measurements have corrected. ``estimated``, if given, replaces the inventory's and the records'
    costs of all other links.
    """

    initial_inventory: Inventory
    records: Mapping[str, Member] = field(default_factory=dict)
    measured: Mapping[Link, float] = field(default_factory=dict)
    estimated: EstimatedCosts | None = None

    @classmethod
    def of(cls, initial_inventory: Inventory, records: Iterable[Member] = ()) -> FleetView:
        """Build the fleet from records in topic order; the newest of each broker counts."""
        return cls(initial_inventory).with_records(records)

    def with_records(self, records: Iterable[Member]) -> FleetView:
        """Return the fleet after these records.

        A record without facts of a broker that is not in the inventory is left out: nothing is known about such a
        broker.
        """
        newest = dict(self.records)
        for record in records:
            if record.facts is not None or record.broker in self.initial_inventory.index:
                newest[record.broker] = record
        return self if newest == self.records else replace(self, records=newest)

    def with_measured(self, measured: Mapping[Link, float], estimated: EstimatedCosts | None = None) -> FleetView:
        """Return the fleet with exactly these measured and estimated link costs."""
        return FleetView(self.initial_inventory, self.records, dict(measured), estimated)

    def is_estimate(self, pair: Link) -> bool:
        """Return True if a link's cost in :attr:`inventory` is an estimate, neither measured nor given by a record."""
        if self.estimated is None or pair in self.measured:
            return False
        return self.estimated.cost_of_link(pair) is not None or self._priced.isdisjoint(pair)

    @cached_property
    def _priced(self) -> frozenset[str]:
        """The brokers whose records have facts, and so prices of their links."""
        return frozenset(broker for broker, record in self.records.items() if record.facts is not None)

    @cached_property
    def members(self) -> dict[str, Member]:
        """The newest record of every known broker, sorted by name."""
        default_records = {
            broker: Member(broker, MemberState.IN_SERVICE, 0, INITIAL_REASON)
            for broker in self.initial_inventory.brokers
        }
        return dict(sorted((default_records | dict(self.records)).items()))

    def in_state(self, *states: MemberState) -> tuple[str, ...]:
        """Return the brokers in any of these states, sorted."""
        return tuple(broker for broker, member in self.members.items() if member.state in states)

    @cached_property
    def serving(self) -> tuple[str, ...]:
        """The brokers expected to report, sorted: in service or leaving."""
        return tuple(broker for broker, member in self.members.items() if member.state.is_serving)

    def inventory_over(self, brokers: tuple[str, ...]) -> Inventory:
        """Return the inventory of an overlay's brokers, cached while inventory and brokers stay the same."""
        return _restricted(self.inventory, brokers)

    @cached_property
    def inventory(self) -> Inventory:
        """The inventory of all known brokers, in any state. O(brokers^2) if a record has facts."""
        reported = self.inventory_announced
        return _corrected(
            reported if self.estimated is None else self.estimated.over(reported, self._priced), self.measured
        )

    @cached_property
    def inventory_announced(self) -> Inventory:
        """The same, but with link costs only from inventory and records; in money if there are prices."""
        facts = {broker: record.facts for broker, record in self.records.items() if record.facts is not None}
        return (extended(self.initial_inventory, facts) if facts else self.initial_inventory).charged


def extended(inventory: Inventory, facts_of: Mapping[str, BrokerFacts]) -> Inventory:
    """Return the inventory with facts of known and new brokers merged in; its bootstrap overlay stays."""
    brokers = tuple(sorted({*inventory.brokers, *facts_of}))
    row = {broker: place for place, broker in enumerate(brokers)}
    rows = np.array([row[broker] for broker in inventory.brokers])
    processing, loads = np.zeros(len(brokers)), np.full(len(brokers), np.inf)
    places = np.full((len(brokers), 2), np.nan)
    processing[rows] = inventory.processing_cost
    if inventory.load_max_per_s is not None:
        loads[rows] = inventory.load_max_per_s
    if inventory.positions is not None:
        places[rows] = inventory.positions
    for broker, facts in facts_of.items():
        processing[row[broker]] = facts.processing_cost
        loads[row[broker]] = facts.load_max_per_s or np.inf
        if facts.position is not None:
            places[row[broker]] = facts.position.x, facts.position.y
    link_cost = _link_costs(inventory, brokers, places, facts_of)
    agents = {broker: facts.agent for broker, facts in facts_of.items() if facts.agent}
    kept = {broker: agent for broker, agent in inventory.agent_of.items() if broker not in facts_of}
    return Inventory(
        brokers,
        processing,
        link_cost,
        inventory.degree_max,
        inventory.bootstrap,
        None if np.isinf(loads).all() else loads,
        _shown_places(places, link_cost),
        kept | agents,
        inventory.clients_stay,
        None if inventory.prices is None else inventory.prices.extended_to(rows, len(brokers)),
    )


def _link_costs(
    inventory: Inventory, brokers: tuple[str, ...], places: NDArray[np.float64], facts_of: Mapping[str, BrokerFacts]
) -> NDArray[np.float64]:
    """Return the costs of all links, shape (n, n): from facts, else the inventory, else distance, else unknown."""
    row = {broker: place for place, broker in enumerate(brokers)}
    rows = np.array([row[broker] for broker in inventory.brokers])
    cost = np.full((len(brokers), len(brokers)), np.nan)
    cost[np.ix_(rows, rows)] = inventory.link_cost
    for (broker, peer), reported in announced_costs(facts_of).items():
        if broker in row and peer in row:
            cost[row[broker], row[peer]] = cost[row[peer], row[broker]] = reported
    unknown = UNKNOWN_COST_FACTOR * float(np.nanmax(cost, initial=0.0) or 1.0)
    distance = np.linalg.norm(places[:, None, :] - places[None, :, :], axis=2)
    cost = np.where(np.isnan(cost), distance * _cost_per_distance(inventory), cost)
    cost[np.isnan(cost)] = unknown
    np.fill_diagonal(cost, 0.0)
    return cost


def announced_costs(facts_of: Mapping[str, BrokerFacts]) -> dict[tuple[str, str], float]:
    """Return the cost of each link that facts price, by its sorted ends. If both ends report it, the larger counts."""
    costs: dict[tuple[str, str], float] = {}
    for broker, facts in facts_of.items():
        for link in facts.link_costs:
            if link.peer != broker:
                ends = (min(broker, link.peer), max(broker, link.peer))
                costs[ends] = max(link.cost, costs.get(ends, 0.0))
    return costs


def _cost_per_distance(inventory: Inventory) -> float:
    """Return the median of cost over distance of the inventory's links, NaN if distances are unknown."""
    if inventory.positions is None:
        return float("nan")
    apart = np.linalg.norm(inventory.positions[:, None, :] - inventory.positions[None, :, :], axis=2)
    per_distance = inventory.link_cost[np.nonzero(apart)] / apart[np.nonzero(apart)]
    return float(np.median(per_distance)) if per_distance.size else float("nan")


def _shown_places(places: NDArray[np.float64], link_cost: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return positions for a map, shape (n, 2). A broker without one gets that of the one nearest by link cost."""
    placed = np.flatnonzero(~np.isnan(places[:, 0]))
    if not placed.size:
        return None
    shown, missing = places.copy(), np.flatnonzero(np.isnan(places[:, 0]))
    shown[missing] = places[placed[np.argmin(link_cost[np.ix_(missing, placed)], axis=1)]]
    return shown


def _corrected(inventory: Inventory, measured: Mapping[Link, float]) -> Inventory:
    """Return the inventory with these link costs; links of unknown brokers are ignored."""
    costs = {pair: cost for pair, cost in measured.items() if all(end in inventory.index for end in pair)}
    if not costs:
        return inventory
    link_cost = inventory.link_cost.copy()
    for (a, b), cost in costs.items():
        row, column = inventory.index[a], inventory.index[b]
        link_cost[row, column] = link_cost[column, row] = cost
    return replace(inventory, link_cost=link_cost)


@lru_cache(maxsize=RESTRICTED_KEPT_MAX)
def _restricted(inventory: Inventory, brokers: tuple[str, ...]) -> Inventory:
    return inventory.restricted_to(brokers)
