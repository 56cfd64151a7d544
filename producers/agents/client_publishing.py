"""Where a client publishes: at the broker to which its subscriptions have moved, behind what it published.

Where it publishes much, its messages name it, once all brokers know it as a publisher: planners then see what it costs
where. When it moves, it waits while the agent sends a message through the overlay, from the old home to the next one.
On a tree with links that keep order, whatever it publishes at the next home after that message has come is behind what
it published before, everywhere: a message that goes to both homes' sides passed the branch before the agent's did.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import structlog

from regraft.producers.agents.agent_session import Session, Upstream
from regraft.producers.agents.client_homes import ClientHomes
from regraft.schemas.agent_note import AgentNote, NoteKind

log = structlog.get_logger(__name__)

FLUSH_S_MAX = 5.0  # A client waits no longer than this.
WAY_S_MAX = 30.0  # Until the overlay knows the way; the client does not wait for that.
REPEAT_S = 0.1  # Until the overlay knows the subscription, messages to it go nowhere.
HOLD = "publishing elsewhere"
NAMED_AFTER = 100  # Messages: to name each client that ever publishes would make a publisher of each.
NAMED_S_MAX = 10.0  # A client that has moved continues without a name if the next node is slower.


class ClientPublishing:
    """Where one client publishes: its session's home."""

    def __init__(self, session: Session, homes: ClientHomes[Any]) -> None:
        self._session, self._homes = session, homes
        self._is_moving, self._mark = False, 0
        self._flushed: asyncio.Event | None = None
        self._named: dict[str, asyncio.Event] = {}  # By broker whose node has been asked; set once it has answered.
        self._count, self._ask_at = 0, NAMED_AFTER

    def note_published(self) -> bool:
        """Note that the client publishes a message at its home; return True if the message should name it."""
        self._count += 1
        if self._count == self._ask_at and not self._session.client.stays_because:
            self._ask(self._homes.home)
            self._ask_at += self._count
        return self.is_named(self._homes.home)

    def is_named(self, broker: str) -> bool:
        """Return True if all brokers know the client as a publisher at this one."""
        named = self._named.get(broker)
        return named is not None and named.is_set()

    def _ask(self, broker: str) -> asyncio.Event:
        """Ask the node of a broker to make the client known as a publisher; return what is set once it is."""
        named = self._named.setdefault(broker, asyncio.Event())
        if not named.is_set():
            self._session.write_note(broker, AgentNote(NoteKind.PUBLISHES))
        return named

    def note_named(self, broker: str) -> None:
        """Note that the node of a broker has made the client known."""
        if broker in self._named:
            self._named[broker].set()

    def lose(self, broker: str) -> None:
        """Note that the connection to a broker is gone."""
        self._named.pop(broker, None)
        self._ask_at = self._count + NAMED_AFTER

    def follow(self) -> None:
        """Publish where subscriptions have moved; those that the client has made meanwhile may still be elsewhere."""
        session, target = self._session, self._homes.subscribing
        if not self._is_moving and not session.client.stays_because and target != self._homes.home:
            self._is_moving = True
            session.run(self._move(target))

    async def _move(self, broker: str) -> None:
        session = self._session
        old, new = self._homes.upstreams.get(self._homes.home), self._homes.upstreams.get(broker)
        try:
            if new is None:
                return
            is_moved = old is None or not session.client.has_published or await self._move_name(old, new)
            if is_moved and broker in self._homes.upstreams:
                self._homes.home = broker
                session.counts["publishers_moved"] += session.client.has_published
            else:
                session.counts["publishers_not_moved"] += 1
                log.warning("publisher_not_moved", client=session.client.name, to=broker)
        finally:
            self._is_moving = False
            session.release(HOLD)
            if self._homes.home == broker:
                self._homes.leave_unused()

    async def _move_name(self, old: Upstream, new: Upstream) -> bool:
        """Let the client be known at its next home if it is at the old one; return True once it may publish there."""
        if self.is_named(old.broker):
            with suppress(TimeoutError):
                async with asyncio.timeout(NAMED_S_MAX):
                    await self._ask(new.broker).wait()
        return await self._flush(old, new)

    async def _flush(self, old: Upstream, new: Upstream) -> bool:
        """Return True once a message behind everything published has come to the next home through the overlay."""
        self._flushed = asyncio.Event()
        self._session.want_flush(new, is_wanted=True)
        try:
            if not await self._comes(old, WAY_S_MAX):
                return False
            self._session.hold(HOLD)
            self._flushed.clear()
            self._mark += 1  # Only what is published from here on counts.
            return await self._comes(old, FLUSH_S_MAX)
        finally:
            self._flushed = None
            self._session.want_flush(new, is_wanted=False)

    def note_flush(self, payload: bytes) -> None:
        """Note that what the agent has published has come."""
        if self._flushed is not None and payload == b"%d" % self._mark:
            self._flushed.set()

    async def _comes(self, old: Upstream, wait_s_max: float) -> bool:
        assert self._flushed is not None
        for _ in range(int(wait_s_max / REPEAT_S)):
            self._session.send_flush(old, self._mark)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S):
                    await self._flushed.wait()
            if self._flushed.is_set():
                return True
        return False
