"""The kinds of overlay. A further kind is a configuration class that implements :class:`OverlayConfiguration`.

The controller, the emulator and the report have their own classes for each kind, by its name; ARCHITECTURE.md lists
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration

CONFIGURATIONS = (RingConfiguration, ScotConfiguration, TreeConfiguration)
KINDS = tuple(sorted(each.KIND for each in CONFIGURATIONS))


def read_configuration(brokers: Sequence[str], fields: Mapping[str, Any]) -> OverlayConfiguration:
    """Return the overlay of epoch 0 from the fields of an inventory's JSON.

    Raises KeyError, TypeError or ValueError (NotATreeError, RingError) if they are not an overlay of a known kind.
    """
    for kind in CONFIGURATIONS:
        configuration = kind.of_fields(brokers, fields)
        if configuration is not None:
            return configuration
    raise ValueError(f"it holds no overlay of a known kind: {', '.join(KINDS)}")
