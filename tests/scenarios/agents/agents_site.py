"""Real agents, nodes and controllers with brokers, links and connections in memory: events happen in any order.

In: self-contained actions, such as ("arrive", "b01:4222#3>") or ("stop", "b02"), so a run is the list of its actions.
Out: a BrokenPromiseError if the promise to clients beside agents is broken. Only the sockets are not real: the agents'
sessions, the nodes with their connectors and cores, PlanRunner and PlanLog are those of the product.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.emulator.emulator_ports import MemoryClients
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.schemas.agent_names import client_beside
from regraft.schemas.plan import ClientMove, Plan, PlanPhase
from regraft.schemas.telemetry import TelemetryBatch
from tests.scenarios.agents.agents_ledger import ClientLedger
from tests.scenarios.agents.check_rest import homes_of
from tests.scenarios.agents.memory_links import LinkLanes, MemoryLinks
from tests.scenarios.agents.mortal_nodes import MortalNodes
from tests.scenarios.agents.site_clients import SiteClient
from tests.scenarios.agents.site_kinds import LOGINS, NOTES, SiteKind
from tests.scenarios.agents.wires import AnyOrderLoop, Wires
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_clock import Clock
from tests.scenarios.any_order_leaders import ManyControllers
from tests.scenarios.any_order_tree import tree_plan

Action = tuple[Any, ...]
START_S = 1.0  # Connectors look for other nodes for half a second.
RESTART_S = 1.0
AGENTS = ("web1", "web2")
MESSAGE = re.compile(rb"(c\d+-\d+)/(\d+)(?:\r\n)?$")  # The end of a packet with what a client has published.
BEFORE_COMMIT = (PlanPhase.PROPOSED, PlanPhase.PREPARING, PlanPhase.ABORTING, PlanPhase.ABORTED, PlanPhase.REFUSED)


class NodeOutlet:
    """What a node sends to Kafka: answers reach the controllers in any order, telemetry nobody."""

    def __init__(self, site: AgentsSite) -> None:
        self.send_result = site.on_result
        self.put_client, self.remove_client = site.register.put_client, site.register.remove_client

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Do nothing."""


class AgentsSite(MortalNodes, ManyControllers):
    """Brokers with nodes, two agents, their clients, clients at brokers, and controllers.

    ``doubtful`` are clients struck if the plan to an epoch is committed: its next home for them has died.
    """

    def __init__(
        self, inventory: Inventory, limits: TransitionLimits, loop: AnyOrderLoop, seed: int, rival: str, kind: SiteKind
    ) -> None:
        self.clock, self.loop, self.wires, self.kind = Clock(), loop, Wires(loop, seed), kind
        self.names = inventory.brokers
        self.ledger, self.register, self.links = ClientLedger(), MemoryClients(), LinkLanes()
        self.set_up_controllers(inventory, limits, rival)
        self.set_up_deaths()
        self.servers = {name: kind.server(name, self.wires) for name in self.names}
        self.brokers: dict[str, Any] = {}  # Their nodes, None for a dead one.
        self.agents: dict[str, Agent] = {}
        self.clients: dict[str, SiteClient] = {}  # By name, those that are connected.
        self.sessions: dict[str, Any] = {}  # The agent's session of each client beside one.
        self.left: list[tuple[SiteClient, Any]] = []  # Clients that have left, whose sessions may still send.
        self.doubtful: list[tuple[int, str]] = []
        self.stays: Counter[str] = Counter()
        self.places: dict[str, tuple[str, int]] = {}  # Where clients are, or were before they left.
        self.trace: list[str] | None = None
        self._starting = inventory.bootstrap
        for name in self.names:
            self._start_node(name)
        for name in AGENTS:
            self._start_agent(name, self.names[0])
        self.pass_time(START_S)

    # --- time and actions --------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Return the time."""
        return self.clock.now

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.pass_time(seconds)
        self.clock.now = round(self.loop.now_s * 1_000)

    def apply(self, action: Action) -> bool:
        """Perform one action and return whether it was possible. Raises BrokenPromiseError if it breaks the promise."""
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:7d} {' '.join(str(part) for part in action)}")
        try:
            if getattr(self, f"do_{action[0]}")(*action[1:]) is False:
                if self.trace is not None:
                    self.trace.pop()
                return False  # It takes no time, so that a run without it is the same.
            self.loop.settle()
            self.pass_time(0.001)
        except BrokenPromiseError:
            raise
        except Exception as error:
            text = re.sub(r"\d+", "_", str(error))[:70]
            raise BrokenPromiseError(f"crash {type(error).__name__} {text}", f"{error!r} by {action}") from error
        if self.loop.failures:
            raise BrokenPromiseError("failed task", f"{self.loop.failures[0]} by {action}")
        return True

    def do_wait(self, pause_ms: int) -> None:
        """Let time pass."""
        self.pass_time(pause_ms / 1_000)

    def do_arrive(self, name: str) -> bool:
        """Let the first bytes that were written at an end arrive at the other one."""
        end = self.wires.ends.get(name)
        if end is None or not end.is_ready:
            return False
        if self.trace is not None:
            self.trace[-1] += f": {end.lane[0].data!r}"[:300]
        end.deliver()
        return True

    def do_answer(self, name: str) -> bool:
        """Let a call be accepted, or refused."""
        if name not in self.wires.calls:
            return False
        self.wires.answer(name)
        return True

    def do_cross(self, source: str, target: str) -> bool:
        """Let the first message on a link arrive."""
        message = self.links.take(source, target)
        if message is None:
            return False
        if self.brokers[target] is not None:
            self.brokers[target].take(source, message)
        return True

    def do_tick(self, name: str) -> bool:
        """Let a node look at its clock."""
        node = self.brokers.get(name)
        if node is not None:
            node.flush()
            node.settle_receipts()
        return node is not None

    def _enqueue(self, broker: BrokerNode | None, source: str | None, message: Any) -> None:
        if broker is not None:
            broker.obey(message)

    # --- nodes, brokers, agents --------------------------------------------------------------------------------------

    def _start_node(self, name: str, *, is_outside: bool = False) -> None:
        core = core_of(name, self._starting, self.now_ms, is_outside=is_outside)
        connector = self.kind.connector(self.servers[name])

        def links_of(_: BrokerNode) -> Any:
            return MemoryLinks(name, self.links)

        outlet: Any = NodeOutlet(self)
        node = self.brokers[name] = BrokerNode(
            core, outlet, connector, links_of, lambda: float(self.now_ms), self.names
        )
        node.begin()
        self.loop.create_task(self._open_connector(node))

    async def _open_connector(self, node: BrokerNode) -> None:
        """Open a node's connector; where the broker is away, a supervisor starts the node again and again."""
        while self.brokers[node.broker] is node:
            with suppress(ConnectorError):
                await node.connector.start(node.note_interest, node.note_message)
                return
            await asyncio.sleep(RESTART_S)

    def _start_agent(self, name: str, home: str) -> None:
        addresses = {broker: BrokerAddress(broker, broker, self.kind.client_port) for broker in self.names}
        self.agents[name] = Agent(name, addresses, home, self.kind.session_of)

    def do_stop(self, name: str) -> bool:
        """Let a real broker die; its node lives."""
        if self.servers[name].is_down:
            return False
        self._strike_at(name)
        node = self.brokers[name]
        for payload in self.kind.unanswered(node.connector) if node is not None else ():
            publisher, _, number = payload.decode().partition("/")
            if number:
                self.ledger.note_unanswered(publisher, {int(number)})
        self.servers[name].stop()
        self._note_unread(name)
        return True

    def _note_unread(self, broker: str) -> None:
        """Note what a node has not read of a broker that has died: it carries it to where clients have restarted."""
        at_home = [name for name, session in self.sessions.items() if broker in homes_of(session)]
        wanted = [each for name in at_home for each in self.clients[name].subscriptions.values()]
        for data in self.wires.on_the_way(broker, self.kind.nodes_end):
            if message := MESSAGE.search(data):
                for each in wanted:
                    self.ledger.note_unread(each, message[1].decode(), int(message[2]))

    def do_start(self, name: str) -> bool:
        """Start a broker again."""
        if not self.servers[name].is_down:
            return False
        self.servers[name].start()
        return True

    def do_refuse(self, name: str, what: int) -> None:
        """Let a broker refuse logins from now on, or nothing any more; with MQTT also what agents alone need."""
        self.servers[name].refuses_logins, self.servers[name].refuses_notes = what == LOGINS, what == NOTES

    def do_cut(self, name: str) -> bool:
        """Cut a node from its broker: what is published there meanwhile does not cross, and moves there may repeat."""
        if not self.servers[name].cut_node():
            return False
        for client in self._near(name):
            self._strike(client)
            for subscription in client.subscriptions.values():
                self.ledger.wanted[subscription].may_repeat = True
        return True

    def _near(self, broker: str) -> list[SiteClient]:
        """Return the clients that have, or want, a connection to a broker."""
        return [
            client for name, client in self.clients.items()
            if name not in self.sessions or broker in brokers_of(self.sessions[name])
        ]  # fmt: skip

    def _strike(self, client: SiteClient) -> None:
        self.ledger.strike(*client.subscriptions.values())
        self.ledger.strike_late(client.stay)
        self.ledger.note_unanswered(client.stay, client.unanswered)

    def _strike_at(self, broker: str) -> None:
        """Excuse what clients of a broker lose; those that a plan brings there lose nothing unless it is committed."""
        for name, client in self.clients.items():
            session = self.sessions.get(name)
            if session is None:
                if self.places[name][0] == broker:
                    self._strike(client)
            elif broker in homes_of(session):
                self._strike(client)
            else:
                moves = session.moves
                there = [number for number, move in moves.moving.items() if move.home_to == broker]
                self.doubtful += [(moves._names[number][1], name) for number in there]
        for client, session in self.left:  # Its agent takes what it has written to another broker.
            if broker in homes_of(session):
                self.ledger.strike_late(client.stay)

    def do_die(self, agent: str) -> bool:
        """Let an agent die with its clients, and come again under its name."""
        for name, session in list(self.sessions.items()):
            if session in self.agents[agent].sessions:
                for upstream in list(session.homes.upstreams.values()):
                    upstream.transport.abort()
                session._transport.abort()
                session.end("")
                self._forget(self.clients[name])
        self._start_agent(agent, self.names[0])
        return True

    # --- clients -----------------------------------------------------------------------------------------------------

    def do_come(self, name: str, place: str, subscription_count: int) -> bool:
        """Let a client come, beside an agent or at a broker, with as many subscriptions."""
        if name in self.clients or (place in self.servers and self.servers[place].is_down):
            return False
        self.stays[name] += 1
        stay = f"{name}-{self.stays[name]}"
        client = self.kind.client(name, stay, self.ledger, self._note_ended, self.wires.seed)
        for count in range(subscription_count):
            client.subscribe(count)
        if place in self.agents:
            self.sessions[name] = session = self.agents[place]._begin()
            self.wires.join(f"{name}-{self.now_ms}", place, client, session)
        else:
            self.loop.create_task(self._connect(client, place))
        self.clients[name], self.places[name] = client, (place, subscription_count)
        return True

    def do_leave(self, name: str) -> bool:
        """Let a client leave without a word."""
        client = self.clients.get(name)
        if client is None or not client.is_connected:
            return False
        if session := self.sessions.get(name):
            self.left.append((client, session))
        self._forget(client)
        client.drop()
        return True

    async def _connect(self, client: SiteClient, place: str) -> None:
        try:
            await self.wires.connect(lambda: client, place, self.kind.client_port)
        except OSError:
            self._forget(client)

    def _forget(self, client: SiteClient) -> None:
        client.end()
        self.clients.pop(client.name, None)
        self.sessions.pop(client.name, None)

    def _note_ended(self, client: SiteClient) -> None:
        """Note that a client's connection was ended; only one that was struck may lose it."""
        is_excused = client.stay in self.ledger.struck
        self._forget(client)
        if not is_excused:
            raise BrokenPromiseError("client ended", f"{client.name} is cut off though nothing has struck it")

    def do_publish(self, name: str, count: int) -> bool:
        """Let a client publish."""
        client = self.clients.get(name)
        if client is None:
            return False
        client.publish(count)
        return True

    def do_subscribe(self, name: str) -> bool:
        """Let a client subscribe once more."""
        client = self.clients.get(name)
        if client is None:
            return False
        client.subscribe(0)
        self.ledger.apart.add(client.stay)  # It may begin at another home.
        return True

    def do_unsubscribe(self, name: str) -> bool:
        """Let a client end a subscription."""
        client = self.clients.get(name)
        if client is None or not client.subscriptions:
            return False
        client.unsubscribe()
        return True

    def do_read(self, name: str, is_reading: int) -> bool:
        """Let a client stop reading, or read again."""
        client = self.clients.get(name)
        if client is None or name not in self.sessions or client.reads == bool(is_reading):
            return False
        client.read(bool(is_reading), client.other_end)
        return True

    # --- plans -------------------------------------------------------------------------------------------------------

    def plan_of(self, log: Any, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these exchanges of links, and note the clients that it moves only in part."""
        homes = self.movable()  # A plan may be mistaken about them.
        counts = Counter(client_beside(move.client) for move in moves if homes.get(move.client) == move.home_from)
        for name, session in self.sessions.items():
            subscriptions = session.client.subscriptions.values()
            moved = any(client_beside(move.client) == session.client.name for move in moves)
            if moved and counts[session.client.name] < sum(each.number >= 0 for each in subscriptions):
                self.ledger.apart.add(self.clients[name].stay)
        return tree_plan(log, changes, moves)

    def do_cancel_plan(self) -> bool:
        """Let an operator cancel the plan under way, as far as that is still possible."""
        runner = self.controller.runner
        if runner is None or self.controller.log.moving is None:
            return False
        runner.cancel("cancelled", self.now_ms)
        return True

    def movable(self) -> dict[str, str]:
        """Return the subscriptions that a plan may move, and their homes."""
        return {name: each.home for name, each in sorted(self.register.connected.items()) if each.may_move}

    def is_committed(self, epoch: int) -> bool:
        """Return True if any plan to an epoch has passed the point of no return."""
        plans = [plan for one in self.met_controllers for plan in one.shelf.stored.values()]
        return any(plan.epoch_to == epoch and plan.phase not in BEFORE_COMMIT for plan in plans)

    def strike_doubtful(self) -> None:
        """Excuse those whose next home has died after all if their plan was committed."""
        for epoch, name in self.doubtful:
            if self.is_committed(epoch) and name in self.clients:
                self._strike(self.clients[name])
        self.doubtful.clear()


def brokers_of(session: Any) -> set[str]:
    """Return the brokers to which a session has connections, or wants some."""
    return {*session.homes.upstreams, *session.moves.brokers, *homes_of(session)}
