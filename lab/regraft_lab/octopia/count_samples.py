"""Measure the cost of advertisements and subscriptions: messages, table entries and delays without queues.

Delays last until the last receiving broker has the message, over equal links of 1 ms and over measured ones; the paper
gives no matching time, so it is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from statistics import fmean

import numpy as np

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay
from regraft.api.programs import Figure
from regraft_lab.octopia.count_routing import (
    LastHops,
    Links,
    advertise,
    bind_subscription,
    broadcast_subscription,
    flood_advertisement,
)
from regraft_lab.octopia.octopia_quotes import place_brokers, read_delays
from regraft_lab.octopia.octopia_workload import draw_workload

LinkMs = Callable[[ScotBroker, ScotBroker], float]


def count_samples(overlay: StructuredCyclicOverlay, delays_path: str, rng: random.Random) -> list[Figure]:
    """Return the figures of one draw."""
    workload = draw_workload(overlay, rng)
    hosts = [each.host for each in workload.publishers]
    floods = [flood_advertisement(overlay, host) for host in hosts]
    subscribers = [
        (at, np.flatnonzero(met).tolist()) for at, met in zip(workload.subscriptions.at, workload.bound, strict=True)
    ]
    bound = [len(bind_subscription([floods[place][1] for place in wanted], at)) for at, wanted in subscribers]
    region, cluster = len(overlay.regions), overlay.cluster_count
    counts = [
        ("srt_cut", "octopia", "advertisements", 1 - cluster / (region * cluster), "share"),
        ("advertisement_messages", "octopia", "advertisements", float(cluster - 1), "messages"),
        ("advertisement_messages", "padres", "advertisements", fmean(messages for messages, _ in floods), "messages"),
        ("subscription_messages", "octopia", "subscriptions", float(region - 1), "messages"),
        ("subscription_messages", "padres", "subscriptions", fmean(bound), "messages"),
        ("subscription_entries", "octopia", "subscriptions", float(region), "entries"),
        ("subscription_entries", "padres", "subscriptions", fmean(count + 1 for count in bound), "entries"),
    ]
    figures = [Figure(name, {"routing": who, "workload": what}, value, unit) for name, who, what, value, unit in counts]
    measured = place_brokers(overlay, read_delays(delays_path), rng)
    trees = {
        "equal": {host: floods[place][1] for place, host in enumerate(hosts)},
        "planetlab": {host: measured.tree_from(host) for host in hosts},
    }
    for links, link_ms in (("equal", _equal_ms), ("planetlab", measured.ms)):
        wanted_at = [(at, [hosts[place] for place in wanted]) for at, wanted in subscribers]
        figures += _delays(overlay, hosts, wanted_at, trees[links], link_ms, links)
    return figures


def _equal_ms(one: ScotBroker, other: ScotBroker) -> float:
    return 1.0


def _delays(
    overlay: StructuredCyclicOverlay,
    hosts: Collection[ScotBroker],
    subscribers: Collection[tuple[ScotBroker, list[ScotBroker]]],
    trees: Mapping[ScotBroker, LastHops],
    link_ms: LinkMs,
    links: str,
) -> list[Figure]:
    """Return the delays of advertisements and subscriptions over links of one sort."""
    farthest = {at: _last_ms(broadcast_subscription(overlay, at), at, link_ms) for at in overlay.brokers()}
    figures = {
        ("advertisement_delay_ms", "octopia"): [_last_ms(advertise(overlay, host), host, link_ms) for host in hosts],
        ("advertisement_delay_ms", "padres"): [
            _last_ms([(parent, child) for child, parent in _outwards(trees[host], host)], host, link_ms)
            for host in hosts
        ],
        ("subscription_delay_ms", "octopia"): [farthest[at] for at, _ in subscribers],
        ("subscription_delay_ms", "padres"): [
            max((_path_ms(trees[host], at, link_ms) for host in wanted), default=0.0) for at, wanted in subscribers
        ],
    }
    return [
        Figure(name, {"routing": who, "workload": f"{name.split('_')[0]}s", "links": links}, fmean(values), "ms")
        for (name, who), values in figures.items()
    ]


def _outwards(tree: LastHops, host: ScotBroker) -> Links:
    """Return the links of a tree as (child, parent), each after the link of its parent."""
    children: dict[ScotBroker, list[ScotBroker]] = {}
    for child, parent in tree.items():
        children.setdefault(parent, []).append(child)
    links, waiting = Links(), [host]
    while waiting:
        parent = waiting.pop()
        links += [(child, parent) for child in children.get(parent, ())]
        waiting += children.get(parent, ())
    return links


def _last_ms(links: Links, start: ScotBroker, link_ms: LinkMs) -> float:
    """Return when a message over these links reaches the last broker; a link must follow the one that leads to it."""
    arrived_ms = {start: 0.0}
    for one, other in links:
        arrived_ms[other] = arrived_ms[one] + link_ms(one, other)
    return max(arrived_ms.values())


def _path_ms(tree: LastHops, at: ScotBroker, link_ms: LinkMs) -> float:
    """Return the delay of the path up a tree to its publisher."""
    total_ms = 0.0
    while at in tree:
        total_ms += link_ms(at, tree[at])
        at = tree[at]
    return total_ms
