"""Measure a placement of publishers on closed windows with this placement.

In: windows, the overlay's tree and costs. Out: Measures, from brokers' telemetry or by exact count. Choosing placements
does not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import ClosedWindow
from regraft.api.trees import PublisherCosts, TreeConfiguration
from regraft_lab.pop_grape.costs_of_homes import cost_at_per_s, loads_at_per_s

Floats = NDArray[np.float64]
Homes = Mapping[str, str]

SECOND_MS = 1_000.0


class Measures(msgspec.Struct, frozen=True):
    """The measures plotted in section 5.2, without memory and message overhead, and the one cost.

    ``message_rate_per_s``: notifications served by a broker, mean over brokers. ``input_utilisation``: arrivals per
    second over the greatest number that can be matched in a second, mean over brokers; ``utilisations``: that of each
    broker. ``output_utilisation``: share of the time that a broker's links send, times bytes queued over bytes sent,
    summed over its links, mean over brokers; 0 if bandwidth is unlimited. Both utilisations are defined in another
    paper ([11] of the text); the README describes our reading. ``delay_ms``: from the publisher's broker to the
    subscriber's, both included, and ``hops`` between them, mean over deliveries. ``client_delay_ms``: the delay that
    the paper measures, between clients that do not move: a publisher and all its subscribers are on one machine, here
    that of the publisher's first home, whichever brokers they connect to. ``cost_per_s``: the one cost
    (:mod:`overlay.tree.overlay_cost`).
    """

    message_rate_per_s: float
    input_utilisation: float
    output_utilisation: float
    delay_ms: float
    client_delay_ms: float
    hops: float
    cost_per_s: float
    utilisations: list[float]


def measured(
    windows: Sequence[ClosedWindow],
    tree: TreeConfiguration,
    inventory: Inventory,
    delay_ms: float,
    machines: Homes | None = None,
) -> Measures:
    """Return the measures of windows of equal length from the brokers' telemetry.

    ``delay_ms``: the delay from the ledger. ``machines``: the broker on whose machine each publisher runs, by default
    its home in each window.
    """
    rates, utilisations, output = (np.zeros(len(inventory.brokers)) for _ in range(3))
    for queue in (queue for window in windows for queue in window.queues):
        place = inventory.index[queue.broker]
        if not queue.peer:
            rates[place] += queue.notifications_out_per_s / len(windows)
            utilisations[place] += queue.messages_in_per_s / len(windows) * inventory.processing_cost[place] / SECOND_MS
        elif queue.bytes_out_per_s > 0:
            output[place] += queue.busy_share * queue.bytes_in_per_s / queue.bytes_out_per_s / len(windows)
    return Measures(
        message_rate_per_s=float(rates.mean()),
        input_utilisation=float(utilisations.mean()),
        output_utilisation=float(output.mean()),
        delay_ms=delay_ms,
        client_delay_ms=delay_ms + _client_links_ms(windows, inventory, machines),
        hops=_hops(windows, tree),
        cost_per_s=_cost_and_rates(windows, tree, inventory)[0],
        utilisations=[float(each) for each in utilisations],
    )


def counted(
    windows: Sequence[ClosedWindow], tree: TreeConfiguration, inventory: Inventory, machines: Homes | None = None
) -> Measures:
    """Return the same measures by exact count, as if no message ever waited for another."""
    cost_per_s, rates = _cost_and_rates(windows, tree, inventory)
    utilisations = rates * inventory.processing_cost / SECOND_MS
    delay_ms = _over_deliveries(windows, tree, inventory.processing_cost, inventory.link_cost)
    return Measures(
        message_rate_per_s=float(rates.mean()),
        input_utilisation=float(utilisations.mean()),
        output_utilisation=0.0,
        delay_ms=delay_ms,
        client_delay_ms=delay_ms + _client_links_ms(windows, inventory, machines),
        hops=_hops(windows, tree),
        cost_per_s=cost_per_s,
        utilisations=[float(each) for each in utilisations],
    )


def _cost_and_rates(
    windows: Sequence[ClosedWindow], tree: TreeConfiguration, inventory: Inventory
) -> tuple[float, Floats]:
    """Return the one cost and the notifications through each broker, per second, each window with its homes."""
    by_homes: dict[tuple[tuple[str, str], ...], list[DeliverySets]] = {}
    for window in windows:
        by_homes.setdefault(tuple(sorted(window.homes.items())), []).append(window.sets)
    cost, rates, span_s = 0.0, np.zeros(len(tree.brokers)), 0.0
    for homes, sets in by_homes.items():
        costs, length_s = PublisherCosts(tree, inventory, sets), sum(each.span_s for each in sets)
        cost += cost_at_per_s(costs, dict(homes)) * length_s
        rates += loads_at_per_s(costs, dict(homes)) * length_s
        span_s += length_s
    return cost / span_s, rates / span_s


def _client_links_ms(windows: Sequence[ClosedWindow], inventory: Inventory, machines: Homes | None) -> float:
    """Return the mean delay of the links from a publisher to its home and from a subscriber's broker to it."""
    total_ms, count = 0.0, 0
    for window in windows:
        for (publisher, broker), deliveries in window.local_deliveries.items():
            home = window.homes[publisher]
            machine = home if machines is None else machines[publisher]
            total_ms += deliveries * (inventory.cost_of_link(machine, home) + inventory.cost_of_link(broker, machine))
            count += deliveries
    return total_ms / max(count, 1)


def _hops(windows: Sequence[ClosedWindow], tree: TreeConfiguration) -> float:
    count = len(tree.brokers)
    return _over_deliveries(windows, tree, np.zeros(count), np.ones((count, count)))


def _over_deliveries(
    windows: Sequence[ClosedWindow], tree: TreeConfiguration, at_broker: Floats, on_link: Floats
) -> float:
    """Return the sum along the path from home to subscriber's broker, both included, mean over deliveries."""
    sums: dict[str, Mapping[str, float]] = {}
    total, count = 0.0, 0
    for window in windows:
        for (publisher, broker), deliveries in window.local_deliveries.items():
            home = window.homes[publisher]
            if home not in sums:
                sums[home] = path_sums_from(home, tree, at_broker, on_link)
            total += deliveries * sums[home][broker]
            count += deliveries
    return total / max(count, 1)


def path_sums_from(home: str, tree: TreeConfiguration, at_broker: Floats, on_link: Floats) -> Mapping[str, float]:
    """Return for each broker the sum over the links and brokers of its path from ``home``, both ends included."""
    place = {broker: position for position, broker in enumerate(tree.brokers)}
    sums = {home: float(at_broker[place[home]])}
    for broker, parent in tree.parents_from(home).items():
        sums[broker] = sums[parent] + float(on_link[place[parent], place[broker]] + at_broker[place[broker]])
    return sums
