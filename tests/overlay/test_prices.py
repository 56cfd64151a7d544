"""Prices by volume become costs in millionths of the currency; without prices nothing changes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.inventory.prices import Prices, per_month
from regraft.overlay.read_inventory import parse_inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.schemas.member import BrokerFacts, Member, MemberState
from tests.overlay.small_overlays import inventory_of, line_of

LINKS = np.array([[0.0, 0.02, 0.1], [0.02, 0.0, 0.1], [0.1, 0.1, 0.0]])
PRICES = Prices("USD", LINKS, np.array([0.09, 0.09, 0.15]), message_bytes=500.0, delay_price=0.01)


def priced(prices: Prices = PRICES) -> Inventory:
    return replace(inventory_of(line_of(3), {}), prices=prices)


def test_a_notification_costs_its_bytes_at_the_link_price_plus_its_delay() -> None:
    """500 bytes at 0.02 USD per GB are 0.01 millionths; a link of 1 ms at 0.01 per second adds 0.00001."""
    charged = priced().charged
    assert charged.cost_of_link("b00", "b01") == pytest.approx(0.01 + 1e-5 * priced().link_cost[0, 1])
    assert charged.charged is charged
    assert charged.delay_ms.tolist() == priced().link_cost.tolist()
    assert charged.delay_cost[0, 1] == pytest.approx(1e-5 * priced().link_cost[0, 1])
    assert charged.prices is not None
    assert charged.prices.access_money.tolist() == pytest.approx([0.045, 0.045, 0.075])
    assert per_month(1000.0) == pytest.approx(2592.0)
    bare = inventory_of(line_of(3), {})
    assert bare.charged is bare
    assert (bare.delay_cost == bare.link_cost).all()


def test_prices_are_saved_loaded_and_follow_the_brokers() -> None:
    """A broker that is added without prices gets the highest known ones."""
    again = parse_inventory(priced().to_json(), "test")
    assert again.prices is not None
    assert again.to_json() == priced().to_json()
    assert again.restricted_to(("b00", "b02")).charged.delay_ms.shape == (2, 2)
    added = Member("a99", MemberState.JOINING, 0, "", facts=BrokerFacts(processing_cost=1.0))
    fleet = FleetView.of(again, [added]).inventory
    assert fleet.prices is not None
    assert fleet.prices.access_per_gb.tolist() == [0.15, 0.09, 0.09, 0.15]
    assert fleet.prices.link_per_gb[0].tolist() == [0.0, 0.1, 0.1, 0.1]
    assert fleet.prices.is_charged


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"link_per_gb": (LINKS + np.triu(LINKS)).tolist()}, "the same both ways"),
        ({"access_per_gb": [0.1, -0.1, 0.1]}, "negative"),
        ({"access_per_gb": [0.1, 0.1]}, "they must be 2 by 2"),
        ({"message_bytes": 0.0}, "above 0"),
        ({"currency": ""}, "a name"),
    ],
)
def test_invalid_prices_are_reported(change: dict[str, object], reason: str) -> None:
    """The message names the value, as for everything else in an inventory."""
    document = json.loads(priced().to_json())
    document["prices"] |= change
    with pytest.raises(InventoryError, match=reason):
        parse_inventory(json.dumps(document), "test")


def test_only_trees_are_charged() -> None:
    """On other overlays the price of handing over would not be added up."""
    ring = RingConfiguration.hashed(0, 8, line_of(3).brokers)
    with pytest.raises(InventoryError, match="only trees are charged"):
        replace(priced(), bootstrap=ring)
