"""Cluster Index Vectors (Shafique): a bit for each cluster, the rightmost for cluster 0.

A publisher's vector says which clusters want its notifications, and on a notification which of them its receiver is to
see to. In: indices of clusters. Out: vectors as integers. Which cluster hosts the publisher is kept apart: the text
sets its bit with an advertisement ("the CIB of the host is ON") and leaves it off in "P1 100", so this stays open.
"""

from __future__ import annotations

from collections.abc import Iterable


def vector_of(clusters: Iterable[int]) -> int:
    """Return the vector with the bits of these clusters on."""
    vector = 0
    for cluster in clusters:
        vector |= 1 << cluster
    return vector


def clusters_of(vector: int) -> list[int]:
    """Return the clusters whose bits are on, ascending."""
    return [cluster for cluster in range(vector.bit_length()) if vector >> cluster & 1]


def without(vector: int, cluster: int) -> int:
    """Return the vector with the bit of one cluster off."""
    return vector & ~(1 << cluster)


def written(vector: int, cluster_count: int) -> str:
    """Return the vector as the paper writes it, cluster 0 on the right."""
    return format(vector, f"0{cluster_count}b")
