"""Kinds of overlay with the caps that a test names, otherwise none."""

import math

from regraft.controller.kinds.ring.ring_kind import RingKind
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.overlay.inventory.inventory import Inventory
from tests.overlay.small_overlays import NO_CAP


def tree_kind(inventory: Inventory, degree_max: int = NO_CAP) -> TreeKind:
    """Return a tree over the inventory's brokers."""
    return TreeKind(inventory, degree_max)


def ring_kind(inventory: Inventory, delay_weight: float = 1.0, user_load_max: float = math.inf) -> RingKind:
    """Return a ring over the inventory's brokers."""
    return RingKind(inventory, delay_weight, user_load_max)
