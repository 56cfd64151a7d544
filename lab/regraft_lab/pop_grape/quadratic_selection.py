"""GRAPE's broker selection to the letter: Algorithms 1 to 3 of Cheung09 for each candidate from scratch.

Quadratic in the number of brokers; the reference for the results and times of the controller's linear selection. Names
follow the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from regraft.api.trees import HopDelays, TraceSessions, TreeConfiguration

CLIENT = ""


@dataclass
class TracedBroker:
    """A broker's report: neighbours, delivered notifications as bits, deliveries, and its delays to each neighbour.

    ``delays_to_ms`` is queueAndMatchDelaysTo: input queueing, matching and output queueing, by neighbour and CLIENT.
    """

    name: str
    neighbours: tuple[str, ...]
    bit_vector: int
    total_deliveries: float
    delays_to_ms: Mapping[str, float]
    downstream: dict[str, int] = field(default_factory=dict)  # Algorithm 3 stores this for future retrieval.


@dataclass
class DeliveryStats:
    """The sums of Algorithm 1."""

    total_delay_ms: float = 0.0
    total_deliveries: float = 0.0


Brokers = Mapping[str, TracedBroker]


def calc_avg_delay(brokers: Brokers, stats: DeliveryStats, cumulative_ms: float, current: str, previous: str) -> None:
    """Add the delays of the deliveries at and beyond ``current``. Source: Algorithm 1."""
    broker = brokers[current]
    stats.total_delay_ms += broker.total_deliveries * (cumulative_ms + broker.delays_to_ms[CLIENT])
    stats.total_deliveries += broker.total_deliveries
    for neighbour in broker.neighbours:
        if neighbour != previous:
            onward_ms = cumulative_ms + broker.delays_to_ms[neighbour]
            calc_avg_delay(brokers, stats, onward_ms, neighbour, current)


def calc_total_msg_rate(brokers: Brokers, current: str, previous: str) -> int:
    """Return the messages through ``current`` and all brokers beyond it. Source: Algorithm 2."""
    local = calc_downstream_bv(brokers, current, previous).bit_count()
    behind = [each for each in brokers[current].neighbours if each != previous]
    return local + sum(calc_total_msg_rate(brokers, neighbour, current) for neighbour in behind)


def calc_downstream_bv(brokers: Brokers, current: str, previous: str) -> int:
    """Return the notifications delivered at ``current`` or beyond it, as bits. Source: Algorithm 3."""
    broker = brokers[current]
    aggregated = broker.bit_vector
    for neighbour in broker.neighbours:
        if neighbour != previous:
            if neighbour not in broker.downstream:
                broker.downstream[neighbour] = calc_downstream_bv(brokers, neighbour, current)
            aggregated |= broker.downstream[neighbour]
    return aggregated


def select_quadratic(
    brokers: Brokers,
    present: str,
    priority: str,
    weight: int,
    pings_ms: Mapping[str, float] | None = None,
) -> str:
    """Return the broker that GRAPE selects (section 4.2); the present one is also a candidate.

    Reading: "normalised" means min-max to 0..100 over the candidates. Ties go to the present broker, else to the first
    by name.
    """
    candidates = [present, *downstream_brokers(brokers, present)]
    load = {name: float(calc_total_msg_rate(brokers, name, CLIENT)) for name in candidates}
    delay = {}
    for name in candidates:
        stats = DeliveryStats()
        calc_avg_delay(brokers, stats, 0.0, name, CLIENT)
        mean_ms = stats.total_delay_ms / stats.total_deliveries if stats.total_deliveries else 0.0
        delay[name] = mean_ms + (pings_ms[name] if pings_ms else 0.0)
    first, second = (load, delay) if priority == "load" else (delay, load)
    least, most = min(first.values()), max(first.values())
    # As a product, so that whole numbers are compared without rounding.
    kept = [name for name in candidates if 100 * (first[name] - least) <= (100 - weight) * (most - least)]
    best = [name for name in kept if second[name] == min(second[each] for each in kept)]
    return present if present in best else min(best)


def downstream_brokers(brokers: Brokers, home: str) -> list[str]:
    """Return the brokers that got at least one notification of the session from ``home``, without ``home``."""
    downstream = []
    frontier = [(home, CLIENT)]
    while frontier:
        current, previous = frontier.pop()
        for neighbour in brokers[current].neighbours:
            if neighbour != previous and calc_downstream_bv(brokers, neighbour, current):
                downstream.append(neighbour)
                frontier.append((neighbour, current))
    return downstream


def reports_of(
    configuration: TreeConfiguration, sessions: TraceSessions, place: int, delays: HopDelays, parents: Sequence[int]
) -> dict[str, TracedBroker]:
    """Return the reports of a publisher's session as brokers would send them, from the controller's arrays."""
    names = configuration.brokers
    columns = sessions.words[:, sessions.starts[place] : [*sessions.starts, sessions.words.shape[1]][place + 1]]
    hops: dict[tuple[str, str], float] = {}
    for child, parent in enumerate(parents):
        hops[names[child], names[parent]] = float(delays.inward[child])
        hops[names[parent], names[child]] = float(delays.outward[child])
    return {
        name: TracedBroker(
            name,
            configuration.neighbours[name],
            int.from_bytes(np.ascontiguousarray(columns[row]).tobytes(), "little"),
            float(sessions.deliveries[place, row]),
            {peer: hops[name, peer] for peer in configuration.neighbours[name]} | {CLIENT: float(delays.local[row])},
        )
        for row, name in enumerate(names)
    }
