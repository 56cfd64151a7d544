"""Link costs between brokers: one form for all networks, and how the networks differ."""

import csv
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from regraft_lab.psoop.topologies import (
    COST_MAX,
    SAME_SITE_COST,
    Costs,
    DataFileError,
    planetlab_costs,
    rocketfuel_costs,
    transit_stub_costs,
    uniform_costs,
    zoo_costs,
)

# A line of three cities, each a quarter of the equator from the next, and a link that is listed twice.
LINE_GML = """graph [
  label "Line"
  node [ id 0 label "A" Longitude 0.0 Latitude 0.0 ]
  node [ id 1 label "B" Longitude 90.0 Latitude 0.0 ]
  node [ id 2 label "C" Longitude 180.0 Latitude 0.0 ]
  edge [ source 0 target 1 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 ]
]
"""


def assert_is_a_cost_matrix(costs: Costs, broker_count: int) -> None:
    assert costs.shape == (broker_count, broker_count)
    assert costs.dtype == np.float64
    assert np.array_equal(costs, costs.T)
    assert not costs.diagonal().any()
    assert (costs[np.triu_indices(broker_count, 1)] > 0).all()
    assert costs.max() <= COST_MAX * (1 + 1e-12)


def zoo_folder(root: Path) -> Path:
    """Return a Zoo with one usable network and one with two components."""
    folder = root / "topologies"
    folder.mkdir()
    rows = [("name", "nodes", "components", "nodes_with_latlon"), ("Line", 3, 1, 3), ("Torn", 3, 2, 3)]
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    (folder / "zoo_index.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    with zipfile.ZipFile(folder / "zoo_gml.zip", "w") as archive:
        archive.writestr("Line.gml", LINE_GML)
    return root


@pytest.mark.parametrize("costs_of", [uniform_costs, transit_stub_costs, planetlab_costs])
def test_every_network_gives_a_cost_matrix_that_its_seed_repeats(costs_of) -> None:  # type: ignore[no-untyped-def]
    """Symmetric, zero on the diagonal, at most 10; the same seed gives the same costs, another seed others."""
    first, again, other = (costs_of(100, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert_is_a_cost_matrix(first, 100)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_rocketfuel_costs_are_shortest_latencies_in_the_largest_part(tmp_path: Path) -> None:
    """A line a-b-c with 1 and 4 ms and a direct link of 9 ms, beside a pair on its own; the greatest cost is 10."""
    (tmp_path / "topologies").mkdir()
    with zipfile.ZipFile(tmp_path / "topologies" / "rocketfuel_latency.zip", "w") as archive:
        archive.writestr("7.latencies.intra", "a b 1\nb c 4\na c 9\nx y 1\n")
    costs = rocketfuel_costs(tmp_path, 3, np.random.default_rng(1), "7")
    assert_is_a_cost_matrix(costs, 3)
    assert sorted(costs[np.triu_indices(3, 1)].tolist()) == [2.0, 8.0, 10.0]
    with pytest.raises(ValueError, match="is not among the maps of Rocketfuel: 7"):
        rocketfuel_costs(tmp_path, 3, np.random.default_rng(1), "8")
    with pytest.raises(ValueError, match="has 3 connected routers"):
        rocketfuel_costs(tmp_path, 4, np.random.default_rng(1), "7")
    with pytest.raises(DataFileError):
        rocketfuel_costs(tmp_path / "none", 3, np.random.default_rng(1), "7")


def test_uniform_costs_are_uniform() -> None:
    """The mean of U[0, 10] is 5 and a tenth of the costs is below 1."""
    costs = uniform_costs(200, np.random.default_rng(3))[np.triu_indices(200, 1)]
    assert costs.mean() == pytest.approx(5.0, abs=0.1)
    assert (costs < 1).mean() == pytest.approx(0.1, abs=0.01)


def test_transit_stub_costs_are_distances() -> None:
    """The greatest cost is 10, and no detour over a third broker is shorter than the network's path."""
    costs = transit_stub_costs(100, np.random.default_rng(4))
    assert costs.max() == pytest.approx(COST_MAX)
    shortest_detour = (costs[:, :, None] + costs[None, :, :]).min(axis=1)
    assert (costs <= shortest_detour + 1e-9).all()


def test_brokers_of_one_stub_domain_are_much_closer_than_others() -> None:
    """With several brokers per domain, about one pair in a hundred shares one; such pairs cost a small fraction."""
    costs = transit_stub_costs(600, np.random.default_rng(5))[np.triu_indices(600, 1)]
    close = np.sort(costs)[: len(costs) // 200]
    assert close.max() < 0.15 * np.median(costs)


def test_more_brokers_than_routers_are_refused() -> None:
    """Two brokers never share a router, so their number is bounded by the paper's 'over 10,000 nodes'."""
    with pytest.raises(ValueError, match="broker_count is 10401: must be from 2 to the 10400 routers"):
        transit_stub_costs(10_401, np.random.default_rng(1))


def test_zoo_costs_follow_the_links_on_the_sphere(tmp_path: Path) -> None:
    """On a line of three cities the ends cost twice as much as neighbours, whichever broker is where."""
    costs = zoo_costs(zoo_folder(tmp_path), 3, np.random.default_rng(1), "Line")
    assert_is_a_cost_matrix(costs, 3)
    assert sorted(costs[np.triu_indices(3, 1)].tolist()) == pytest.approx([5.0, 5.0, 10.0])


def test_brokers_that_share_a_city_are_close_but_at_a_cost(tmp_path: Path) -> None:
    """Seven brokers in three cities: 3 + 2 + 2, so five pairs share one."""
    costs = zoo_costs(zoo_folder(tmp_path), 7, np.random.default_rng(1), "Line")
    assert_is_a_cost_matrix(costs, 7)
    assert (costs[np.triu_indices(7, 1)] == SAME_SITE_COST).sum() == 5


def test_a_network_without_paths_is_refused_with_the_usable_ones(tmp_path: Path) -> None:
    """In a network of two components some pairs have no cost."""
    with pytest.raises(ValueError, match=r"network 'Torn' is not among the 1 networks of the Zoo .*: Line"):
        zoo_costs(zoo_folder(tmp_path), 3, np.random.default_rng(1), "Torn")


def test_missing_data_names_the_file_and_the_option(tmp_path: Path) -> None:
    """Recorded networks are not shipped, so the message says what is missing and which option names it."""
    with pytest.raises(DataFileError, match=r"topologies/zoo_index\.csv\.gz does not exist: --data must name"):
        zoo_costs(tmp_path, 10, np.random.default_rng(1))
    with pytest.raises(DataFileError, match=r"latency/planetlab_rtt\.npz does not exist: --data must name"):
        planetlab_costs(10, np.random.default_rng(1), tmp_path)


def test_planetlab_takes_the_median_of_the_slices(tmp_path: Path) -> None:
    """One slow slice does not make a pair expensive."""
    slices = np.array([[[0, first, 20], [first, 0, 30], [20, 30, 0]] for first in (10.0, 7000.0, 10.0)])
    (tmp_path / "latency").mkdir()
    np.savez_compressed(tmp_path / "latency" / "planetlab_rtt.npz", rtt_ms=slices)
    costs = planetlab_costs(3, np.random.default_rng(1), tmp_path)
    assert sorted(costs[np.triu_indices(3, 1)].tolist()) == pytest.approx([10 / 3, 20 / 3, 10.0])


def test_more_brokers_than_hosts_are_refused() -> None:
    """The shipped cut has 490 hosts."""
    with pytest.raises(ValueError, match="broker_count is 491: PlanetLab has 490 measured hosts"):
        planetlab_costs(491, np.random.default_rng(1))
