"""Streams of notifications for a run: each publisher's, with the copies that a routing makes of them.

In: publishers, when they publish, a routing and a predicate of congestion. Out: streams. Queues do not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regraft.experiments.octopia.count_routing import LastHops, bind_subscription, flood_advertisement
from regraft.experiments.octopia.octopia_quotes import LinkDelays, QuotePublisher
from regraft.experiments.octopia.octopia_workload import Publisher
from regraft.experiments.octopia.route_copies import Copy, ScotRouter
from regraft.experiments.octopia.run_queues import Copies, Load, Stream
from regraft.overlay.cluster_index_vectors import vector_of, without
from regraft.overlay.link_congestion import CongestionRule
from regraft.overlay.structured_cyclic import ScotBroker, StructuredCyclicOverlay

Times = Sequence[float]


class StreamsOf:
    """Makes streams under one routing (``snr``, ``idr``, ``tid``); ``delays`` are those of links, None where equal."""

    def __init__(
        self, overlay: StructuredCyclicOverlay, routing: str, rule: CongestionRule, delays: LinkDelays | None = None
    ) -> None:
        self._overlay, self._routing, self._rule, self._delays = overlay, routing, rule, delays

    def drawn(self, publisher: Publisher, times_ms: Times) -> list[Stream]:
        """Return the one stream of a publisher all of whose notifications are wanted at the same brokers."""
        router = ScotRouter(self._overlay, publisher.host, publisher.targets)
        last_hops = self._last_hops(publisher.host)
        vector = 0 if self._routing == "tid" else router.vector
        return [Stream(publisher.host, publisher.targets, vector, self._copies(router, last_hops), times_ms)]

    def quotes(self, publisher: QuotePublisher, times_ms: Times) -> list[Stream]:
        """Return a stream for each set of brokers that want some of a publisher's quotes.

        The vector is the same for all: it knows subscriptions to the stock, but not which quotes they want.
        """
        by_targets: dict[frozenset[ScotBroker], list[float]] = {}
        for number, time_ms in enumerate(times_ms):
            by_targets.setdefault(publisher.targets_of(number), []).append(time_ms)
        clusters = vector_of({broker.cluster for broker in publisher.subscribed})
        vector = 0 if self._routing == "tid" else without(clusters, publisher.host.cluster)
        last_hops = self._last_hops(publisher.host)
        return [
            Stream(
                publisher.host,
                targets,
                vector,
                self._copies(ScotRouter(self._overlay, publisher.host, targets), last_hops),
                times,
                publisher.name,
            )
            for targets, times in by_targets.items()
        ]

    def _last_hops(self, host: ScotBroker) -> LastHops:
        """Return the tree of a publisher's advertisement where that routes."""
        if self._routing != "tid":
            return {}
        return flood_advertisement(self._overlay, host)[1] if self._delays is None else self._delays.tree_from(host)

    def _copies(self, router: ScotRouter, last_hops: LastHops) -> Copies:
        if self._routing == "tid":
            tree = _tree_copies(router, last_hops)
            return lambda at, *_: tree.get(at, [])
        threshold = self._rule.threshold

        def copies(at: ScotBroker, came_from: ScotBroker | None, vector: int, load: Load) -> list[Copy]:
            if self._routing == "snr":
                return router.static_copies(at, came_from, vector)
            return router.dynamic_copies(at, came_from, vector, load, threshold)

        return copies


def _tree_copies(router: ScotRouter, last_hops: LastHops) -> Mapping[ScotBroker, list[Copy]]:
    """Return the copies at each broker along the publisher's advertisement tree, as PADRES sends them."""
    links = dict.fromkeys(link for target in sorted(router.targets) for link in bind_subscription([last_hops], target))
    copies: dict[ScotBroker, list[Copy]] = {}
    for child, parent in links:
        copies.setdefault(parent, []).append(Copy(child))
    return copies
