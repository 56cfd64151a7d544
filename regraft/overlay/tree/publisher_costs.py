"""The cost of each publisher's notifications with the publisher at each broker: all publishers and homes at once.

In: a configuration, an inventory and delivery sets whose ``delivered`` is known. Out: cost, message rate and load by
publisher and home. Publishers are independent, so the changes of several moves add up. Choosing homes does not belong
here.

Let u and v be neighbours in the tree, N the notifications of a publisher, and D(u->v) those wanted on v's side of the
link. If the publisher's home moves from u to v, D(v->u) cross the link instead of D(u->v), D(v->u) pass u instead of N,
and N pass v instead of D(u->v); nothing else changes. So one home is priced from scratch, and the others follow link by
link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats, Places, Words


class PublisherCosts:
    """The cost and load of every publisher at every home on one tree, over some spans of time.

    ``publishers`` and ``brokers`` are sorted and give the order of all arrays; ``spans_s`` (spans,) are the lengths of
    the spans. Source: Jaeger07, Eq. 1-2 for the cost, Cheung09, Algorithm 2 for the message rate. Set-up costs
    O(brokers * columns) for any number of homes, queries O(brokers * publishers). Raises ValueError if there is no
    span, a span is over other brokers, or ``delivered`` of one is not known.
    """

    def __init__(self, configuration: TreeConfiguration, inventory: Inventory, spans: Sequence[DeliverySets]) -> None:
        _check(configuration, inventory, spans)
        self.configuration = configuration
        self.inventory = inventory
        self.brokers = configuration.brokers
        self.spans_s: Floats = np.array([max(span.span_s, 1e-9) for span in spans])
        self.publishers = tuple(sorted({name for span in spans for name, _ in span.columns}))
        self._place = {publisher: position for position, publisher in enumerate(self.publishers)}
        delivered, published, columns, self._groups = self._grouped(spans)
        starts = np.searchsorted(columns, np.arange(len(self._groups)))
        self.tree = RootedTree.of(configuration)
        below, above = link_sides(self.tree, delivered)
        self._published = _grouped_counts(published[None], starts)[:, 0]
        self._below = _grouped_counts(below, starts)
        self._above = _grouped_counts(above, starts)

    def place_of(self, publisher: str) -> int:
        """Return the publisher's position in ``publishers``. Raises KeyError if it is not among them."""
        return self._place[publisher]

    @cached_property
    def published_per_s(self) -> Floats:
        """The notifications that each publisher publishes, shape (publishers,)."""
        return np.asarray(self._by_publisher(self._published[:, None])[:, 0] / self._length_s)

    @cached_property
    def costs_per_s(self) -> Floats:
        """The cost of each publisher's notifications with the publisher at each broker, shape (publishers, brokers).

        The costs at given homes add up to :func:`overlay.tree.overlay_cost.overlay_cost` of the delivery sets at those
        homes.
        """
        return self._at_homes(self.published_per_s, self.below_per_s, self.above_per_s)

    @cached_property
    def message_rates_per_s(self) -> Floats:
        """The messages through all brokers, in total, with each publisher at each broker, shape (publishers, brokers).

        Source: Cheung09, Algorithm 2. As in the paper, the home counts only what is wanted anywhere.
        """
        return self.tree.rerooted(self.below_per_s.sum(axis=1), self.above_per_s - self.below_per_s)

    @cached_property
    def below_per_s(self) -> Floats:
        """The notifications of each publisher wanted below each broker of ``tree``, shape (publishers, brokers)."""
        return np.asarray(self._by_publisher(self._below) / self._length_s)

    @cached_property
    def above_per_s(self) -> Floats:
        """The notifications of each publisher wanted above each broker of ``tree``, shape (publishers, brokers)."""
        return np.asarray(self._by_publisher(self._above) / self._length_s)

    def cost_per_s(self, publisher: str, home: str) -> float:
        """Return the cost of a publisher's notifications at one home. Raises KeyError if one of the two is unknown."""
        return float(self.costs_per_s[self._place[publisher], self.inventory.index[home]])

    def costs_by_span_per_s(self, publisher: str) -> Floats:
        """Return the cost of a publisher's notifications in each span at each home, shape (spans, brokers).

        A move saves the old home's column minus the new home's. Raises KeyError if the publisher is unknown.
        """
        chosen = np.flatnonzero(self._groups // len(self.spans_s) == self._place[publisher])
        costs_per_s = np.zeros((len(self.spans_s), len(self.brokers)))
        costs = self._at_homes(self._published[chosen], self._below[chosen], self._above[chosen])
        costs_per_s[self._groups[chosen] % len(self.spans_s)] = costs
        return np.asarray(costs_per_s / self.spans_s[:, None])

    def loads_per_s(self, publisher: str, home: str) -> Floats:
        """Return the publisher's notifications that pass each broker with the publisher at ``home``, shape (brokers,).

        Cost O(brokers). Raises KeyError if publisher or home is unknown.
        """
        place = self._place[publisher]
        loads = self.below_per_s[place].copy()
        path = self.tree.path_to_root(self.inventory.index[home])
        # On the path from home to root, what is wanted behind a broker is what lies above its child.
        loads[path[1:]] = self.above_per_s[place, path[:-1]]
        loads[path[0]] = self.published_per_s[place]
        return np.asarray(loads)

    def costs_at_per_s(self, homes: Mapping[str, str]) -> Floats:
        """Return the cost of each publisher at these homes, shape (publishers,); 0 for one that has none."""
        placed = [(place, homes[name]) for place, name in enumerate(self.publishers) if name in homes]
        rows, brokers = [place for place, _ in placed], [self.inventory.index[home] for _, home in placed]
        costs_per_s = np.zeros(len(self.publishers))
        costs_per_s[rows] = self.costs_per_s[rows, brokers]
        return costs_per_s

    @property
    def _length_s(self) -> float:
        return float(self.spans_s.sum())

    def _by_publisher(self, counts: Floats) -> Floats:
        """Sum the counts of groups (publisher, span) by publisher."""
        publishers = self._groups // len(self.spans_s)
        if not len(publishers):
            return np.zeros((0, counts.shape[1]))
        starts = np.searchsorted(publishers, np.arange(len(self.publishers)))
        return np.asarray(np.add.reduceat(counts, starts, axis=0), dtype=np.float64)

    def _at_homes(self, published: Floats, below: Floats, above: Floats) -> Floats:
        parents = self.tree.parents
        link_cost = self.inventory.link_cost[np.arange(len(parents)), parents]
        return costs_at_homes(self.tree, self.inventory.processing_cost, link_cost, published, below, above)

    def _grouped(self, spans: Sequence[DeliverySets]) -> tuple[Words, Words, Places, Places]:
        """Return the words delivered and published of all spans, with the columns of each (publisher, span) adjacent.

        Also returns the position of each column's group, and publisher * spans + span for each group.
        """
        keys = [self._place[name] * len(spans) + place for place, span in enumerate(spans) for name, _ in span.columns]
        owner = np.array(keys, dtype=np.intp)
        order = np.argsort(owner, kind="stable")
        groups, columns = np.unique(owner[order], return_inverse=True)
        delivered = [span.delivered for span in spans]
        published = [span.published for span in spans]
        return np.concatenate(delivered, axis=1)[:, order], np.concatenate(published)[order], columns, groups


def costs_at_homes(
    tree: RootedTree, processing: Floats, link_cost: Floats, published: Floats, below: Floats, above: Floats
) -> Floats:
    """Return the cost of each row of notifications if published at each broker, shape (rows, brokers).

    ``processing`` and ``link_cost`` (brokers,) are the costs of each broker and of its link to its parent.
    ``published`` (rows,) are counts or rates; ``below`` and ``above`` (rows, brokers) are those wanted on either side
    of each broker's link to its parent, as in :func:`overlay.link_sides.link_sides`.
    """
    parents = tree.parents
    step = (link_cost + processing[parents]) * above - (link_cost + processing) * below
    step += published[:, None] * (processing - processing[parents])
    first = below @ (link_cost + processing) + (published - below[:, 0]) * processing[0]
    return tree.rerooted(first, step)


def _check(configuration: TreeConfiguration, inventory: Inventory, spans: Sequence[DeliverySets]) -> None:
    if not spans:
        raise ValueError("no span to price publishers on: at least one window is needed")
    if any(span.brokers != configuration.brokers for span in spans) or inventory.brokers != configuration.brokers:
        raise ValueError("configuration, inventory and delivery sets must cover the same brokers")


def _grouped_counts(words: Words, starts: Places) -> Floats:
    """Return the number of bits that each row has in each group of columns, shape (groups, rows)."""
    if not len(starts):
        return np.zeros((0, len(words)))
    counts = np.ascontiguousarray(np.bitwise_count(words).T)
    return np.asarray(np.add.reduceat(counts, starts, axis=0, dtype=np.float64))
