"""What all kinds of overlays share: inventories, links, delivery sets."""

from regraft.overlay.derived_values import fill_in
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange, Link, OverlayConfiguration, link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.distinct_sets import digit_planes, merge_sets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.schemas.arrays import Words

__all__ = [
    "BrokerChange",
    "DeliverySets",
    "Inventory",
    "Link",
    "OverlayConfiguration",
    "WeightedSets",
    "Words",
    "digit_planes",
    "fill_in",
    "link",
    "merge_sets",
]
