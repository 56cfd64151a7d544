"""Kinds of overlays: what a kind provides to the controller.

docs/kinds.md describes the interface.
"""

from regraft.controller.kinds.find_kind import kind_of, tree_kind
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.kinds.ring.ring_kind import RingKind
from regraft.controller.kinds.tree.tree_kind import TreeKind

__all__ = [
    "AnyKind",
    "Repair",
    "RepairTask",
    "RingKind",
    "TreeKind",
    "kind_of",
    "tree_kind",
]
