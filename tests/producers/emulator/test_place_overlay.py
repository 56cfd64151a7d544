"""Brokers are placed on measured hosts; if there are more brokers than hosts, on a plane with similar delays."""

import random

import numpy as np
import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.emulator.place_overlay import host_count, place_overlay, place_scot


@pytest.mark.parametrize("broker_count", [3, 40, 490])
def test_links_cost_half_of_the_measured_rtt(broker_count: int) -> None:
    """The first tree keeps the degree cap."""
    inventory = place_overlay(broker_count, 8, random.Random(1))
    off_diagonal = inventory.link_cost[~np.eye(broker_count, dtype=bool)]
    assert len(inventory.brokers) == broker_count
    assert off_diagonal.min() >= 0.05
    assert off_diagonal.max() < 400
    assert inventory.bootstrap.degree_max <= 8
    assert inventory.processing_cost.min() >= 1.0
    assert inventory.processing_cost.max() <= 3.0


def test_the_same_seed_gives_the_same_placement() -> None:
    """Placement depends on the seed alone."""
    first, again, other = (place_overlay(40, 8, random.Random(seed)) for seed in (1, 1, 2))
    assert (first.link_cost == again.link_cost).all()
    assert first.bootstrap == again.bootstrap
    assert not (first.link_cost == other.link_cost).all()


def test_more_brokers_than_hosts_get_synthetic_rtts() -> None:
    """They are about as long as the measured ones."""
    assert host_count() == 490
    measured = place_overlay(490, 8, random.Random(1))
    synthetic = place_overlay(1_000, 8, random.Random(1))
    assert synthetic.brokers[-1] == "b999"
    assert np.median(synthetic.link_cost) == pytest.approx(np.median(measured.link_cost), rel=0.15)


def test_regions_hold_each_broker_once_with_close_brokers_together() -> None:
    """A region is its first broker and the nearest ones that no earlier region has."""
    inventory = place_scot(12, 3, random.Random(5))
    scot = inventory.bootstrap
    assert isinstance(scot, ScotConfiguration)
    assert scot.brokers == inventory.brokers
    assert [len(region) for region in scot.regions] == [3] * 4
    first, *near = scot.regions[0]
    others = [broker for broker in scot.brokers if broker not in scot.regions[0]]
    farthest = max(inventory.cost_of_link(first, broker) for broker in near)
    assert farthest <= min(inventory.cost_of_link(first, broker) for broker in others)
    with pytest.raises(ValueError, match="13 brokers cannot form regions of 3"):
        place_scot(13, 3, random.Random(5))
