"""Which overlays may carry a fleet's notifications: the one in force, and during a plan the one that it leads to.

In: the initial overlay and the commands to nodes. Out: the parts of each that remain without a broker. The nodes' own
tables are not used, so that their faults excuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx

from regraft.overlay.overlay_configuration import Link, OverlayConfiguration
from regraft.producers.emulator.overlay_paths import target_of
from regraft.schemas.command import Command, CommandPhase

Parts = Mapping[str, int]  # Broker -> number of the part of an overlay that it is left in.


class FleetOverlays:
    """The overlays by epoch; ``note_command`` returns True if another one may carry notifications from now on."""

    def __init__(self, start: OverlayConfiguration) -> None:
        self._live = {start.epoch: start}
        self._prepared: dict[tuple[int, str], OverlayConfiguration] = {}

    def note_command(self, command: Command) -> bool:
        """Note a command to any node; the same command to other nodes changes nothing."""
        key = command.epoch_to, command.digest
        match command.phase:
            case CommandPhase.PREPARE:
                before = self._live.get(command.epoch_from)
                target = None if before is None or key in self._prepared else target_of(before, command)
                if target is not None:
                    self._prepared[key] = target
            case CommandPhase.ACTIVATE if key in self._prepared:
                self._live[command.epoch_to] = self._prepared.pop(key)
                return True
            case CommandPhase.RETIRE if command.epoch_to in self._live:
                self._live = {epoch: each for epoch, each in self._live.items() if epoch >= command.epoch_to}
            case CommandPhase.ABORT:
                self._prepared.pop(key, None)
        return False

    def parts_without(self, broker: str) -> list[Parts]:
        """Return, for each overlay with the broker, the parts into which it falls without it."""
        return [_parts(each.brokers, each.links, broker) for each in self._live.values() if broker in each.brokers]


def _parts(brokers: Iterable[str], links: Iterable[Link], dead: str) -> Parts:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(brokers)
    graph.add_edges_from(links)
    graph.remove_node(dead)
    return {name: place for place, part in enumerate(nx.connected_components(graph)) for name in part}
