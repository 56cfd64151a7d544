"""The clients of a fleet: real ones, one connection for publishers and one for subscribers at each server.

In: what a workload asks of an overlay, at once. Out: messages with numbers to the servers, and the ledger's account of
what came back. A symbol's quotes are published under ``quotes.SYMBOL``; a subscription is to one such subject, as
servers know no prices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import simpy
import structlog

from regraft.producers.brokers.match_content import Content, Filter
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.real_fleet.broker_kinds import BrokerKind
from regraft.producers.real_fleet.client_ledger import ClientLedger
from regraft.producers.real_fleet.fleet_client import FleetClient

log = structlog.get_logger(__name__)

SUBJECT = "quotes."
WAITING_MAX = 20_000  # What waits to be done at one connection; beyond it notifications are not published, and counted.

Act = Callable[[], Awaitable[None]]


class Connection:
    """One connection to a server, on which things are done one after the other."""

    def __init__(self, client: FleetClient) -> None:
        self.client = client
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def waiting_count(self) -> int:
        """How much is still to be done."""
        return self._acts.qsize()

    def do(self, act: Act) -> None:
        """Do this when all before it is done."""
        self._acts.put_nowait(act)

    async def _work(self) -> None:
        while True:
            act = await self._acts.get()
            try:
                await act()
            except Exception as error:  # Whatever a client library raises: what was not done shows in the ledger.
                log.warning("client_failed", reason=str(error))

    async def close(self) -> None:
        """End the connection."""
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        await self.client.close()


class FleetClients:
    """Publishers and subscribers at the servers of a fleet, as a workload sees an overlay.

    ``env`` is the workload's clock, ``start`` where plans have put publishers; here these stay where they first came.
    What publishers would publish while they ``must_wait`` is not published, and counted: brokers hold nothing back.
    """

    def __init__(
        self,
        kind: BrokerKind,
        urls: Mapping[str, str],
        env: simpy.Environment,
        start: StartingPoint,
        now_ms: Callable[[], float],
    ) -> None:
        self.env, self.start = env, start
        self.brokers: Mapping[str, object] = urls
        self.listeners: list[Any] = []
        self.ledger = ClientLedger()
        self.counts: Counter[str] = Counter()
        self.must_wait = False
        self._kind, self._urls, self._now_ms = kind, urls, now_ms
        self._publishing: dict[str, Connection] = {}
        self._subscribing: dict[str, Connection] = {}
        self._home_of: dict[str, str] = {}
        self._subscriptions: dict[str, tuple[str, Any]] = {}  # Name -> broker, and what the client library has of it.

    async def connect(self) -> None:
        """Connect to all servers."""
        for broker, url in self._urls.items():
            for purpose in (self._publishing, self._subscribing):
                purpose[broker] = Connection(await self._kind.connect(url))

    # --- what the workload asks --------------------------------------------------------------------------------------

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        """Let a publisher come; it may publish at once."""
        self._home_of[publisher] = home
        self.ledger.add_publisher(publisher, home)
        for listener in self.listeners:
            asyncio.get_running_loop().call_soon(listener.on_may_publish, publisher)

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        """Publish the next notification of a publisher, as a message of that size at least."""
        connection = self._publishing[self._home_of[publisher]]
        if self.must_wait or connection.waiting_count >= WAITING_MAX:
            self.counts["not_published"] += 1
            return
        number = self.ledger.publish(publisher, self._now_ms())
        payload = f"{number} {content['date']} {content['close']}".encode().ljust(size_bytes)

        async def act() -> None:
            await connection.client.publish(SUBJECT + publisher, payload, publisher)

        connection.do(act)

    def subscribe(self, subscription: str, home: str, filter_: Filter) -> None:
        """Let a client at a server want a publisher's notifications, whatever else the filter asks for."""
        publisher = next(str(predicate.value) for predicate in filter_ if predicate.attribute == "symbol")
        self.ledger.begin(subscription, publisher, home, self._now_ms())
        connection = self._subscribing[home]

        def take(payload: bytes) -> None:
            self.ledger.hand_over(subscription, int(payload.split(b" ", 1)[0]), self._now_ms())

        async def act() -> None:
            found = await connection.client.subscribe(SUBJECT + publisher, take)
            self._subscriptions[subscription] = home, found

        connection.do(act)

    def cancel(self, subscription: str) -> None:
        """Let a client leave, once it has what was published until now."""
        self.ledger.leave(subscription, self._now_ms())

    # --- what the fleet asks -----------------------------------------------------------------------------------------

    def note_confirmed(self, broker: str, subject: str, is_confirmed: bool) -> None:
        """Note that the overlay carries a subject to a broker from now on, or no more."""
        self.ledger.note_confirmed(subject.removeprefix(SUBJECT), broker, self._now_ms() if is_confirmed else None)

    def let_leave(self) -> None:
        """Unsubscribe those who leave and have all that they are owed, and close their accounts."""
        now_ms = self._now_ms()
        for name in self.ledger.leaving():
            if name in self._subscriptions and self.ledger.may_end(name, now_ms):
                self.ledger.end(name, now_ms)  # At once: what comes until the server has heard of it changes nothing.
                home, found = self._subscriptions.pop(name)
                self._subscribing[home].do(partial(self._end, name, self._subscribing[home], found))

    async def _end(self, subscription: str, connection: Connection, found: Any) -> None:
        await connection.client.unsubscribe(found)
        self.ledger.forget(subscription)

    def status(self) -> dict[str, Any]:
        """Return what the status file says of clients."""
        connections = [*self._publishing.values(), *self._subscribing.values()]
        return {
            "subscriptions": len(self.ledger),
            "not_published": self.counts["not_published"],
            "client_requests_waiting": sum(connection.waiting_count for connection in connections),
        }

    async def close(self) -> None:
        """End all connections."""
        for connection in (*self._publishing.values(), *self._subscribing.values()):
            await connection.close()
