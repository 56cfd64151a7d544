"""Link costs between brokers for Jaeger07's evaluation: generated, recorded and measured networks.

In: the number of brokers and a generator; for recorded networks the folder of the data. Out: (n, n) float64, symmetric,
diagonal 0, at most 10. Processing costs, trees and workloads do not belong here.

Section 5 normalises the costs "to values between c_min (= 0.0) and c_max (= 10.0) according to the underlying physical
topology". Reading: the cost of a potential link is the delay of the shortest path between the hosts of its two brokers,
scaled so that the largest cost is 10.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from functools import cache
from pathlib import Path

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from regraft.api.emulation import measured_rtt_ms

Costs = NDArray[np.float64]

COST_MAX = 10.0  # c_max of the paper's section 5.
TRANSIT_DOMAINS = 4  # As in the textbook example of GT-ITM; the paper gives only the total number of domains.
STUB_DOMAINS = 96  # With the transit domains, the paper's 100.
DOMAIN_ROUTERS = 104  # 100 domains of 104 routers: "over 10,000 nodes".
LINKS_PER_ROUTER = 2  # m, the usual value of BRITE.
WAXMAN_BETA = 0.2  # BRITE's usual value. Its alpha only controls how often a draw is repeated, so it is not needed.
# Sides of the planes, which preserve GT-ITM's order of lengths: inside a stub < stub to transit < inside a transit
# domain < between transit domains.
WORLD_KM = 5000.0
TRANSIT_KM = 1000.0
STUB_KM = 100.0
EARTH_RADIUS_KM = 6371.0
ZOO_NODES_MIN = 20  # Minimum for drawn networks, or most of 100 brokers would share sites.
SAME_SITE_COST = 0.1  # 1 % of the largest cost: brokers at the same site are close, but not free.


class DataFileError(FileNotFoundError):
    """The folder given for recorded networks lacks a file."""


def uniform_costs(broker_count: int, rng: np.random.Generator) -> Costs:
    """Return independent costs U[0, 10], as in papers without a network model."""
    drawn = np.triu(rng.uniform(0.0, COST_MAX, (broker_count, broker_count)), 1)
    return drawn + drawn.T


def transit_stub_costs(broker_count: int, rng: np.random.Generator) -> Costs:
    """Return shortest-path delays between random routers of a transit-stub network of 10,400 routers in 100 domains.

    Waxman links join transit domains with each other and routers inside a domain (BRITE models 1 and 5, GT-ITM's
    classes of length); every stub domain is attached to one random transit router. Delay is length. Departure from
    GT-ITM: no extra stub-to-stub links, so delays add up along the hierarchy. Brokers get different routers; raises
    ValueError if there are more brokers than routers. Cost O(domains * routers^3) in array operations.
    """
    domains = TRANSIT_DOMAINS + STUB_DOMAINS
    if not 2 <= broker_count <= domains * DOMAIN_ROUTERS:
        raise ValueError(
            f"broker_count is {broker_count}: must be from 2 to the {domains * DOMAIN_ROUTERS} routers there are"
        )
    points_km = rng.random((domains, DOMAIN_ROUTERS, 2))
    points_km[:TRANSIT_DOMAINS] *= TRANSIT_KM
    points_km[TRANSIT_DOMAINS:] *= STUB_KM
    sides_km = np.repeat([TRANSIT_KM, STUB_KM], [TRANSIT_DOMAINS, STUB_DOMAINS])
    inside_km = _shortest(_waxman_lengths(points_km, sides_km, rng))
    world_km = points_km[:TRANSIT_DOMAINS] + rng.random((TRANSIT_DOMAINS, 1, 2)) * WORLD_KM
    core_km = _core_lengths(world_km, inside_km[:TRANSIT_DOMAINS], rng)

    uplinks = rng.integers(len(core_km), size=STUB_DOMAINS)  # The transit router of each stub domain.
    gateways = rng.integers(DOMAIN_ROUTERS, size=STUB_DOMAINS)
    # The uplink crosses the stub's plane plus its side: longer than links inside, shorter than transit links.
    uplink_km = np.hypot(*points_km[np.arange(TRANSIT_DOMAINS, domains), gateways].T) + STUB_KM

    domain, router = np.divmod(rng.choice(domains * DOMAIN_ROUTERS, broker_count, replace=False), DOMAIN_ROUTERS)
    stub = domain - TRANSIT_DOMAINS
    in_stub = stub >= 0
    climb_km = np.where(in_stub, inside_km[domain, router, gateways[stub]] + uplink_km[stub], 0.0)
    entry = np.where(in_stub, uplinks[stub], domain * DOMAIN_ROUTERS + router)
    delay = climb_km[:, None] + core_km[np.ix_(entry, entry)] + climb_km[None, :]
    together = (domain[:, None] == domain[None, :]) & in_stub
    return _scaled(np.where(together, inside_km[domain[:, None], router[:, None], router[None, :]], delay))


def zoo_costs(data_dir: Path, broker_count: int, rng: np.random.Generator, network: str | None = None) -> Costs:
    """Return shortest-path lengths in a network of the Internet Topology Zoo, with great-circle lengths of links.

    ``network``: its name; None draws one with at least 20 nodes. The archive is the development part of the Zoo (the
    rest is held out), so results on it must not be called a test. If there are fewer nodes than brokers, nodes are used
    equally often; links within a site cost 0.1. Raises DataFileError if the archive is missing, ValueError for a
    network that is unknown, not connected, or has nodes without a location.
    """
    usable = _usable_networks(_data_file(data_dir, "topologies/zoo_index.csv.gz"))
    if network is None:
        network = str(rng.choice([name for name, nodes in usable.items() if nodes >= ZOO_NODES_MIN]))
    if network not in usable:
        raise ValueError(
            f"network {network!r} is not among the {len(usable)} networks of the Zoo that are connected "
            "and fully located: "
            f"{', '.join(usable)}"
        )
    lengths_km = _zoo_lengths(_data_file(data_dir, "topologies/zoo_gml.zip"), network)
    rounds = -(-broker_count // len(lengths_km))
    nodes = np.concatenate([rng.permutation(len(lengths_km)) for _ in range(rounds)])[:broker_count]
    return _with_shared_sites(_scaled(lengths_km[np.ix_(nodes, nodes)]))


def rocketfuel_costs(data_dir: Path, broker_count: int, rng: np.random.Generator, network: str) -> Costs:
    """Return shortest-path latencies between random routers of a Rocketfuel map, of its largest connected part.

    ``network`` is the number of the autonomous system. Raises DataFileError if the archive is missing, ValueError for a
    network that it lacks, or one with fewer routers than brokers.
    """
    with zipfile.ZipFile(_data_file(data_dir, "topologies/rocketfuel_latency.zip")) as maps:
        file = f"{network}.latencies.intra"
        if file not in maps.namelist():
            known = sorted(name.split(".")[0] for name in maps.namelist() if name.endswith(".latencies.intra"))
            raise ValueError(f"network {network!r} is not among the maps of Rocketfuel: {', '.join(known)}")
        lines = maps.read(file).decode().splitlines()
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, float(delay_ms)) for a, b, delay_ms in map(str.split, filter(None, lines)))
    _, routers = max((len(part), sorted(part)) for part in nx.connected_components(graph))
    if broker_count > len(routers):
        raise ValueError(f"broker_count is {broker_count}: {network} has {len(routers)} connected routers")
    chosen = [routers[place] for place in rng.choice(len(routers), broker_count, replace=False).tolist()]
    delays_ms = dict(nx.all_pairs_dijkstra_path_length(graph))
    return _scaled(np.array([[delays_ms[a][b] for b in chosen] for a in chosen]))


def planetlab_costs(broker_count: int, rng: np.random.Generator, data_dir: Path | None = None) -> Costs:
    """Return measured round-trip times between different PlanetLab hosts.

    With ``data_dir`` each pair's median over the 18 time slices, otherwise the shipped slice. Measured times violate
    the triangle inequality, unlike those of the other networks. Raises DataFileError if ``data_dir`` lacks the file,
    ValueError if there are more brokers than hosts.
    """
    rtt_ms = (
        measured_rtt_ms() if data_dir is None else _median_rtt_ms(_data_file(data_dir, "latency/planetlab_rtt.npz"))
    )
    if broker_count > len(rtt_ms):
        raise ValueError(f"broker_count is {broker_count}: PlanetLab has {len(rtt_ms)} measured hosts")
    hosts = rng.choice(len(rtt_ms), broker_count, replace=False)
    return _scaled(rtt_ms[np.ix_(hosts, hosts)])


def _waxman_lengths(points: Costs, sides: Costs, rng: np.random.Generator) -> Costs:
    """Return link lengths of connected random graphs, infinite without a link, shape (graphs, nodes, nodes).

    Node i joins m earlier nodes with weights exp(-d / (beta * L)). Adding Gumbel noise to the exponents and taking the
    m largest is equivalent to such draws, for all nodes at once.
    """
    distances = np.hypot(*np.moveaxis(points[:, :, None] - points[:, None, :], -1, 0))
    count = distances.shape[1]
    keys = rng.gumbel(size=distances.shape) - distances / (WAXMAN_BETA * np.sqrt(2) * sides[:, None, None])
    keys[:, ~np.tri(count, k=-1, dtype=bool)] = -np.inf
    least = np.sort(keys, axis=2)[:, :, -LINKS_PER_ROUTER, None]
    joined = (keys >= least) & (keys > -np.inf)
    joined |= joined.swapaxes(1, 2)
    return np.where(joined, distances, np.inf)


def _shortest(lengths: Costs) -> Costs:
    """Return the lengths of all shortest paths of each graph (Floyd-Warshall, vectorised over graphs and pairs)."""
    shortest = lengths.copy()
    nodes = np.arange(shortest.shape[-1])
    shortest[..., nodes, nodes] = 0.0
    for via in nodes:
        np.minimum(shortest, shortest[..., :, via, None] + shortest[..., via, None, :], out=shortest)
    return shortest


def _core_lengths(world_km: Costs, inside_km: Costs, rng: np.random.Generator) -> Costs:
    """Return shortest paths between all transit routers, by domain; a link of two domains joins random routers."""
    count, routers = inside_km.shape[:2]
    lengths = np.full((count * routers, count * routers), np.inf)
    for domain in range(count):
        block = slice(domain * routers, (domain + 1) * routers)
        lengths[block, block] = inside_km[domain]
    centres_km = world_km.mean(axis=1)
    places = world_km.reshape(-1, 2)
    for upper, lower in np.argwhere(
        np.tril(np.isfinite(_waxman_lengths(centres_km[None], np.array([WORLD_KM]), rng)[0]))
    ):
        ends = np.array([upper, lower]) * routers + rng.integers(routers, size=2)
        lengths[tuple(ends)] = lengths[tuple(ends[::-1])] = np.hypot(*(places[ends[0]] - places[ends[1]]))
    return _shortest(lengths)


def _scaled(delay: Costs) -> Costs:
    greatest = float(delay.max())
    if greatest <= 0:
        raise ValueError("all delays are 0: at least two brokers at different places are needed")
    symmetric = (delay + delay.T) / 2  # Sums along a path depend on the direction in their last digits.
    scaled: Costs = symmetric * (COST_MAX / symmetric.max())
    np.fill_diagonal(scaled, 0.0)
    return scaled


def _with_shared_sites(costs: Costs) -> Costs:
    raised = np.maximum(costs, SAME_SITE_COST)
    np.fill_diagonal(raised, 0.0)
    return raised


def _data_file(data_dir: Path, name: str) -> Path:
    path = data_dir / name
    if not path.is_file():
        raise DataFileError(f"{path} does not exist: --data must name the folder with {name}, it is {data_dir}")
    return path


def _usable_networks(index: Path) -> dict[str, int]:
    """Return the node counts by name of connected networks whose nodes all have locations."""
    with gzip.open(index, "rt", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {
        row["name"]: int(row["nodes"])
        for row in rows
        if row["components"] == "1" and row["nodes"] == row["nodes_with_latlon"]
    }


def _zoo_lengths(archive: Path, network: str) -> Costs:
    with zipfile.ZipFile(archive) as files:
        text = files.read(f"{network}.gml").decode("utf-8")
    # Some files have parallel links but do not declare a multigraph.
    lines = io.StringIO(text.replace("graph [", "graph [\n  multigraph 1", 1)).readlines()
    graph = nx.parse_gml(lines, label="id")
    nodes = sorted(graph.nodes)
    place = np.radians([[graph.nodes[node]["Latitude"], graph.nodes[node]["Longitude"]] for node in nodes])
    distances = _great_circle_km(place)
    lengths = np.full(distances.shape, np.inf)
    row = {node: position for position, node in enumerate(nodes)}
    for a, b in graph.edges():
        lengths[row[a], row[b]] = lengths[row[b], row[a]] = distances[row[a], row[b]]
    return _shortest(lengths)


def _great_circle_km(place: Costs) -> Costs:
    """Return distances on the sphere from latitude and longitude in radians (haversine)."""
    latitude, longitude = place.T
    half = np.sin((latitude[:, None] - latitude[None, :]) / 2) ** 2
    half += (
        np.cos(latitude[:, None])
        * np.cos(latitude[None, :])
        * np.sin((longitude[:, None] - longitude[None, :]) / 2) ** 2
    )
    distances: Costs = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0)))
    return distances


@cache
def _median_rtt_ms(path: Path) -> Costs:
    with np.load(path) as recorded:
        median: Costs = np.median(recorded["rtt_ms"], axis=0)
    return median
