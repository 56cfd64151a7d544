"""The one place that chooses: the kind of an inventory's overlay, with the weights and caps of the settings."""

from __future__ import annotations

from controller.controller_settings import ControllerSettings
from controller.kinds.overlay_kind import AnyKind
from controller.kinds.ring.ring_kind import RingKind
from controller.kinds.tree.tree_kind import TreeKind
from overlay.chord_configuration import ChordConfiguration
from overlay.configuration import Configuration
from overlay.inventory import Inventory

KINDS: dict[str, type[AnyKind]] = {Configuration.KIND: TreeKind, ChordConfiguration.KIND: RingKind}


def kind_of(inventory: Inventory, settings: ControllerSettings) -> AnyKind:
    """Return the kind of the inventory's overlay, told what the settings say."""
    return KINDS[inventory.bootstrap.KIND].of(inventory, settings)
