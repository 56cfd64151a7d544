"""Two agents whose clients leave a broker of a real site, everybody's traffic, and a ledger of who is owed what.

The ledger knows nothing of the protocol: everybody publishes numbers to everybody, and those whom a fault has struck
are owed no more than what is published later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from regraft.producers.agents.agent import Agent
from regraft.producers.agents.nats_upstream import BrokerAddress
from regraft.producers.emulator.emulator_ports import MemoryClients
from regraft.schemas.agent_note import AgentNote, NoteKind
from regraft.schemas.plan import ClientMove, Plan
from tests.producers.nodes.nats_site import NatsSite
from tests.producers.nodes.test_agents_beside_nats import BROKERS, OTHER, until

HOME, HIT, OTHERS = "b02", ("c0", "c1"), ("d0",)  # The clients of agent web1, which is struck, and of web2.
LATER, PAUSE_S, LEFT_S_MAX = 20, 0.004, 20.0


class Ledger:
    """What came, by subject and receiver, in order; it knows nothing of the protocol."""

    def __init__(self) -> None:
        self.published: dict[str, int] = {}
        self.came: dict[tuple[str, str], list[int]] = {}

    def next_number(self, subject: str) -> bytes:
        number = self.published.get(subject, 0)
        self.published[subject] = number + 1
        return b"%d" % number

    async def take(self, receiver: str, message: Any) -> None:
        if message.subject.startswith(("data.", "later.", "flood.")):
            self.came.setdefault((message.subject, receiver), []).append(int(message.data))

    def lost(self, subject: str, receiver: str) -> int:
        return self.published.get(subject, 0) - len(set(self.came.get((subject, receiver), ())))

    def faults(self, is_ordered: Callable[[str, str], bool], repeating: Collection[str]) -> list[str]:
        """Return what came twice, except to some, or out of order where that is owed."""
        faults = []
        for (subject, receiver), numbers in self.came.items():
            if len(set(numbers)) < len(numbers) and receiver not in repeating:
                twice = sorted({each for each in numbers if numbers.count(each) > 1})
                faults.append(f"{receiver} got {twice[:5]} of {subject} twice")
            elif is_ordered(subject, receiver) and any(later < earlier for earlier, later in pairwise(numbers)):
                faults.append(f"{receiver} got {subject} out of order")
        return faults


class Scene:
    """A site, two agents with clients, everybody's traffic, and who has been struck since."""

    def __init__(self, site: NatsSite) -> None:
        self.site, self.ledger, self.register = site, Ledger(), MemoryClients()
        self.agents: dict[str, Agent] = {}
        self.clients: dict[str, Any] = {}
        self.subscriptions: dict[str, Any] = {}
        self.struck: set[str] = set()  # Clients and brokers that are owed no more than what comes later.
        self.dead: set[str] = set()
        self.repeating: set[str] = set()  # Clients that may get a message twice.
        self.target = ""
        for ports in site.fleet.ports.values():
            ports.clients = self.register

    async def start_agent(self, name: str) -> None:
        brokers = {
            each: BrokerAddress(each, "127.0.0.1", server.client_port) for each, server in self.site.servers.items()
        }
        self.agents[name] = Agent(name, brokers, HOME)
        await self.agents[name].start("127.0.0.1", 0)

    async def connect(self, name: str, agent: str) -> None:
        import nats

        self.clients[name] = await nats.connect(f"nats://127.0.0.1:{self.agents[agent].port}", allow_reconnect=False)
        await self.listen(name, self.clients[name])

    async def listen(self, name: str, client: Any) -> None:
        self.subscriptions[name] = await client.subscribe("data.>", cb=partial(self.ledger.take, name))
        await client.subscribe("later.>", cb=partial(self.ledger.take, name))
        await client.subscribe("flood.>", cb=partial(self.ledger.take, name))
        await client.flush()

    async def begin(self) -> None:
        for broker, client in self.site.clients.items():
            await self.listen(broker, client)
        await self.site.fleet.all_want(3)
        for agent, names in (("web1", HIT), ("web2", OTHERS)):
            await self.start_agent(agent)
            for name in names:
                await self.connect(name, agent)
        await until(lambda: len(self.movable()) == 3 * len(HIT + OTHERS))
        await self.site.fleet.all_confirmed()

    def movable(self) -> list[str]:
        return [name for name, each in self.register.connected.items() if each.may_move]

    @property
    def everybody(self) -> dict[str, Any]:
        """The clients that live: those of agents, and one of each broker."""
        there = {name: each for name, each in (self.site.clients | self.clients).items() if name not in self.dead}
        return {name: each for name, each in there.items() if each.is_connected}

    async def publish(self, subject: str) -> None:
        for name, client in self.everybody.items():
            await client.publish(f"{subject}.{name}", self.ledger.next_number(f"{subject}.{name}"))

    async def publish_on(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.publish("data")
            await asyncio.sleep(PAUSE_S)

    # --- the plan ----------------------------------------------------------------------------------------------------

    async def move(self, target: str, moment: NoteKind | None, strike: Callable[[], Coroutine[Any, Any, None]]) -> Plan:
        """Move everybody from home by one plan, and strike at a moment of it; None: behind its end."""
        self.target, struck = target, asyncio.Event()
        striking: list[asyncio.Task[None]] = []

        def see(note: AgentNote) -> None:
            if note.kind is moment and not struck.is_set():
                struck.set()
                striking.append(asyncio.create_task(strike()))

        for broker in (HOME, target):
            self._watch(broker, see)
        moves = [ClientMove(name, HOME, target) for name in self.movable()]
        flushing = asyncio.create_task(self._flush_on())
        plan = await self.site.fleet.change_to(OTHER, moves=moves)
        flushing.cancel()
        if moment is None:
            await strike()
            return plan
        async with asyncio.timeout(60):
            await struck.wait()
            await asyncio.gather(*striking)
        return plan

    async def _flush_on(self) -> None:
        """Let nodes look at their clocks, as they do where they run."""
        while True:
            for node in list(self.site.fleet.nodes.values()):
                node.flush()
            await asyncio.sleep(0.2)

    def _watch(self, broker: str, see: Callable[[AgentNote], None]) -> None:
        line: Any = self.site.fleet.nodes[broker].connector.agents
        write, on_note = line.write, line.on_note

        def written(subscription: str, note: AgentNote) -> None:
            write(subscription, note)
            see(note)

        def noted(client: str, note: AgentNote) -> None:
            on_note(client, note)
            see(note)

        line.write, line.on_note = written, noted

    # --- afterwards --------------------------------------------------------------------------------------------------

    async def all_get_what_comes_later(self) -> None:
        """Publish until everybody gets what everybody publishes; from then on nothing is lost."""
        living = self.everybody

        def all_hear(count: int) -> bool:
            return all(
                len(self.ledger.came.get((f"later.{name}", receiver), ())) >= count
                for name in living
                for receiver in living
            )

        async with asyncio.timeout(100):
            while not all_hear(LATER):
                await self.publish("later")
                await asyncio.sleep(0.05)

    def complaints(self) -> list[str]:
        """Those who were not struck have everything, once and in order; nobody has anything twice."""
        whole = [name for name in (*BROKERS, *HIT, *OTHERS) if name not in self.struck]
        pairs = [(f"{subject}.{name}", each) for subject in ("data", "flood") for name in whole for each in whole]
        lost = [f"{pair[1]} lost {count} of {pair[0]}" for pair in pairs if (count := self.ledger.lost(*pair))]
        return lost + self.ledger.faults(
            lambda subject, by: {subject.partition(".")[2], by} <= {*whole}, self.repeating
        )

    async def leave(self) -> list[str]:
        """Let all clients of agents leave; return what nodes and the register keep of them."""
        for client in self.clients.values():
            await client.close()
        for agent in self.agents.values():
            await agent.close()

        def is_empty(node: Any) -> bool:
            beside, names = node.clients.agents, [*node.clients._subjects, *node.core.routing.interests.locals]
            return not (beside._subscriptions or beside._moving or [each for each in names if each.startswith("web")])

        def left_over() -> list[str]:
            here = self.register.connected.items()
            return [name for name, each in here if name.startswith("web") and each.home not in self.dead]

        living = {broker: node for broker, node in self.site.fleet.nodes.items() if broker not in self.dead}
        with suppress(TimeoutError):
            async with asyncio.timeout(LEFT_S_MAX):
                while not all(map(is_empty, living.values())) or left_over():
                    await asyncio.sleep(0.05)
        full = [f"{broker} keeps {vars(node.clients.agents)}" for broker, node in living.items() if not is_empty(node)]
        return [*full, *(f"{name} is registered" for name in left_over())]
