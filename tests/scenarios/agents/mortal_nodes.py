"""Nodes of a site of agents that die and come again, and the plans that repair the overlay and admit them.

In: actions ("die_node", "notice", "declare", "repair", "return_node", "install"). Out: their effects. A node that dies
loses what is on links to it; what it had sent may still arrive. Its broker lives, and so do the agents' connections.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import Any, cast

import msgspec
import networkx as nx

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.emulator.emulator_ports import MemoryClients
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.schemas.command import Command
from tests.scenarios.agents.agents_ledger import ClientLedger
from tests.scenarios.agents.memory_links import LinkLanes
from tests.scenarios.agents.site_kinds import SiteKind
from tests.scenarios.any_order_controller import AnyOrderController, new_plan
from tests.scenarios.any_order_members import ChangingMembers

Action = tuple[Any, ...]


class MortalNodes:
    """Deaths of nodes. A part of a site of agents.

    ``dead`` are the dead nodes, ``returned`` those that have begun again and are in no overlay yet.
    """

    names: tuple[str, ...]
    brokers: dict[str, Any]
    links: LinkLanes
    ledger: ClientLedger
    register: MemoryClients
    clients: dict[str, Any]
    servers: dict[str, Any]
    kind: SiteKind
    controller: AnyOrderController
    met_controllers: list[AnyOrderController]
    now_ms: int
    _start_node: Callable[..., None]
    _take_command: Callable[[Command, str], None]

    def set_up_deaths(self) -> None:
        """Begin without dead nodes."""
        self.dead: set[str] = set()
        self.returned: set[str] = set()
        self.declared: set[str] = set()
        self._noticed: set[tuple[str, str]] = set()

    @property
    def nodes(self) -> dict[str, BrokerNode]:
        """The living nodes."""
        return {name: node for name, node in self.brokers.items() if node is not None}

    @property
    def lost(self) -> list[str]:
        """The brokers of the overlay in force whose nodes are dead, or have begun again."""
        return [name for name in self.controller.log.present.brokers if name in self.dead | self.returned]

    def do_die_node(self, name: str) -> bool:
        """Let a node die; all who are connected may lose what crosses the overlay until it is repaired."""
        if self.dead or self.returned or len(self.names) < 3:
            return False
        for client in self.clients.values():
            self.ledger.strike(*client.subscriptions.values())
            self.ledger.strike_late(client.stay)
            self.ledger.note_unanswered(client.stay, client.unanswered)
        node, self.brokers[name] = self.brokers[name], None
        self.dead.add(name)
        self._noticed.clear()
        self.links.lose(name, self.names)
        self.kind.kill(node.connector)
        for client in [each for each, at in self.register.connected.items() if at.home == name]:
            self.register.remove_client(client)
        return True

    def to_notice(self) -> list[tuple[str, str]]:
        """Return the nodes that may now notice the death of another."""
        return [
            (peer, name)
            for name in sorted(self.dead)
            for peer, node in self.nodes.items()
            if name in node.core.live_neighbours
            and not {(peer, name)} & self._noticed
            and (name, peer) not in self.links.lanes
        ]

    def do_notice(self, peer: str, name: str) -> bool:
        """Let a node notice the death of another, behind what that had sent."""
        if (peer, name) not in self.to_notice():
            return False
        self._noticed.add((peer, name))
        self.brokers[peer].lose(name)
        return True

    def do_declare(self, name: str) -> bool:
        """Let the controllers know that a node is dead, or was."""
        if name not in self.dead | self.returned or name in self.declared:
            return False
        self._declare(self.declared | {name})
        return True

    def _declare(self, names: Collection[str]) -> None:
        self.declared = set(names)
        for controller in self.met_controllers:
            controller.dead = frozenset(names)

    def do_repair(self, back: str = "") -> bool:
        """Begin the plan that removes the dead from the overlay in force, and admits one that has begun again."""
        log, lost = self.controller.log, self.lost
        is_possible = self.controller.is_idle and {*lost} <= self.declared and back in ("", *self.returned)
        if not is_possible or not (lost or back):
            return False
        before = log.present
        living = [name for name in before.brokers if name not in lost]
        graph = nx.Graph(pair for pair in before.links if not {*lost}.intersection(pair))
        graph.add_nodes_from(living)
        parts = sorted(min(part) for part in nx.connected_components(graph))
        links = [*graph.edges, *itertools.pairwise(parts), *([(living[0], back)] if back else [])]
        target = TreeConfiguration.of(log.epoch_next, [*living, *([back] if back else [])], links)
        plan = msgspec.structs.replace(new_plan(log, target, ()), brokers_lost=tuple(lost))
        if back:
            self._declare(self.declared - {back})
        self.controller.begin(target.as_target(plan, before), self.now_ms)
        return True

    def do_return_node(self, name: str) -> bool:
        """Let a dead node begin again, outside, once the others have noticed."""
        if name not in self.dead or self.to_notice() or any(name in pair for pair in self.links.lanes):
            return False
        self.dead.discard(name)
        self.returned.add(name)
        self._start_node(name, is_outside=True)
        return True

    def do_install(self, name: str) -> bool:
        """Let the controller notify a node outside of the overlay in force."""
        if name not in self.returned or not self.controller.is_idle:
            return False
        command = ChangingMembers._install_of(cast(Any, self), name)
        self._take_command(command, self.controller._name)
        return True

    def note_returned(self) -> None:
        """Note the nodes that are part of the overlay again."""
        for name in list(self.returned):
            core = self.brokers[name].core
            if core.phase is BrokerPhase.STEADY and core.takes_clients:
                self.returned.discard(name)

    def mending(self) -> list[Action]:
        """Return what is to be done next about nodes that have died; empty if nothing is."""
        self.note_returned()
        gone = sorted(self.dead | self.returned)
        if not gone:
            return []
        undeclared = [name for name in gone if name not in self.declared and name in self.lost]
        if undeclared:
            return [("declare", undeclared[0])]
        if self.lost:
            return [("repair",)]
        if self.dead:
            return [("return_node", gone[0])]
        return [("install", gone[0]), ("repair", gone[0])]
