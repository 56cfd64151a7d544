"""Choose the links that get a copy of a notification: dynamic routing on trees of advertisements (PADRES, TID).

TID is Shafique's name. In: brokers that want a notification, the trees of the advertisements that their subscriptions
are bound to, loads of links. Out: copies with the targets that their receivers must serve. Queues and time do not
belong here.

A subscription is bound to all advertisements that it intersects, and known along the tree of each. If the link of the
publisher's tree towards a target is overloaded, another of these trees that continues over a free link takes over. Each
tree consists of shortest paths, and so does its remainder from any broker on it: with any choice of trees, a copy gets
closer to its target with each link. A copy names its targets: in the paper, a notification carries the identifiers of
trees, which would not prevent a broker from getting it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from regraft.api.cyclic import ScotBroker
from regraft_lab.octopia.count_routing import LastHops
from regraft_lab.octopia.route_copies import Copy, Load

Groups = dict[ScotBroker, int]  # By next broker, the targets that it must serve.


class BoundTrees:
    """Routes notifications of one publisher to targets along the trees that lead to each of them.

    ``trees_to``: by target, the hosts of the publishers whose trees lead there, in addition to this publisher's.
    ``last_hops`` returns the tree of a host. Targets are bits of an integer, in the order of ``targets``; a
    notification starts with ``all_targets`` at the publisher's host.
    """

    def __init__(
        self,
        host: ScotBroker,
        trees_to: Mapping[ScotBroker, Collection[ScotBroker]],
        last_hops: Callable[[ScotBroker], LastHops],
    ) -> None:
        self.targets = sorted(target for target in trees_to if target != host)
        self.all_targets = (1 << len(self.targets)) - 1
        self.bits = {target: 1 << bit for bit, target in enumerate(self.targets)}
        self._next_hops: dict[tuple[ScotBroker, int], list[ScotBroker]] = {}  # The publisher's tree first.
        self._usual: dict[tuple[ScotBroker, int], Groups] = {}
        for bit, target in enumerate(self.targets):
            for root in (host, *sorted(set(trees_to[target]) - {host})):
                self._note_path(bit, target, last_hops(root))

    def _note_path(self, bit: int, target: ScotBroker, tree: LastHops) -> None:
        to = target
        while to in tree:
            next_hops = self._next_hops.setdefault((tree[to], bit), [])
            if to not in next_hops:
                next_hops.append(to)
            to = tree[to]

    def copies(self, at: ScotBroker, targets: int, load: Load, threshold: float) -> list[Copy]:
        """Return a copy for each next broker, with the targets that it must serve."""
        usual = self._usual.get((at, targets))
        if usual is None:
            usual = self._usual[at, targets] = self._grouped(at, targets, lambda next_hops: next_hops[0])
        if any(load(at, to) > threshold for to in usual):
            usual = self._grouped(at, targets, lambda next_hops: _least_loaded(at, next_hops, load, threshold))
        return [Copy(to, left) for to, left in usual.items()]

    def _grouped(
        self, at: ScotBroker, targets: int, choose: Callable[[list[ScotBroker]], ScotBroker]
    ) -> dict[ScotBroker, int]:
        groups: Groups = {}
        while targets:
            lowest = targets & -targets
            targets ^= lowest
            bit = lowest.bit_length() - 1
            if self.targets[bit] != at:
                to = choose(self._next_hops[at, bit])
                groups[to] = groups.get(to, 0) | lowest
        return groups


def _least_loaded(at: ScotBroker, hops: list[ScotBroker], load: Load, threshold: float) -> ScotBroker:
    """Return the first next broker over a free link, else the one over the least loaded link."""
    return next((to for to in hops if load(at, to) <= threshold), None) or min(hops, key=lambda to: load(at, to))
