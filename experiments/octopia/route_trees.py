"""Which links get a copy of a notification with trees of advertisements and dynamic routing (PADRES; TID in Shafique).

In: brokers that want a notification, the trees of the advertisements that their subscriptions are bound to, loads of
links. Out: copies with the targets that their receivers are to see to. Queues and time do not belong here.

A subscription is bound to all advertisements that it meets, and known along the tree of each. Where the link that the
publisher's tree has for a target is overloaded, another of these trees that passes here by a free link takes it. Each
tree is one of shortest ways, and so is what is left of it from any broker on it: whatever trees are taken, a copy comes
nearer to its target with each link. The copy says for which targets it is: the paper has a notification carry the
identifiers of the trees, which would not keep a broker from getting it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from regraft.experiments.octopia.count_routing import LastHops
from regraft.experiments.octopia.route_copies import Copy, Load
from regraft.overlay.structured_cyclic import ScotBroker

Groups = dict[ScotBroker, int]  # By next broker the targets that it is to see to.


class BoundTrees:
    """Routes notifications of one publisher to targets, each of which has trees that lead to it.

    ``trees_to``: by target the hosts of the publishers whose trees do; that of the publisher is one in any case.
    ``last_hops`` returns the tree of a host. Targets are bits of an integer, in the order of ``targets``; with
    ``all_targets`` a notification begins at the publisher's host.
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
        self._ways: dict[tuple[ScotBroker, int], list[ScotBroker]] = {}  # That of the publisher's tree first.
        self._usual: dict[tuple[ScotBroker, int], Groups] = {}
        for bit, target in enumerate(self.targets):
            for root in (host, *sorted(set(trees_to[target]) - {host})):
                self._note_way(bit, target, last_hops(root))

    def _note_way(self, bit: int, target: ScotBroker, tree: LastHops) -> None:
        to = target
        while to in tree:
            ways = self._ways.setdefault((tree[to], bit), [])
            if to not in ways:
                ways.append(to)
            to = tree[to]

    def copies(self, at: ScotBroker, targets: int, load: Load, threshold: float) -> list[Copy]:
        """Return a copy for each next broker that sees to some of the targets."""
        usual = self._usual.get((at, targets))
        if usual is None:
            usual = self._usual[at, targets] = self._grouped(at, targets, lambda ways: ways[0])
        if any(load(at, to) > threshold for to in usual):
            usual = self._grouped(at, targets, lambda ways: _least_loaded(at, ways, load, threshold))
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
                to = choose(self._ways[at, bit])
                groups[to] = groups.get(to, 0) | lowest
        return groups


def _least_loaded(at: ScotBroker, ways: list[ScotBroker], load: Load, threshold: float) -> ScotBroker:
    """Return the first next broker over a free link, else that over the least loaded one."""
    return next((to for to in ways if load(at, to) <= threshold), None) or min(ways, key=lambda to: load(at, to))
