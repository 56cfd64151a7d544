"""Which protocol core a broker has, by the kind of its overlay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overlay.chord_configuration import ChordConfiguration
from overlay.configuration import Configuration
from overlay.overlay_configuration import OverlayConfiguration
from producers.brokers.broker_protocol import BrokerProtocol
from producers.brokers.chord_routing import ring_broker
from producers.brokers.tree_routing import tree_broker

CORES: dict[str, Callable[[str, Any, int], BrokerProtocol]] = {
    Configuration.KIND: tree_broker,
    ChordConfiguration.KIND: ring_broker,
}


def core_of(broker: str, configuration: OverlayConfiguration, boot_ms: int) -> BrokerProtocol:
    """Return the protocol core of a broker that begins with a configuration of whatever kind."""
    return CORES[configuration.KIND](broker, configuration, boot_ms)
