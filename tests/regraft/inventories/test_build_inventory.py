"""An inventory of what several sources say: delays, prices, and a tree of cheap links under the cap."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.inventories.build_inventory import Tariff, Wishes, build_inventory, combined
from regraft.inventories.found_brokers import FoundBrokers, both_ways
from regraft.inventories.measure_sphere import delay_ms_between
from regraft.inventories.source_error import SourceError
from regraft.overlay.read_inventory import load_inventory, parse_inventory
from tests.overlay.small_overlays import brokers_named

STAY = Wishes(8, clients_stay=True)
ZURICH, PARIS, NEW_YORK = (8.55, 47.37), (2.35, 48.86), (-74.0, 40.71)


def test_missing_delays_are_those_of_the_shortest_path() -> None:
    """A measured delay stays, even if a path is shorter; a missing one is never below what paths show."""
    found = FoundBrokers(["c", "a", "b"], {("a", "b"): 2.0, ("b", "c"): 3.0})
    inventory, notes = build_inventory(found, STAY)
    assert inventory.brokers == ("a", "b", "c")
    assert inventory.cost_of_link("a", "c") == 5.0
    assert notes == ["no delay is known for 1 pair; that of the shortest known path is used: a-c"]
    found.delays_ms["a", "c"] = 9.0
    inventory, notes = build_inventory(found, STAY)
    assert inventory.cost_of_link("a", "c") == 9.0
    assert notes == []


def test_a_delay_of_zero_is_known() -> None:
    """Two brokers of one rack have no delay, which differs from an unknown one."""
    found = FoundBrokers(["a", "b", "c"], {("a", "b"): 0.0, ("b", "c"): 3.0})
    inventory, _ = build_inventory(found, STAY)
    assert inventory.cost_of_link("a", "b") == 0.0
    assert inventory.cost_of_link("a", "c") == 3.0


def test_brokers_that_nothing_connects_are_named() -> None:
    """Each pair is one sentence."""
    found = FoundBrokers(["a", "b", "c"], {("a", "b"): 2.0})
    with pytest.raises(SourceError) as raised:
        build_inventory(found, STAY)
    assert [error.split(",")[0] for error in raised.value.errors] == [
        "nothing is known about the delay between a and c",
        "nothing is known about the delay between b and c",
    ]


def test_delays_of_regions_are_those_of_their_brokers() -> None:
    """A pair's own delay wins over that of its regions."""
    regions = {"a1": "east", "a2": "east", "b1": "west"}
    delays = {("east", "east"): 0.5, ("east", "west"): 30.0, ("a2", "b1"): 31.0}
    inventory, notes = build_inventory(FoundBrokers(list(regions), delays, region_of=regions), STAY)
    assert [inventory.cost_of_link(*pair) for pair in (("a1", "a2"), ("a1", "b1"), ("a2", "b1"))] == [0.5, 30.0, 31.0]
    assert notes == []


def test_places_give_delays_and_positions() -> None:
    """From Zurich to New York light in fibre takes some 32 ms."""
    places = {"a": ZURICH, "b": PARIS, "c": NEW_YORK}
    inventory, notes = build_inventory(FoundBrokers(list(places), places=places), STAY)
    assert inventory.cost_of_link("a", "c") == pytest.approx(31.6, abs=0.1)
    assert inventory.positions is not None
    assert inventory.positions[0].tolist() == list(ZURICH)
    assert "a lower bound" in notes[0]
    assert delay_ms_between(ZURICH, ZURICH) == 0.0


def test_prices_need_every_pair_of_regions() -> None:
    """A link costs the mean of both directions; what is missing is named with the brokers that need it."""
    found = FoundBrokers(["a", "b"], places={"a": ZURICH, "b": PARIS}, region_of={"a": "zrh", "b": "cdg"})
    tariff = Tariff("USD", 500.0, {("zrh", "cdg"): 0.02, ("cdg", "zrh"): 0.04}, {"zrh": 0.09, "cdg": 0.08})
    prices = build_inventory(found, Wishes(8, clients_stay=True, prices=tariff))[0].prices
    assert prices is not None
    assert prices.link_per_gb.tolist() == [[0.0, 0.03], [0.03, 0.0]]
    assert prices.access_per_gb.tolist() == [0.09, 0.08]
    del tariff.link_per_gb["zrh", "cdg"], tariff.access_per_gb["cdg"]
    with pytest.raises(SourceError) as raised:
        build_inventory(found, Wishes(8, clients_stay=True, prices=tariff))
    assert raised.value.errors == (
        "the price from zrh to cdg is missing, for a and b",
        "the price from cdg to clients is missing, for b",
    )


@pytest.mark.parametrize(
    ("found", "degree_max", "why"),
    [
        (FoundBrokers(list(brokers_named(10_001))), 8, "10,001 brokers found: an inventory has at most 10,000"),
        (FoundBrokers(["a"]), 8, "1 broker found: at least 2"),
        (FoundBrokers(["a", "b", "a"]), 8, "a is listed twice"),
        (FoundBrokers(["a", "b", "c"]), 1, "--degree-max is 1: a tree over 3 brokers needs at least 2"),
        (FoundBrokers(["a", "b"], load_max_per_s={"a": 5.0}), 8, "load_max_per_s of b is missing or 0"),
    ],
)
def test_impossible_lists_are_refused(found: FoundBrokers, degree_max: int, why: str) -> None:
    """The sentence names the broker or the option."""
    with pytest.raises(SourceError, match=why):
        build_inventory(found, Wishes(degree_max, clients_stay=True))


def test_the_first_source_has_the_brokers_and_later_ones_know_better() -> None:
    """A network's other nodes carry traffic without being brokers."""
    network = FoundBrokers(["a", "b", "r"], {("a", "r"): 1.0, ("b", "r"): 2.0})
    inventory, _ = build_inventory(combined([FoundBrokers(["a", "b"]), network]), STAY)
    assert inventory.brokers == ("a", "b")
    assert inventory.cost_of_link("a", "b") == 3.0
    measured = FoundBrokers(["a", "b"], {("a", "b"): 2.5})
    inventory, _ = build_inventory(combined([FoundBrokers(["a", "b"]), network, measured]), STAY)
    assert inventory.cost_of_link("a", "b") == 2.5


def test_uneven_delays_are_averaged_and_noted() -> None:
    """Of several values of one direction the least counts."""
    found, notes = both_ways([("a", "b", 4.0), ("a", "b", 3.0), ("b", "a", 5.0), ("c", "a", 1.0), ("a", "c", 1.05)])
    assert found == {("a", "b"): 4.0, ("a", "c"): 1.025}
    assert notes == [
        "delays differ by direction for 1 pair; the mean is used. The largest difference is between a and b (3 and "
        "5 ms)"
    ]


@given(st.integers(2, 8), st.integers(0, 2**32))
def test_what_is_built_can_be_read(count: int, seed: int) -> None:
    """Whatever subset of delays is known, the inventory is one, or the pairs that lack a delay are named."""
    rng = random.Random(seed)
    names = list(brokers_named(count))
    pairs = [(a, b) for a in names for b in names if a < b and rng.random() < 0.7]
    found = FoundBrokers(names, {pair: rng.choice((0.0, 0.5, rng.random() * 100)) for pair in pairs})
    try:
        inventory, _ = build_inventory(found, STAY)
    except SourceError as error:
        errors = error.errors
    else:
        errors = ()
        assert parse_inventory(inventory.to_json(), "test").brokers == tuple(names)
        assert all(inventory.cost_of_link(*pair) == round(found.delays_ms[pair], 4) for pair in pairs)
    assert all("nothing is known about the delay between" in error for error in errors)


def test_made_inventories_load(tmp_path: Path) -> None:
    """A file is what was built."""
    inventory, _ = build_inventory(FoundBrokers(["b", "a"], agent_of={"a": "west"}), STAY)
    inventory.save(tmp_path / "inventory.json")
    assert load_inventory(tmp_path / "inventory.json").agent_of == {"a": "west"}
    assert inventory.clients_stay
