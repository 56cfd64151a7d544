"""Rings as values: configurations, ids, costs, users."""

from regraft.controller.planners.ring.steps.search_ring_ids import ScratchSwaps
from regraft.overlay.ring.chord_ring import DEFAULT_BITS, NO_PARENT, ChordRing, ring_key
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.overlay.ring.ring_costs import RingCost, overlay_ring_cost, ring_cost, topic_roots
from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.overlay.ring.ring_swaps import RingSwaps
from regraft.overlay.ring.user_clusters import UserClusters
from regraft.overlay.ring.user_interests import UserInterests

__all__ = [
    "DEFAULT_BITS",
    "NO_PARENT",
    "ChordRing",
    "Mapping",
    "RingConfiguration",
    "RingCost",
    "RingProblem",
    "RingSwaps",
    "ScratchSwaps",
    "UserClusters",
    "UserInterests",
    "id_moves_between",
    "overlay_ring_cost",
    "ring_cost",
    "ring_key",
    "topic_roots",
]
