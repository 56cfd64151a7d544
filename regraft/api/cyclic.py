"""Structured cyclic overlays as values, and the rules by which a link counts as congested."""

from regraft.overlay.link_congestion import LENGTH, PRODUCT, RULES, WINDOW_MS, CongestionRule, QueueWindow
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.structured_cyclic import ScotBroker, StructuredCyclicOverlay, scot_overlay
from regraft.producers.brokers.scot_routing import as_text, clusters_of, vector_of, without

__all__ = [
    "LENGTH",
    "PRODUCT",
    "RULES",
    "WINDOW_MS",
    "CongestionRule",
    "QueueWindow",
    "ScotBroker",
    "ScotConfiguration",
    "StructuredCyclicOverlay",
    "as_text",
    "clusters_of",
    "scot_overlay",
    "vector_of",
    "without",
]
