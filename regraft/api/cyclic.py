"""Structured cyclic overlays as values, and the rules by which a link counts as congested."""

from regraft.overlay.link_congestion import LENGTH, PRODUCT, RULES, WINDOW_MS, CongestionRule, QueueWindow
from regraft.overlay.scot.cluster_index_vectors import as_text, clusters_of, vector_of, without
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.structured_cyclic import ScotBroker, StructuredCyclicOverlay, scot_overlay

__all__ = [
    "CongestionRule",
    "LENGTH",
    "PRODUCT",
    "QueueWindow",
    "RULES",
    "ScotBroker",
    "ScotConfiguration",
    "StructuredCyclicOverlay",
    "WINDOW_MS",
    "as_text",
    "clusters_of",
    "scot_overlay",
    "vector_of",
    "without",
]
