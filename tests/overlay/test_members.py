"""The fleet: states by the newest record, and one inventory of all known brokers."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.inventory.members import UNKNOWN_COST_FACTOR, FleetView, extended
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost, Position
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of

FOUR = inventory_of(line_of(4), {("b00", "b01"): 2.0})
ON_MAP = Inventory(
    FOUR.brokers,
    FOUR.processing_cost,
    FOUR.link_cost,
    FOUR.degree_max,
    FOUR.bootstrap,
    positions=np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]]),
)


def record(broker: str, state: MemberState, facts: BrokerFacts | None = None, since_ms: int = 1) -> Member:
    return Member(broker, state, since_ms, "as said", facts=facts)


def test_a_broker_of_the_inventory_is_in_service_until_a_record_says_otherwise() -> None:
    """The inventory file holds the first members."""
    fleet = FleetView.of(FOUR)
    assert fleet.serving == FOUR.brokers
    assert fleet.inventory is FOUR
    later = fleet.with_records([record("b01", MemberState.LEAVING), record("b02", MemberState.DEAD)])
    assert later.in_state(MemberState.DEAD) == ("b02",)
    assert later.serving == ("b00", "b01", "b03")
    assert later.with_records([record("b02", MemberState.IN_SERVICE, since_ms=2)]).serving == FOUR.brokers


def test_an_unknown_broker_without_facts_is_left_out() -> None:
    """Its links have no costs, so no planner could use it."""
    assert FleetView.of(FOUR, [record("x1", MemberState.JOINING)]).members.keys() == set(FOUR.brokers)


def test_costs_of_an_added_broker_are_reported_estimated_by_distance_or_unknown() -> None:
    """A reported cost counts; distance prices the other links, and links without either are very expensive."""
    placed = BrokerFacts(1.5, (PeerCost("b00", 4.0),), position=Position(10.0, 0.0), load_max_per_s=50.0, agent="west")
    found = extended(ON_MAP, {"x1": placed, "x2": BrokerFacts(link_costs=(PeerCost("x1", 7.0),))})
    assert found.brokers == (*FOUR.brokers, "x1", "x2")
    assert found.cost_of_link("x1", "b00") == 4.0
    median = (10 / 5 + 10 / 50**0.5) / 2  # The median: three of six links cost 10 for 5, two 10 for 7.
    assert found.cost_of_link("x1", "b01") == pytest.approx(5.0 * median)
    assert found.cost_of_link("x1", "x2") == 7.0
    assert found.cost_of_link("x2", "b03") == UNKNOWN_COST_FACTOR * 10.0
    assert found.load_max_per_s is not None
    assert found.load_max_per_s.tolist() == [np.inf] * 4 + [50.0, np.inf]
    assert found.positions is not None
    assert found.positions[found.index["x2"]].tolist() == [10.0, 0.0]  # At its nearest peer.
    assert found.agent_of == {"x1": "west"}


def test_a_link_that_both_ends_price_costs_the_larger() -> None:
    """Each end knows its own limits: the cheaper figure does not overrule the other."""
    facts = {"x1": BrokerFacts(link_costs=(PeerCost("x2", 3.0),)), "x2": BrokerFacts(link_costs=(PeerCost("x1", 5.0),))}
    assert extended(FOUR, facts).cost_of_link("x1", "x2") == 5.0


def test_a_changed_fleet_is_not_saved_as_a_file() -> None:
    """The file is what a fleet begins with; a changed one would be read as another overlay of epoch 0."""
    with pytest.raises(InventoryError, match="epoch 0 has 4 brokers, but the inventory has 2"):
        FOUR.restricted_to(("b00", "b01")).to_json()
    with pytest.raises(InventoryError, match="x1 is not a broker of the inventory"):
        FOUR.restricted_to(("b00", "x1"))


@given(st.integers(0, 2**32), st.data())
def test_a_fleets_inventory_can_be_restricted_to_any_of_its_brokers(seed: int, data: st.DataObject) -> None:
    """Costs stay symmetric, finite and unchanged, whichever brokers are added or left out."""
    rng = random.Random(seed)
    first = inventory_of(line_of(rng.randint(2, 6)), {})
    added = [f"x{number}" for number in range(rng.randint(0, 4))]
    facts = {
        broker: BrokerFacts(
            rng.random(),
            tuple(PeerCost(peer, rng.random() * 9) for peer in (*first.brokers, *added) if rng.random() < 0.5),
        )
        for broker in [*added, *(broker for broker in first.brokers if rng.random() < 0.2)]
    }
    fleet = FleetView.of(first, [record(broker, MemberState.JOINING, known) for broker, known in facts.items()])
    whole = fleet.inventory
    assert whole.brokers == tuple(sorted({*first.brokers, *added})) == tuple(fleet.members)
    known = [whole.index[broker] for broker in first.brokers]
    if not any(broker in facts for broker in first.brokers) and not added:
        assert np.array_equal(whole.link_cost[np.ix_(known, known)], first.link_cost)
    kept = data.draw(st.lists(st.sampled_from(whole.brokers), min_size=2, unique=True))
    part = fleet.inventory_over(tuple(kept))
    assert part.brokers == tuple(sorted(kept))
    assert part is fleet.inventory_over(tuple(kept))
    for broker in part.brokers:
        for peer in part.brokers:
            assert part.cost_of_link(broker, peer) == whole.cost_of_link(broker, peer)
        assert part.processing_cost[part.index[broker]] == whole.processing_cost[whole.index[broker]]


def test_restricting_to_all_changes_nothing() -> None:
    """An overlay of all brokers uses the inventory itself, with everything that was computed from it."""
    assert FOUR.restricted_to(reversed(brokers_named(4))) is FOUR


def test_a_measured_cost_of_a_link_replaces_the_reported_one() -> None:
    """It holds in all inventories of the fleet, for both ends, until the next measurement; records do not change it."""
    fleet = FleetView.of(FOUR).with_measured({("b01", "b02"): 99.0, ("b00", "gone"): 5.0})
    assert fleet.inventory.cost_of_link("b02", "b01") == 99.0
    assert fleet.inventory_over(("b01", "b02", "b03")).cost_of_link("b01", "b02") == 99.0
    assert fleet.inventory_announced is FOUR
    later = fleet.with_records([record("x1", MemberState.JOINING, BrokerFacts(1.0, (PeerCost("b00", 4.0),)))])
    assert later.inventory.cost_of_link("b01", "b02") == 99.0
    assert later.inventory.cost_of_link("x1", "b00") == 4.0
    assert later.with_measured({}).inventory.cost_of_link("b01", "b02") == 10.0
