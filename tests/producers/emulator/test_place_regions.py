"""Brokers in cloud regions: dealt out in turn, with the measured delays and list prices that are shipped."""

import random

import numpy as np
import pytest

from regraft.overlay.read_inventory import parse_inventory
from regraft.producers.emulator.place_regions import broker_count_max, place_regions, shipped_regions


def test_each_region_gets_a_broker_before_any_gets_another() -> None:
    """Of 19 regions with 40 brokers two have three and the others two; the names contain the region."""
    inventory = place_regions(40, 8, random.Random(1))
    regions = [broker[:-1] for broker in inventory.brokers]
    counts = {region: regions.count(region) for region in shipped_regions().names}
    assert sorted(counts.values()) == [2] * 17 + [3] * 2
    assert parse_inventory(inventory.to_json(), "test").to_json() == inventory.to_json()


def test_links_cost_list_prices_and_have_measured_delays() -> None:
    """A GB from Cape Town to Ireland costs 0.147 and back 0.02; access costs what the region charges."""
    inventory = place_regions(38, 8, random.Random(1))
    prices, index = inventory.prices, inventory.index
    assert prices is not None
    cape, dublin = index["af-south-1a"], index["eu-west-1b"]
    assert prices.link_per_gb[cape, dublin] == pytest.approx((0.147 + 0.02) / 2)
    assert prices.link_per_gb[cape, index["af-south-1b"]] == 0.01
    assert prices.access_per_gb[cape] == 0.154
    assert 50 < inventory.link_cost[cape, dublin] < 150
    assert (np.diagonal(inventory.link_cost) == 0).all()
    assert inventory.charged.cost_of_link("af-south-1a", "eu-west-1b") > 0.0835


def test_there_are_as_many_places_as_letters() -> None:
    """Further brokers would have no name."""
    with pytest.raises(ValueError, match=f"{broker_count_max()} at most"):
        place_regions(broker_count_max() + 1, 8, random.Random(1))
