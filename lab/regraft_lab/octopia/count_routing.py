"""Count the messages of advertisements, subscriptions and notifications, one at a time and without queues.

Baseline (TID): PADRES floods advertisements over the cyclic graph, drops duplicates and binds subscriptions to trees.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay
from regraft_lab.octopia.overlay_links import primary_neighbours, secondary_neighbours
from regraft_lab.octopia.route_copies import Copy, ScotRouter

Links = list[tuple[ScotBroker, ScotBroker]]
LastHops = Mapping[ScotBroker, ScotBroker]  # The tree of an advertisement: each broker's next hop to the publisher.
Copies = Callable[[ScotBroker, ScotBroker | None, int], list[Copy]]


@dataclass(slots=True)
class Delivery:
    """The links that carried one notification, and the brokers it reached, once per arrival."""

    links: Links = field(default_factory=list)
    reached: list[ScotBroker] = field(default_factory=list)


def deliver(router: ScotRouter, copies: Copies) -> Delivery:
    """Follow a notification from the publisher's host until no copies are left."""
    delivery = Delivery()
    waiting: deque[tuple[ScotBroker, ScotBroker | None, int]] = deque([(router.host, None, router.vector)])
    while waiting:
        at, came_from, vector = waiting.popleft()
        delivery.reached.append(at)
        for copy in copies(at, came_from, vector):
            delivery.links.append((at, copy.to))
            waiting.append((copy.to, at, copy.vector))
    return delivery


def advertise(overlay: StructuredCyclicOverlay, host: ScotBroker) -> Links:
    """Return the links that carry an advertisement in OctopiA: one link to each other broker of the region."""
    return [(host, to) for to in secondary_neighbours(overlay, host)]


def cib_set_messages(overlay: StructuredCyclicOverlay, host: ScotBroker, subscribers: Collection[ScotBroker]) -> Links:
    """Return the links of the messages that set bits of a publisher's vector: at most one from each other cluster."""
    clusters = {subscriber.cluster for subscriber in subscribers} - {host.cluster}
    return [(from_, host) for from_ in secondary_neighbours(overlay, host) if from_.cluster in clusters]


def broadcast_subscription(overlay: StructuredCyclicOverlay, host: ScotBroker) -> Links:
    """Return the links that carry a subscription in OctopiA: those of its host's cluster, away from the host."""
    links: Links = []
    waiting: deque[tuple[ScotBroker, ScotBroker | None]] = deque([(host, None)])
    while waiting:
        at, came_from = waiting.popleft()
        for to in primary_neighbours(overlay, at):
            if to != came_from:
                links.append((at, to))
                waiting.append((to, at))
    return links


def flood_advertisement(overlay: StructuredCyclicOverlay, host: ScotBroker) -> tuple[int, dict[ScotBroker, ScotBroker]]:
    """Return the messages of an advertisement in PADRES, duplicates included, and the last hop at each broker.

    Links are equally fast, so the tree consists of shortest paths; ties are broken at random, but the same for each
    call with a host.
    """
    rng = random.Random(f"{host.region} {host.cluster}")
    last_hop: dict[ScotBroker, ScotBroker] = {}
    messages = 0
    waiting = deque([host])
    while waiting:
        at = waiting.popleft()
        around = primary_neighbours(overlay, at) + secondary_neighbours(overlay, at)
        for to in rng.sample(around, len(around)):
            if to == last_hop.get(at):
                continue
            messages += 1
            if to != host and to not in last_hop:
                last_hop[to] = at
                waiting.append(to)
    return messages, last_hop


def bind_subscription(trees: Collection[Mapping[ScotBroker, ScotBroker]], subscriber: ScotBroker) -> Links:
    """Return the links that carry a subscription in PADRES, along the trees of all advertisements that match.

    One message over a link names all trees that share it.
    """
    links: dict[tuple[ScotBroker, ScotBroker], None] = {}
    for last_hop in trees:
        at = subscriber
        while at in last_hop:
            links[at, last_hop[at]] = None
            at = last_hop[at]
    return list(links)
