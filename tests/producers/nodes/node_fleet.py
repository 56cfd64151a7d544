"""A few nodes in one process with links through proxies, and a controller that executes plans on them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast

from regraft.controller.execute.transition import SendCommand, Transition, TransitionEffect
from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.link_congestion import WINDOW_MS
from regraft.overlay.overlay_configuration import NO_CHANGE, BrokerChange, OverlayConfiguration, plan_digest
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.emulator_ports import MemoryClients, MemoryResults, MemoryTelemetry
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.links.run_links import LinkLimits, Links
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.plan import ClientMove, Plan, PlanPhase
from regraft.schemas.telemetry import TelemetryBatch
from tests.wait_until import PATIENCE_S

LIMITS = LinkLimits(probe_ms=50.0, silence_ms_max=500.0, retry_ms=5.0, retry_ms_max=20.0)
PATIENT = TransitionLimits(prepare_ms=int(1_000 * PATIENCE_S), resend_ms=200)  # No plan is aborted for being slow.


@dataclass
class MemoryPorts:
    telemetry: MemoryTelemetry = field(default_factory=MemoryTelemetry)
    results: MemoryResults = field(default_factory=MemoryResults)
    clients: MemoryClients = field(default_factory=MemoryClients)

    def send_batch(self, batch: TelemetryBatch) -> None:
        self.telemetry.send_batch(batch)

    def send_result(self, result: CommandResult) -> None:
        self.results.send_result(result)

    def put_client(self, client: Client) -> None:
        self.clients.put_client(client)

    def remove_client(self, client: str) -> None:
        self.clients.remove_client(client)


class NodeFleet:
    """Nodes by name; ``proxies`` are by the called node, so cutting one ends all calls to that node.

    ``between`` are those of single links, by caller and called node; the caller's name comes first.
    """

    def __init__(
        self,
        configuration: OverlayConfiguration,
        delays_s: dict[str, float] | None = None,
        limits: TransitionLimits | None = None,
    ) -> None:
        self.configuration = configuration
        self.limits = limits or TransitionLimits(resend_ms=200)
        self.nodes: dict[str, BrokerNode] = {}
        self.ports: dict[str, MemoryPorts] = {}
        self.proxies: dict[str, LinkProxy] = {}
        self.between: dict[tuple[str, str], LinkProxy] = {}
        self.listening: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.may_retire = asyncio.Event()  # While it is cleared, no plan ends.
        self.may_retire.set()
        self._delays_s = delays_s or {}
        self._plans = 0
        self._settling: asyncio.Task[None] | None = None

    def _port_of(self, broker: str) -> int:
        return self.listening.get(broker, 1)

    async def add_proxy(self, caller: str, called: str) -> LinkProxy:
        """Let a single link go through a separate proxy; call this before ``begin``."""
        proxy = self.between[caller, called] = LinkProxy(partial(self._port_of, called))
        await proxy.start()
        return proxy

    async def begin(self, connectors: dict[str, Connector]) -> None:
        for broker in self.configuration.brokers:
            self.proxies[broker] = LinkProxy(partial(self._port_of, broker), self._delays_s.get(broker, 0.0))
            await self.proxies[broker].start()
        for broker in self.configuration.brokers:
            await self.begin_node(broker, connectors[broker])
        self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        measured_s = 0.0
        while True:
            is_due = time.monotonic() - measured_s > WINDOW_MS / 1_000
            measured_s = time.monotonic() if is_due else measured_s
            for node in list(self.nodes.values()):
                self.guarded(node.settle_receipts)()
                if is_due:
                    self.guarded(node.congestion.measure)()
            await asyncio.sleep(0.01)

    async def begin_node(self, broker: str, connector: Connector, *, is_outside: bool = False) -> None:
        core = core_of(broker, self.configuration, int(time.time() * 1_000), is_outside=is_outside)
        core.leave_clients()
        ways = {name: self.between.get((broker, name), proxy) for name, proxy in self.proxies.items()}
        addresses = {name: ("127.0.0.1", way.port) for name, way in ways.items()}

        def links_of(node: BrokerNode) -> Links:
            return Links(broker, str(core.boot_ms), addresses, self.guarded(node.take), self.guarded(node.lose), LIMITS)

        ports = self.ports[broker] = MemoryPorts()
        node = self.nodes[broker] = BrokerNode(
            core, ports, connector, links_of, lambda: time.time() * 1_000, self.proxies
        )
        self.listening[broker] = await node.links.bind("127.0.0.1", 0)
        await node.links.start()
        node.begin()
        await connector.start(self.guarded(node.note_interest), self.guarded(node.note_message))

    def guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        def guard(*arguments: object) -> None:
            try:
                call(*arguments)
            except Exception as error:
                self.failures.append(error)
                raise

        return guard

    async def kill(self, broker: str) -> None:
        node = self.nodes.pop(broker)
        await node.links.close()
        await node.connector.close()

    async def close(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
        for broker in list(self.nodes):
            await self.kill(broker)
        for proxy in (*self.proxies.values(), *self.between.values()):
            await proxy.close()

    async def all_want(self, count: int = 1) -> None:
        """Wait until each node knows of so much interest at its broker, which reports it after the client has it."""
        while any(node.clients.interest_count < count for node in self.nodes.values()):
            await asyncio.sleep(0.01)

    async def all_confirmed(self) -> None:
        """Wait until everything that clients want is confirmed, and each publisher is known everywhere."""
        while not all(is_confirmed(node) for node in self.nodes.values()):
            await asyncio.sleep(0.01)

    async def all_measured(self) -> None:
        """Wait until every node has measured the round trip to every other, neighbour or not."""
        while any(
            {peer for peer, _ in node.links.round_trips()} != set(self.nodes) - {broker}
            for broker, node in self.nodes.items()
        ):
            await asyncio.sleep(0.01)

    # --- plans -------------------------------------------------------------------------------------------------------

    async def change_to(
        self,
        links: Collection[tuple[str, str]],
        brokers: Sequence[str] = (),
        change: BrokerChange = NO_CHANGE,
        moves: Sequence[ClientMove] = (),
    ) -> Plan:
        """Bring all brokers to the tree of these links, and clients to other homes; return the plan at its end."""
        before = self.configuration
        names = tuple(brokers) or before.brokers
        return await self.execute(TreeConfiguration.of(self.next_epoch(), names, links), change, moves)

    async def execute(
        self, target: OverlayConfiguration, change: BrokerChange = NO_CHANGE, moves: Sequence[ClientMove] = ()
    ) -> Plan:
        """Bring all brokers to an overlay, whose epoch is :meth:`next_epoch`; return the plan at its end."""
        before = self.configuration
        self._plans += 1
        plan = Plan(
            f"plan-{self._plans}", before.epoch, target.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, (),
            begun_by="test", brokers_lost=tuple(sorted(change.lost)), moves=tuple(moves),
        )  # fmt: skip
        transition = Transition(target.as_target(plan, before), target, self.limits, 1, change)
        self._act(transition.start(self._now_ms()))
        while not transition.is_done:
            for result in self._results():
                self._act(transition.on_result(result, self._now_ms()))
            self._act(transition.on_tick(self._now_ms()))
            await asyncio.sleep(0.005)
        if transition.plan.phase is PlanPhase.VERIFYING:
            self.configuration = target
            self.digest = plan_digest(transition.plan, target)
            self._tried = 0
        return transition.plan

    def next_epoch(self) -> int:
        """Return the epoch of the next plan: no two have the same one."""
        return self.configuration.epoch + self._plans_tried()

    def _plans_tried(self) -> int:
        self._tried = getattr(self, "_tried", 0) + 1
        return self._tried

    async def install(self, broker: str) -> None:
        """Let a broker restart outside the overlay in force."""
        present = self.configuration
        command = Command(
            f"plan-{self._plans}", CommandPhase.INSTALL, broker, 0, present.epoch, (), present.links, self.digest,
            term=1, brokers_joined=present.brokers,
        )  # fmt: skip
        self.nodes[broker].obey(command)
        await asyncio.sleep(0)

    def _results(self) -> list[CommandResult]:
        found = [result for ports in self.ports.values() for result in ports.results.results]
        for ports in self.ports.values():
            ports.results.results.clear()
        return found

    def _act(self, effects: list[TransitionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendCommand) and effect.command.broker in self.nodes:
                if effect.command.phase is CommandPhase.RETIRE and not self.may_retire.is_set():
                    continue  # It is repeated.
                self.guarded(self.nodes[effect.command.broker].obey)(effect.command)

    @staticmethod
    def _now_ms() -> int:
        return int(time.time() * 1_000)


def is_confirmed(node: BrokerNode) -> bool:
    """Return True if everything that clients of a node want is confirmed, and its publisher is known everywhere."""
    known = cast(Any, node.core).routing.interests.locals.values()
    confirmed_count = sum(local.is_confirmed for local in known)
    return confirmed_count == node.clients.interest_count > 0 and node.clients.are_publishers_known


@dataclass
class NodeLedger:
    """What was published and received, by (publisher, receiver); numbers count from 0 for each publisher."""

    came: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def take(self, publisher: str, receiver: str, number: int) -> None:
        self.came.setdefault((publisher, receiver), []).append(number)

    def account(self, owed: dict[tuple[str, str], range]) -> Counter[str]:
        """Return how many were lost, repeated, out of order and unexpected."""
        found: Counter[str] = Counter(lost=0, repeated=0, out_of_order=0, unexpected=0)
        for pair, numbers in owed.items():
            came = self.came.get(pair, [])
            found["lost"] += len(set(numbers) - set(came))
            found["repeated"] += len(came) - len(set(came))
            found["unexpected"] += len(set(came) - set(numbers))
            found["out_of_order"] += sum(later < earlier for earlier, later in pairwise(came))
        found["unexpected"] += sum(len(came) for pair, came in self.came.items() if pair not in owed)
        return found


class Site(Protocol):
    """Nodes and what is next to them."""

    fleet: NodeFleet

    async def begin(self) -> None: ...

    async def close(self) -> None: ...


ASite = TypeVar("ASite", bound=Site)


def run_on_site(
    site: ASite, steps: Callable[[ASite], Awaitable[None]], apart: Collection[tuple[str, str]] = ()
) -> None:
    """Run steps on a site from its begin to its end; the links ``apart`` have separate proxies."""

    async def go() -> None:
        for link in apart:
            await site.fleet.add_proxy(*link)
        try:
            await site.begin()
            await asyncio.wait_for(steps(site), PATIENCE_S)
        finally:
            await site.close()
        assert site.fleet.failures == []

    asyncio.run(go())
