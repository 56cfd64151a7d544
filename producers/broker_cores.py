"""The protocol core for each kind of overlay."""

from __future__ import annotations

from typing import Any, Protocol

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.ring_routing import ring_broker
from regraft.producers.brokers.scot_routing import scot_broker
from regraft.producers.brokers.tree_routing import tree_broker


class MakeCore(Protocol):
    """Make a broker's protocol core."""

    def __call__(self, broker: str, configuration: Any, boot_ms: int, *, is_outside: bool = False) -> BrokerProtocol:
        """Return the core."""
        ...


CORES: dict[str, MakeCore] = {
    TreeConfiguration.KIND: tree_broker,
    RingConfiguration.KIND: ring_broker,
    ScotConfiguration.KIND: scot_broker,
}


def core_of(
    broker: str, configuration: OverlayConfiguration, boot_ms: int, *, is_outside: bool = False
) -> BrokerProtocol:
    """Return the protocol core of a broker that begins with a configuration of any kind.

    The broker begins outside the overlay if the configuration does not contain it, or with ``is_outside`` (an earlier
    life of it is still in the configuration).
    """
    return CORES[configuration.KIND](broker, configuration, boot_ms, is_outside=is_outside)
