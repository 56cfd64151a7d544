"""Choose the links that get a copy of a notification: OctopiA's static (SNR) and inter-cluster dynamic routing (IDR).

In: a broker, the neighbour that sent the notification, the clusters that the broker must serve, and the loads of links.
Out: copies with the clusters that their receivers must serve. Queues and time do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay, clusters_of, vector_of, without
from regraft_lab.octopia.overlay_links import primary_neighbours

Load = Callable[[ScotBroker, ScotBroker], float]  # The congestion measure of the link from one broker to another.


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy for ``to``, which must serve its own cluster and forward to those in ``vector``."""

    to: ScotBroker
    vector: int = 0


class ScotRouter:
    """Routes the notifications of one publisher to the brokers of ``targets``."""

    def __init__(self, overlay: StructuredCyclicOverlay, host: ScotBroker, targets: Collection[ScotBroker]) -> None:
        """Derive the state that subscription broadcasts and CIB_SET messages would have left at each broker."""
        self.host = host
        self.targets = frozenset(targets)
        self.vector = without(vector_of(target.cluster for target in self.targets), host.cluster)
        self._overlay = overlay
        self.target_a_links = cache(self._target_a_links)

    def static_copies(self, at: ScotBroker, came_from: ScotBroker | None, vector: int) -> list[Copy]:
        """Return a copy for each target link of either kind (SNR)."""
        i_copies = [Copy(ScotBroker(at.region, cluster)) for cluster in clusters_of(vector)]
        return [Copy(to) for to in self.target_a_links(at, came_from)] + i_copies

    def dynamic_copies(
        self, at: ScotBroker, came_from: ScotBroker | None, vector: int, load: Load, threshold: float
    ) -> list[Copy]:
        """Return copies that avoid links whose load is above the threshold (IDR).

        Target links within the cluster always get a copy, because only this cluster knows its subscriptions. Clusters
        behind overloaded links are delegated to the least loaded free link to another cluster. If none is free, all
        clusters are delegated to the least loaded free target link within the cluster; without one, to a single copy
        over the least loaded link to another cluster.
        """
        a_links = self.target_a_links(at, came_from)
        if not vector:
            return [Copy(to) for to in a_links]
        loads = {cluster: load(at, ScotBroker(at.region, cluster)) for cluster in clusters_of(vector)}
        free = [cluster for cluster, cluster_load in loads.items() if cluster_load <= threshold]
        left = vector & ~vector_of(free)
        if free:
            carrier = min(free, key=lambda cluster: (loads[cluster], cluster))
            i_copies = [Copy(ScotBroker(at.region, each), left if each == carrier else 0) for each in free]
            return [Copy(to) for to in a_links] + i_copies
        free_within = [to for to in a_links if load(at, to) <= threshold]
        if free_within:
            within = min(free_within, key=lambda to: (load(at, to), to))
            return [Copy(to, vector if to == within else 0) for to in a_links]
        least = min(loads, key=lambda cluster: (loads[cluster], cluster))
        return [*(Copy(to) for to in a_links), Copy(ScotBroker(at.region, least), without(vector, least))]

    def _target_a_links(self, at: ScotBroker, came_from: ScotBroker | None) -> tuple[ScotBroker, ...]:
        """Return the neighbours in the cluster, except the sender, that are or lead to targets."""
        around = primary_neighbours(self._overlay, at)
        return tuple(to for to in around if to != came_from and self._has_target(to, at))

    def _has_target(self, at: ScotBroker, came_from: ScotBroker) -> bool:
        return at in self.targets or bool(self.target_a_links(at, came_from))
