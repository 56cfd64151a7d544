"""Network coordinates: exact if costs are distances, close on the internet, and absent without links."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from regraft.controller.windows.estimate_links import MEASURED_PEERS_MIN, NetworkCoordinates
from regraft.overlay.overlay_configuration import Link
from regraft.producers.emulator.place_overlay import measured_rtt_ms
from regraft.producers.nodes.links.choose_candidates import NEAR_MAX

WINDOWS = 24  # two minutes of windows of 5 s


def names_of(count: int) -> list[str]:
    return [f"b{place:03d}" for place in range(count)]


def settled(costs: NDArray[np.float64], pairs: set[tuple[int, int]], windows: int = WINDOWS) -> NetworkCoordinates:
    """Return coordinates from the costs of these pairs alone."""
    names = names_of(len(costs))
    measured: dict[Link, float] = {(names[a], names[b]): float(costs[a, b]) for a, b in pairs}
    coordinates = NetworkCoordinates(1)
    for _ in range(windows):
        coordinates.relax(measured)
    return coordinates


def errors_of(costs: NDArray[np.float64], pairs: set[tuple[int, int]], found: NDArray[np.float64]) -> list[float]:
    """Return the relative error of each pair that was not measured."""
    others = [pair for pair in itertools.combinations(range(len(costs)), 2) if pair not in pairs]
    return [abs(float(found[pair]) - costs[pair]) / costs[pair] for pair in others]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_distances_with_access_delays_are_recovered(seed: int) -> None:
    """Points in the plane with access delays: 12 measured links for each of 40 suffice to predict all others."""
    rng = np.random.default_rng(seed)
    at, ways = rng.uniform(0, 100, (40, 2)), rng.uniform(1, 20, 40)
    costs = np.linalg.norm(at[:, None] - at[None], axis=2) + ways[:, None] + ways[None]
    pairs = {tuple(sorted((a, int(b)))) for a in range(40) for b in rng.choice(np.delete(np.arange(40), a), 12, False)}
    coordinates = settled(costs, pairs)
    assert coordinates.is_settled
    errors = errors_of(costs, pairs, coordinates.estimates(names_of(40)).link_cost)
    assert np.median(errors) < 0.02


def test_half_near_and_half_random_peers_locate_hosts_of_planetlab() -> None:
    """As nodes choose them: for 150 hosts, the median error of unmeasured pairs is below an eighth; with near peers
    alone it is about half.
    """
    whole = measured_rtt_ms()
    hosts = sorted(random.Random(5).sample(range(len(whole)), 150))
    costs = whole[np.ix_(hosts, hosts)] / 2
    rng = random.Random(6)
    near = {(a, int(b)) for a in range(150) for b in np.argsort(costs[a])[1 : NEAR_MAX + 1] if a < b}
    drawn = {(a, b) for a in range(150) for b in rng.sample([*range(a), *range(a + 1, 150)], NEAR_MAX) if a < b}
    mixed = errors_of(costs, near | drawn, settled(costs, near | drawn).estimates(names_of(150)).link_cost)
    assert np.median(mixed) < 0.125
    assert np.quantile(mixed, 0.9) < 0.4
    alone = errors_of(costs, near, settled(costs, near).estimates(names_of(150)).link_cost)
    assert np.nanmedian(alone) > 0.4


def test_a_broker_with_few_measured_links_has_no_coordinates() -> None:
    """One more link gives it a place; a broker whose links are forgotten loses its place."""
    costs = np.full((12, 12), 10.0)
    whole = set(itertools.combinations(range(11), 2))
    few = whole | {(place, 11) for place in range(MEASURED_PEERS_MIN - 1)}
    names = names_of(12)
    found = settled(costs, few).estimates(names)
    assert found.cost_of_link(("b000", "b011")) is None
    assert found.cost_of_link(("b000", "b001")) == pytest.approx(10.0, rel=0.3)
    assert found.cost_of_link(("b000", "x99")) is None
    coordinates = settled(costs, few | {(MEASURED_PEERS_MIN - 1, 11)})
    assert coordinates.estimates(names).cost_of_link(("b000", "b011")) is not None
    coordinates.relax({})
    assert not coordinates.is_settled
