"""Make the streams of notifications for a run: each publisher's notifications, with the copies that a routing makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from regraft.api.cyclic import CongestionRule, ScotBroker, StructuredCyclicOverlay, vector_of, without
from regraft_lab.octopia.count_routing import LastHops, bind_subscription, flood_advertisement
from regraft_lab.octopia.octopia_quotes import LinkDelays
from regraft_lab.octopia.route_copies import Copy, ScotRouter
from regraft_lab.octopia.route_trees import BoundTrees
from regraft_lab.octopia.run_queues import Copies, Load, Stream

Times = Sequence[float]
Targets = frozenset[ScotBroker]
TreesTo = Mapping[ScotBroker, frozenset[ScotBroker]]  # By target, the hosts of advertisements whose trees lead there.


class ContentPublisher(Protocol):
    """A publisher whose notifications match subscriptions by their content."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def host(self) -> ScotBroker:
        """The broker it is connected to."""
        ...

    @property
    def subscribed(self) -> Targets:
        """The brokers with subscriptions that intersect its advertisement."""
        ...

    def targets_of(self, number: int) -> Targets:
        """Return the brokers that want a notification."""
        ...


class StreamsOf:
    """Makes streams for one routing (``snr``, ``idr``, ``tid``, ``tid_dynamic``).

    ``delays``: of links; None if they are all equal.
    """

    def __init__(
        self, overlay: StructuredCyclicOverlay, routing: str, rule: CongestionRule, delays: LinkDelays | None = None
    ) -> None:
        self._overlay, self._routing, self._rule, self._delays = overlay, routing, rule, delays
        self._last_hops = cache(self._flooded)

    def of(
        self, publisher: ContentPublisher, times_ms: Times, trees_to: Callable[[int], TreesTo] | None = None
    ) -> list[Stream]:
        """Return a stream for each set of brokers that want some of a publisher's notifications.

        The vector is the same for all streams: it depends on the subscriptions that intersect the advertisement, not on
        what they match. ``trees_to`` returns the trees that lead to a notification's targets; without it these are only
        the publisher's.
        """
        by_way: dict[tuple[Targets, frozenset[tuple[ScotBroker, Targets]]], list[float]] = {}
        for number, time_ms in enumerate(times_ms):
            targets = publisher.targets_of(number)
            trees = {} if trees_to is None or self._routing != "tid_dynamic" else trees_to(number)
            by_way.setdefault((targets, frozenset(trees.items())), []).append(time_ms)
        clusters = without(vector_of({broker.cluster for broker in publisher.subscribed}), publisher.host.cluster)
        return [
            self._stream(publisher, targets, dict(trees), clusters, times) for (targets, trees), times in by_way.items()
        ]

    def _stream(
        self, publisher: ContentPublisher, targets: Targets, trees_to: TreesTo, clusters: int, times: Times
    ) -> Stream:
        host = publisher.host
        if self._routing == "tid":
            return Stream(host, targets, 0, self._along_tree(host, targets), times, publisher.name)
        if self._routing == "tid_dynamic":
            bound = BoundTrees(host, {target: trees_to.get(target, frozenset()) for target in targets}, self._last_hops)
            return Stream(host, targets, bound.all_targets, self._bound(bound), times, publisher.name, bound.bits)
        copies = self._clustered(ScotRouter(self._overlay, host, targets))
        return Stream(host, targets, clusters, copies, times, publisher.name)

    def _flooded(self, host: ScotBroker) -> LastHops:
        """Return the tree of an advertisement."""
        return flood_advertisement(self._overlay, host)[1] if self._delays is None else self._delays.tree_from(host)

    def _along_tree(self, host: ScotBroker, targets: Targets) -> Copies:
        """Return the copies along the tree of the publisher's advertisement, as in PADRES."""
        last_hops = self._last_hops(host)
        links = dict.fromkeys(link for target in sorted(targets) for link in bind_subscription([last_hops], target))
        copies: dict[ScotBroker, list[Copy]] = {}
        for child, parent in links:
            copies.setdefault(parent, []).append(Copy(child))
        return lambda at, *_: copies.get(at, [])

    def _bound(self, trees: BoundTrees) -> Copies:
        """Return the copies along all trees that lead to targets."""
        threshold = self._rule.threshold
        return lambda at, _, left, load: trees.copies(at, left, load, threshold)

    def _clustered(self, router: ScotRouter) -> Copies:
        """Return the copies of OctopiA."""
        threshold = self._rule.threshold

        def copies(at: ScotBroker, came_from: ScotBroker | None, vector: int, load: Load) -> list[Copy]:
            if self._routing == "snr":
                return router.static_copies(at, came_from, vector)
            return router.dynamic_copies(at, came_from, vector, load, threshold)

        return copies
