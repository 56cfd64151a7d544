"""Make nodes and agents of a fleet die and come back, and links slow or cut, by an outage schedule."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from regraft.producers.emulator.outage_schedule import Chaos, Outage, OutageKind, random_outages
from regraft.producers.emulator.play_outages import OUTAGE_TEXTS
from regraft.producers.real_fleet.client_ledger import AgentDeath, LinkOutage
from regraft.producers.real_fleet.fleet_agents import FleetAgents
from regraft.producers.real_fleet.fleet_clients import FleetClients
from regraft.producers.real_fleet.fleet_nodes import FleetNodes

log = structlog.get_logger(__name__)

NOTES_KEPT_MAX = 1_000


class FleetOutages:
    """The outages of one run. Nodes share a process, so none can be suspended alone."""

    def __init__(
        self,
        nodes: FleetNodes,
        clients: FleetClients,
        planned: Sequence[Outage],
        chaos: Chaos | None,
        rng: random.Random,
        now_ms: Callable[[], float],
    ) -> None:
        self._nodes, self._clients, self._now_ms, self._rng = nodes, clients, now_ms, rng
        self._ledger = clients.ledger
        self._due = sorted(planned, key=lambda outage: outage.at_s)
        self._random = iter(()) if chaos is None else random_outages(chaos, nodes.brokers, nodes.links(), rng)
        self._next_random: Outage | None = next(self._random, None)
        self._dead_max = len(nodes.brokers) if chaos is None else int(chaos.down_share_max * len(nodes.brokers))
        self._running: list[tuple[float, Outage, LinkOutage | None]] = []
        self._dead: set[str] = set()
        self._dead_agents: set[str] = set()  # By broker.
        self._counts: Counter[str] = Counter()
        self._notes: deque[tuple[int, str]] = deque(maxlen=NOTES_KEPT_MAX)

    async def act(self, elapsed_s: float) -> None:
        """Begin and end the outages that are due by ``elapsed_s``."""
        for one in [one for one in self._running if one[0] <= elapsed_s]:
            self._running.remove(one)
            await self._end(*one[1:])
        while self._due and self._due[0].at_s <= elapsed_s:
            await self._begin(self._due.pop(0))
        while self._next_random is not None and self._next_random.at_s <= elapsed_s:
            outage, self._next_random = self._next_random, next(self._random, None)
            if outage.kind.is_of_link:  # Of the current overlay, not the initial one.
                outage = replace(outage, targets=self._rng.choice(self._nodes.links()))
            if outage.kind is not OutageKind.DEATH or len(self._dead) < self._dead_max:
                await self._begin(outage)

    async def end_all(self) -> None:
        """Restore links and dead nodes, and begin no further outages."""
        self._due, self._next_random = [], None
        for _, outage, link in self._running:
            await self._end(outage, link)
        self._running = []

    async def _begin(self, outage: Outage) -> None:
        link: LinkOutage | None = None
        if outage.kind.is_of_link:
            link = LinkOutage(self._now_ms())
            self._ledger.link_outages.append(link)
            self._nodes.disturb(outage.targets, factor=None if outage.kind is OutageKind.CUT else outage.factor)
        else:
            dead = self._dead_agents if outage.kind is OutageKind.AGENT else self._dead
            outage = replace(outage, targets=tuple(broker for broker in outage.targets if broker not in dead))
            if not outage.targets:
                return
            dead.update(outage.targets)
            for broker in outage.targets:
                await (self._kill_agent(broker) if outage.kind is OutageKind.AGENT else self._kill_node(broker))
        self._counts[outage.kind] += 1
        self._running.append((outage.at_s + outage.for_s, outage, link))
        self._note(outage, OUTAGE_TEXTS[outage.kind][0])

    async def _kill_node(self, broker: str) -> None:
        death = await self._nodes.kill(broker)
        death.held_since_ms = min(
            (link.at_ms for _, known, link in self._running if link is not None and broker in known.targets),
            default=math.inf,
        )
        self._ledger.deaths.append(death)

    async def _kill_agent(self, broker: str) -> None:
        self._agents.kill(broker)
        is_beside = partial(self._clients.is_beside, broker)
        self._ledger.agent_deaths.append(AgentDeath(broker, is_beside, self._now_ms()))

    @property
    def _agents(self) -> FleetAgents:
        assert self._clients.agents is not None  # Settings refuse such outages where clients have none.
        return self._clients.agents

    async def _end(self, outage: Outage, link: LinkOutage | None) -> None:
        if link is not None:
            self._nodes.disturb(outage.targets, factor=1.0)
            link.until_ms = self._now_ms()
        elif outage.kind is OutageKind.AGENT:
            for broker in outage.targets:
                await self._agents.restart(broker)
                self._dead_agents.discard(broker)
        else:
            for broker in outage.targets:
                await self._nodes.begin_node(broker, is_outside=True)
                self._dead.discard(broker)
        self._note(outage, OUTAGE_TEXTS[outage.kind][1])

    def watch(self) -> None:
        """Note in the ledger which deaths are repaired, and which brokers and agents are back with their clients."""
        now_ms = self._now_ms()
        for death in self._ledger.deaths:
            node = self._nodes.nodes.get(death.broker)
            if death.returned_ms > now_ms and node is not None and node.core.takes_clients:
                death.returned_ms = now_ms
            if death.repaired_ms > now_ms and (death.returned_ms <= now_ms or self._nodes.is_repaired(death.broker)):
                death.repaired_ms = now_ms
        for gone in self._ledger.agent_deaths:
            is_back = gone.broker not in self._dead_agents and self._agents.has_all(gone.broker)
            if is_back and gone.returned_ms > now_ms:
                gone.returned_ms = now_ms

    def status(self) -> dict[str, Any]:
        """Return the status file's figures on outages."""
        return {
            "outages": dict(self._counts),
            "brokers_dead": len(self._dead),
            "brokers_suspended": 0,
            "outage_notes": [list(note) for note in self._notes],
        }

    def _note(self, outage: Outage, what: str) -> None:
        text = f"{', '.join(outage.targets)}: {what}"
        self._notes.append((int(self._now_ms()), text))
        log.info("outage", what=text)
