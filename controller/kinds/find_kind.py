"""The one place that chooses: the kind of an inventory's overlay, with the weights and caps of the settings."""

from __future__ import annotations

from collections.abc import Callable

from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.kinds.ring.ring_kind import RingKind
from regraft.controller.kinds.scot.scot_kind import ScotKind
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration


def tree_kind(inventory: Inventory, settings: ControllerSettings) -> TreeKind:
    """Return the kind, with the settings' cap of links, or the inventory's if they set none."""
    return TreeKind(inventory, settings.degree_max or inventory.degree_max)


def ring_kind(inventory: Inventory, settings: ControllerSettings) -> RingKind:
    """Return the kind, with the settings' weight of delay and cap of load."""
    return RingKind(inventory, settings.ring_delay_weight, settings.user_load_max)


def scot_kind(inventory: Inventory, settings: ControllerSettings) -> ScotKind:
    """Return the kind, with the settings' cap of links, or the inventory's if they set none."""
    return ScotKind(inventory, settings.degree_max or inventory.degree_max)


KINDS: dict[str, Callable[[Inventory, ControllerSettings], AnyKind]] = {
    TreeConfiguration.KIND: tree_kind,
    RingConfiguration.KIND: ring_kind,
    ScotConfiguration.KIND: scot_kind,
}


def kind_of(inventory: Inventory, settings: ControllerSettings) -> AnyKind:
    """Return the kind of the inventory's overlay, configured by the settings; in money if it has prices."""
    return KINDS[inventory.bootstrap.KIND](inventory.charged, settings)
