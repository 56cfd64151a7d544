"""The clients of a fleet: real ones, one connection for publishers and one for subscribers at each server.

In: a workload's requests, which return at once. Out: numbered messages to the servers, and the ledger's account of what
arrived. A symbol's quotes are published under ``quotes.SYMBOL``; a subscription is to one such subject, because servers
cannot filter by price. Where clients can have agents, each publisher is a client of its own beside one, and so are two
groups of three of the subscribers: these move by plans.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from zlib import crc32

import simpy
import structlog

from regraft.infra.process.end_tasks import end_tasks
from regraft.producers.brokers.match_content import Content, Filter
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.nodes.connectors.groups_once import parts_of
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.producers.real_fleet.broker_kinds import BrokerKind
from regraft.producers.real_fleet.client_ledger import ClientLedger
from regraft.producers.real_fleet.fleet_agents import Delay, FleetAgents
from regraft.producers.real_fleet.fleet_client import FleetClient

log = structlog.get_logger(__name__)

SUBJECT = "quotes."
GROUPS = 3  # Of subscribers at each server that has agents: the first has none.
WAITING_MAX = 20_000  # Actions that wait at a connection; beyond this, notifications are not published, but counted.

Act = Callable[[], Awaitable[None]]


class Connection:
    """One connection to a server, or an agent; ``name`` is the client's. Actions are performed one after the other."""

    def __init__(self, name: str, connect: Awaitable[FleetClient]) -> None:
        self.name = name
        self._connect = asyncio.ensure_future(connect)
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def waiting_count(self) -> int:
        """How many actions wait."""
        return self._acts.qsize()

    async def client(self) -> FleetClient:
        """Return the client once it is connected; raise what its library raises."""
        return await self._connect

    def do(self, act: Act) -> None:
        """Perform an action after all earlier ones."""
        self._acts.put_nowait(act)

    async def _work(self) -> None:
        while True:
            act = await self._acts.get()
            try:
                await act()
            except Exception as error:  # Whatever a client library raises: the ledger shows what is missing.
                log.warning("client_failed", reason=str(error))

    async def close(self) -> None:
        """End the connection."""
        await end_tasks([self._worker])
        with suppress(Exception):  # It never connected, which was logged.
            await (await self._connect).close()


class FleetClients:
    """Publishers and subscribers at the servers of a fleet, as a workload sees an overlay.

    ``env`` is the workload's clock, ``start`` where plans have put publishers; here they begin at their first home.
    ``delay_ms`` is the delay between the places of two brokers; clients of agents at ``mobile`` brokers are mobile.
    While publishers ``must_wait``, their notifications are counted instead of published: brokers hold nothing back.
    """

    def __init__(
        self,
        kind: BrokerKind,
        urls: Mapping[str, str],
        env: simpy.Environment,
        start: StartingPoint,
        now_ms: Callable[[], float],
        delay_ms: Delay = lambda _one, _other: 0.0,
        mobile: Collection[str] = (),
    ) -> None:
        self.env, self.start = env, start
        self.brokers: Mapping[str, object] = urls
        self.listeners: list[Any] = []
        self.ledger = ClientLedger()
        self.counts: Counter[str] = Counter()
        self.must_wait = False
        self._kind, self._urls, self._now_ms = kind, urls, now_ms
        self.agents: FleetAgents | None = None
        if kind.session_of is not None:
            self.agents = FleetAgents(urls, kind, delay_ms, mobile)
        self._publishing: dict[str, Connection] = {}  # By broker or, beside agents, by publisher.
        self._subscribing: dict[tuple[str, int], Connection] = {}  # By broker and group.
        self._home_of: dict[str, str] = {}
        self._subscriptions: dict[str, tuple[Connection, Any]] = {}  # Name -> connection, and the client's handle.
        # Publishers and subscriptions beside agents -> client, and the subject that a subscription is to.
        self._beside: dict[str, tuple[str, str]] = {}

    async def connect(self) -> None:
        """Connect to all servers, and start agents."""
        agents = self.agents
        if agents is not None:
            await agents.start()
        for broker, url in self._urls.items():
            if agents is None:
                self._publishing[broker] = Connection(broker, self._kind.connect(url, broker))
            for group in range(1 if agents is None else GROUPS):
                name = f"{broker} {group}"
                connect = self._kind.connect(url, name) if agents is None or not group else agents.connect(name, broker)
                self._subscribing[broker, group] = Connection(name, connect)
        for connection in (*self._publishing.values(), *self._subscribing.values()):
            await connection.client()

    # --- called by the workload --------------------------------------------------------------------------------------

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        """Add a publisher; it may publish at once."""
        self._home_of[publisher] = home
        self.ledger.add_publisher(publisher, home)
        if self.agents is not None:
            self._publishing[publisher] = Connection(publisher, self.agents.connect(publisher, home))
            self._beside[publisher] = publisher, ""
        for listener in self.listeners:
            asyncio.get_running_loop().call_soon(listener.on_may_publish, publisher)

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Publish the next notification of a publisher, as a message of at least ``size_bytes``."""
        connection = self._publishing[self._home_of[publisher] if self.agents is None else publisher]
        if self.must_wait or connection.waiting_count >= WAITING_MAX:
            self.counts["not_published"] += 1
            return
        number = self.ledger.publish(publisher, self._now_ms())
        payload = f"{number} {content['date']} {content['close']}".encode().ljust(size_bytes)

        async def act() -> None:
            name = publisher if self.agents is None else ""  # An agent names it.
            await (await connection.client()).publish(SUBJECT + publisher, payload, name)

        connection.do(act)

    def subscribe(self, subscription: str, home: str, filter_: Filter) -> None:
        """Subscribe a client at a server to a publisher's notifications; the filter's other conditions are ignored."""
        publisher = next(str(predicate.value) for predicate in filter_ if predicate.attribute == "symbol")
        self.ledger.begin(subscription, publisher, home, self._now_ms())
        group = crc32(subscription.encode()) % (1 if self.agents is None else GROUPS)
        connection = self._subscribing[home, group]
        if group:
            self._beside[subscription] = connection.name, SUBJECT + publisher

        def take(payload: bytes) -> None:
            self.ledger.hand_over(subscription, int(payload.split(b" ", 1)[0]), self._now_ms())

        async def act() -> None:
            subscribed = await (await connection.client()).subscribe(SUBJECT + publisher, take)
            self._subscriptions[subscription] = connection, subscribed

        connection.do(act)

    def cancel(self, subscription: str) -> None:
        """Let a client leave once it has received what was published so far."""
        self.ledger.leave(subscription, self._now_ms())

    # --- called by the fleet -----------------------------------------------------------------------------------------

    def note_confirmed(self, broker: str, subject: str, is_confirmed: bool) -> None:
        """Note that the overlay carries a subject to a broker from now on, or no longer does."""
        publisher = parts_of(subject)[0].removeprefix(SUBJECT)
        self.ledger.note_confirmed(publisher, broker, self._now_ms() if is_confirmed else None)

    def note_detour(self, broker: str, notification: CarriedNotification) -> None:
        """Note that a notification comes to a broker around congested links."""
        number = int(notification.payload.split(b" ", 1)[0])
        self.ledger.note_detour(notification.subject.removeprefix(SUBJECT), number, broker)

    def _note_home(self, name: str) -> None:
        assert self.agents is not None
        self.ledger.note_moved(name, self.agents.home_of(*self._beside[name]), self._now_ms())

    def follow_agents(self) -> None:
        """Note in the ledger where clients beside agents are by now."""
        for name in self._beside:
            self._note_home(name)

    def is_beside(self, broker: str, name: str) -> bool:
        """Return True if a publisher or subscription is beside the agent at a broker."""
        return self.agents is not None and self.agents.broker_of(self._beside.get(name, ("", ""))[0]) == broker

    def end_leaving(self) -> None:
        """Unsubscribe leaving clients that have all they are owed, and close their accounts."""
        now_ms = self._now_ms()
        for name in self.ledger.leaving():
            if name in self._subscriptions and self.ledger.may_end(name, now_ms):
                self.ledger.end(name, now_ms)  # Now: what arrives before the server unsubscribes is concurrent.
                connection, subscription = self._subscriptions.pop(name)
                self._beside.pop(name, None)
                connection.do(partial(self._end, name, connection, subscription))

    async def _end(self, subscription: str, connection: Connection, ended: Any) -> None:
        await (await connection.client()).unsubscribe(ended)
        self.ledger.forget(subscription)

    def status(self) -> dict[str, Any]:
        """Return the status file's figures on clients."""
        connections = [*self._publishing.values(), *self._subscribing.values()]
        moved = Counter[str]() if self.agents is None else self.agents.counts()
        return {
            "subscriptions": len(self.ledger),
            "subscriptions_moved": moved["subscriptions_moved"],
            "publishers_moved": moved["publishers_moved"],
            "not_published": self.counts["not_published"],
            "client_requests_waiting": sum(connection.waiting_count for connection in connections),
        }

    async def close(self) -> None:
        """End all connections."""
        for connection in (*self._publishing.values(), *self._subscribing.values()):
            await connection.close()
        if self.agents is not None:
            await self.agents.close()
