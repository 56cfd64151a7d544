"""Whatever dies or is cut while clients of real NATS servers move: nobody else loses, repeats or reorders anything.

A fault strikes at one moment of a plan that moves the clients of two agents and exchanges links. Afterwards the plan is
over, what is published from then on reaches all that live, and once all clients have left, nodes and the register of
clients keep nothing of them. ``REGRAFT_AGENT_CHAOS=all`` tests each fault at each moment, which takes some minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest

from regraft.overlay.overlay_configuration import BrokerChange
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.schemas.agent_note import NoteKind
from regraft.schemas.plan import PlanPhase
from tests.producers.nodes.agent_scene import HIT, HOME, OTHERS, Scene
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.nats_site import nats_site
from tests.producers.nodes.test_agents_beside_nats import BROKERS, DELAYS_S, LINE

pytestmark = pytest.mark.stack

MOMENTS = (NoteKind.MOVE, NoteKind.READY, NoteKind.SWITCHED, NoteKind.DRAINED)
FLOOD = 500


class Faults(Scene):
    """What may happen to a scene; each notes who is struck by it."""

    async def kill_agent(self) -> None:
        """The agent's sockets end as if its process had been killed; it restarts under the same name."""
        self.struck.update(HIT)
        self.dead.update(HIT)
        self.agents["web1"].abort()
        await self.start_agent("web1")
        await self.connect("c9", "web1")
        self.struck.add("c9")

    async def kill_old_broker(self) -> None:
        self._strike_all(HOME)
        self.site.servers[HOME].stop()

    async def kill_next_broker(self) -> None:
        self._strike_all(self.target)
        self.site.servers[self.target].stop()

    def _strike_all(self, broker: str) -> None:
        self.struck.update((*HIT, *OTHERS, broker))
        self.dead.add(broker)

    async def cut_agent_from_old(self) -> None:
        self._cut(HOME)

    async def cut_agent_from_next(self) -> None:
        self._cut(self.target)

    def _cut(self, broker: str) -> None:
        self.struck.update(HIT)
        for session in self.agents["web1"].sessions:
            upstream = session.homes.upstreams.get(broker)
            if upstream is not None and upstream.transport is not None:
                upstream.transport.abort()

    async def cut_node_from_old(self) -> None:
        self._cut_leaf(HOME)

    async def cut_node_from_next(self) -> None:
        self._cut_leaf(self.target)

    def _cut_leaf(self, broker: str) -> None:
        self.repeating.update((*HIT, *OTHERS))
        self.struck.update((*HIT, *OTHERS, broker))
        leaf = self.site.fleet.nodes[broker].connector._leaf  # type: ignore[attr-defined]
        if leaf is not None:
            leaf.end()

    async def kill_old_node(self) -> None:
        await self._kill_node(HOME)

    async def kill_next_node(self) -> None:
        await self._kill_node(self.target)

    async def kill_agent_and_old_node(self) -> None:
        await asyncio.gather(self.kill_agent(), self.kill_old_node())

    async def kill_agent_and_next_node(self) -> None:
        await asyncio.gather(self.kill_agent(), self.kill_next_node())

    async def _kill_node(self, broker: str) -> None:
        """The overlay falls apart until a plan repairs it; the node comes again, and its neighbours notice."""
        self.struck.update((*BROKERS, *HIT, *OTHERS))
        self.restarted = broker
        gone = [name for name, each in self.register.connected.items() if each.home == broker]
        for name in gone:  # What a node leaves in the register when it dies is not its agents' concern.
            self.register.remove_client(name)
        await self.site.fleet.kill(broker)
        connector = NatsConnector(self.site.servers[broker].leaf_url, broker)
        await self.site.fleet.begin_node(broker, connector, is_outside=True)
        self.site.fleet.ports[broker].clients = self.register

    async def leave_early(self) -> None:
        self.struck.add("c0")
        await self.clients["c0"].close()

    async def leave_and_return(self) -> None:
        self.struck.add("c0")
        await self.clients["c0"].close()
        await self.connect("c0", "web1")

    async def unsubscribe(self) -> None:
        self.struck.add("c0")
        await self.subscriptions["c0"].unsubscribe()

    async def subscribe_again(self) -> None:
        """A second subscription, and the first one again under another number."""
        await self.clients["c0"].subscribe("more.>")
        await self.clients["c0"].flush()

    async def flood(self) -> None:
        for _ in range(FLOOD):
            await self.clients["c0"].publish("flood.c0", self.ledger.next_number("flood.c0"))
        await self.clients["c0"].flush()

    async def nothing(self) -> None:
        """The plan alone."""

    # --- after a node has died -----------------------------------------------------------------------------------

    async def mend(self) -> None:
        """Let a plan repair the overlay, and another one admit the node that has come again."""
        broker, fleet = self.restarted, self.site.fleet
        left = tuple(name for name in BROKERS if name != broker)
        links = list(pairwise(left))
        if broker in fleet.configuration.brokers:
            await fleet.change_to(links, left, BrokerChange(lost=frozenset({broker})))
        await fleet.install(broker)
        plan = await fleet.change_to([*links, (left[0], broker)], BROKERS, BrokerChange(joined=frozenset({broker})))
        assert plan.phase is PlanPhase.VERIFYING

    restarted = ""


FAULTS = [
    "nothing", "kill_agent", "kill_old_broker", "kill_next_broker", "cut_agent_from_old", "cut_agent_from_next",
    "cut_node_from_old", "cut_node_from_next", "kill_old_node", "kill_next_node", "leave_early", "leave_and_return",
    "unsubscribe", "subscribe_again", "flood", "kill_agent_and_old_node", "kill_agent_and_next_node",
]  # fmt: skip


def cases() -> list[tuple[str, NoteKind, str]]:
    """Return faults, moments and targets: by default one moment for each fault, always the same."""
    rng = random.Random(47)
    every = [(*each, rng.choice(("b01", "b03", "b04"))) for each in product(FAULTS, MOMENTS)]
    if os.environ.get("REGRAFT_AGENT_CHAOS") == "all":
        return every
    return [rng.choice([each for each in every if each[0] == fault]) for fault in FAULTS]


@pytest.mark.parametrize(("fault", "moment", "target"), cases())
def test_a_fault_strikes_nobody_else(fault: str, moment: NoteKind, target: str, tmp_path: Path) -> None:
    """Those who are not struck get everything once and in order; all that live are served, and nothing is left."""
    needs_nats()
    asyncio.run(_strike(tmp_path, fault, moment, target))


async def _strike(directory: Path, fault: str, moment: NoteKind, target: str) -> None:
    async with nats_site(directory, LINE, DELAYS_S) as site, asyncio.timeout(110):
        scene, stop = Faults(site), asyncio.Event()
        await scene.begin()
        publishing = asyncio.create_task(scene.publish_on(stop))
        await asyncio.sleep(0.2)
        is_at_rest = moment is NoteKind.DRAINED and fault.endswith("_node")  # Nobody here declares it dead.
        plan = await scene.move(target, None if is_at_rest else moment, partial(getattr(scene, fault)))
        assert plan.phase in (PlanPhase.VERIFYING, PlanPhase.ABORTED)
        if scene.restarted:
            await scene.mend()
        await asyncio.sleep(0.2)
        stop.set()
        await publishing
        await scene.all_get_what_comes_later()
        assert not scene.complaints()
        assert not await scene.leave()
        assert not site.fleet.failures
