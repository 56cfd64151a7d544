"""Cluster Index Vectors (Shafique): one bit for each cluster, the rightmost for cluster 0.

A publisher's vector marks the clusters that want its notifications; the vector on a notification marks those that the
receiver must serve. In: indices of clusters. Out: vectors as integers. The publisher's own cluster is stored
separately, because the text is ambiguous: it sets that bit with an advertisement ("the CIB of the host is ON") but
leaves it off in "P1 100".
"""

from __future__ import annotations

from collections.abc import Iterable


def vector_of(clusters: Iterable[int]) -> int:
    """Return the vector with the bits of these clusters set."""
    vector = 0
    for cluster in clusters:
        vector |= 1 << cluster
    return vector


def clusters_of(vector: int) -> list[int]:
    """Return the clusters whose bits are set, ascending."""
    return [cluster for cluster in range(vector.bit_length()) if vector >> cluster & 1]


def without(vector: int, cluster: int) -> int:
    """Return the vector with the bit of one cluster cleared."""
    return vector & ~(1 << cluster)


def as_text(vector: int, cluster_count: int) -> str:
    """Return the vector as the paper writes it, cluster 0 on the right."""
    return format(vector, f"0{cluster_count}b")
