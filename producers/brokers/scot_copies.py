"""Which links get a copy of a notification on a structured cyclic overlay: static and dynamic routing (SNR, IDR).

In: the neighbours in the cluster that want it, the clusters to serve, and which links are congested. Out: neighbours,
each with the clusters that it must serve. Static routing is dynamic routing without congestion. Pure; the experiment
has the same rules for a publisher with known targets (:mod:`experiments.octopia.route_copies`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from regraft.overlay.scot.cluster_index_vectors import clusters_of, vector_of, without

Copies = list[tuple[str, int]]


def copies(
    within: Collection[str], region: Sequence[str], vector: int, hot: Collection[str], loads: Mapping[str, float]
) -> Copies:
    """Return the neighbours that get a copy, each with the clusters that it must serve.

    ``within``: the neighbours in the cluster that want it. ``region``: the broker of each cluster here. ``hot``: the
    congested links. Clusters behind hot links are left to the least loaded free link to another cluster. If there is
    none, all clusters are left to the least loaded free link within the cluster; if there is none either, one copy
    takes the least loaded link to another cluster and serves the rest as well.
    """
    found = [(peer, 0) for peer in sorted(within)]
    if not vector:
        return found
    clusters = clusters_of(vector)
    free = [cluster for cluster in clusters if region[cluster] not in hot]
    if free:
        left = vector & ~vector_of(free)
        carrier = min(free, key=lambda cluster: (loads.get(region[cluster], 0.0), cluster))
        return found + [(region[each], left if each == carrier else 0) for each in free]
    free_within = [peer for peer in sorted(within) if peer not in hot]
    if free_within:
        chosen = min(free_within, key=lambda peer: (loads.get(peer, 0.0), peer))
        return [(peer, vector if peer == chosen else 0) for peer in sorted(within)]
    least = min(clusters, key=lambda cluster: (loads.get(region[cluster], 0.0), cluster))
    return [*found, (region[least], without(vector, least))]
