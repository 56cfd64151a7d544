"""What sessions of all protocols share: who waits for whom, work beside the client, and the end of both."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Generic, cast

import structlog

from regraft.producers.agents.agent_session import AnUpstream, Session
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_homes import ClientHomes
from regraft.producers.agents.client_moves import ClientMoves
from regraft.producers.agents.client_publishing import ClientPublishing
from regraft.schemas.agent_note import AgentNote, NoteKind, note_of
from regraft.schemas.stay_reasons import StayReason

log = structlog.get_logger(__name__)

REASON_LENGTH_MAX = 500


class ClientSession(Session, asyncio.Protocol, Generic[AnUpstream]):
    """One client. ``brokers`` are all that it may be taken to, ``home`` where it begins; it encrypts with ``tls``."""

    is_tls_first = True  # The client encrypts before it says anything.
    refusal = b""  # What a client that is one too many gets.

    def __init__(
        self, name: str, brokers: Mapping[str, BrokerAddress], home: str, counts: Counter[str],
        on_end: Callable[[Any], None], tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self.name, self.counts = name, counts
        self.homes: ClientHomes[AnUpstream] = ClientHomes(self, brokers, home)
        self.moves: ClientMoves = ClientMoves(self, self.homes)
        self.publishing: ClientPublishing = ClientPublishing(self, self.homes)
        self._on_end, self._tls = on_end, tls
        self._transport: asyncio.Transport | None = None
        self._holds: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.present: Collection[ClientSession[Any]] = ()  # All clients of the agent.
        self._unread: set[str] = set()  # Why the client takes no more at present.
        self.is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the client's connection, and begin."""
        self._transport = cast(asyncio.Transport, transport)
        self.counts["clients_came"] += 1
        self.begin()

    def begin(self) -> None:
        """Begin with a client that has just connected."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """End the client's connections to brokers with it."""
        self.end("")

    def pause_writing(self) -> None:
        """Read from brokers no faster than the client does."""
        self.note_slow("socket", is_slow=True)

    def resume_writing(self) -> None:
        """Read from brokers again."""
        self.note_slow("socket", is_slow=False)

    def note_slow(self, reason: str, *, is_slow: bool) -> None:
        """Read nothing from brokers while there is a reason for which the client takes no more."""
        (self._unread.add if is_slow else self._unread.discard)(reason)
        for transport in self.broker_transports():
            if self._unread:
                transport.pause_reading()
            elif not transport.is_closing():
                transport.resume_reading()

    @property
    def reads_nothing(self) -> bool:
        """Return True while nothing is read from brokers, since the client takes no more."""
        return bool(self._unread)

    def broker_transports(self) -> list[asyncio.Transport]:
        """Return the connections by which messages for the client come."""
        return [each.transport for each in self.homes.upstreams.values() if each.transport is not None]

    def note_connected(self, upstream: AnUpstream) -> None:
        """Read from one more broker, too, no faster than the client does."""
        if self._unread and upstream.transport is not None:
            upstream.transport.pause_reading()

    def lose_upstream(self, upstream: AnUpstream, reason: str) -> None:
        """Note that a broker is gone."""
        self.homes.lose(upstream, reason)

    def hold_back(self, upstream: AnUpstream, *, is_full: bool) -> None:
        """Read from the client no faster than a broker does; that ends with the connection (:class:`ClientHomes`)."""
        if self.homes.upstreams.get(upstream.broker) is not upstream:
            return  # There may be a later connection to the same broker.
        if is_full:
            self.hold(f"slow {upstream.broker}")
        else:
            self.release(f"slow {upstream.broker}")

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def run(self, work: Coroutine[Any, Any, None] | Awaitable[None]) -> None:
        """Run something beside the client, at most as long as it lasts."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)

    def _note_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(cast("asyncio.Task[Any]", task))
        if not task.cancelled() and task.exception() is not None:
            log.error("client_failed", client=self.name, error=repr(task.exception()))
            self.end("the agent has failed here")

    def stay(self, reason: StayReason, detail: str = "") -> None:
        """Note that no plan can move the client, and let nodes know that may have it as one that may."""
        if self.client.stays_because is not None:
            return
        self.client.stays_because = reason
        log.info("client_stays", client=self.name, broker=self.homes.home, reason=reason, detail=detail)
        self.counts["clients_that_stay"] += 1
        for broker, upstream in self.homes.upstreams.items():
            if upstream.is_ready:
                self._say_staying(broker)

    def _say_staying(self, broker: str) -> None:
        if (reason := self.client.stays_because) is not None:
            self.write_note(broker, AgentNote(NoteKind.STAYS, reason=reason.label))

    def take_note(self, upstream: AnUpstream, payload: bytes) -> None:
        """Handle what a node says."""
        note = note_of(payload)
        if note is None:
            return
        match note.kind:
            case NoteKind.NAMED:
                self.publishing.note_named(upstream.broker)
            case NoteKind.WHO:
                self.introduce_all(upstream)
            case _:
                if note.kind is NoteKind.HOME:  # The node may have begun again, and not know.
                    self._say_staying(upstream.broker)
                self.moves.take_note(upstream, note)

    def introduce_all(self, upstream: AnUpstream) -> None:
        """Let a node that has begun again know whose the subscriptions at its broker are, if that does not show it."""

    def end_unreached(self, reasons: Sequence[str]) -> None:
        """End the client: no broker can be reached, for these reasons."""
        self.end(f"no broker can be reached: {'; '.join(reasons)[:REASON_LENGTH_MAX]}")

    def end(self, reason: str) -> None:
        """End the client and all its connections."""
        if self.is_over:
            return
        self.is_over = True
        self.counts["clients_left"] += 1
        if reason:
            log.warning("client_ended", client=self.name, reason=reason)
        self.leave_brokers()
        for task in self._tasks:
            task.cancel()
        if self._transport is not None:
            self._transport.close()
        self._on_end(self)

    def abort(self) -> None:
        """End the client and all its connections at once: what waits in them is lost."""
        for transport in (*self.broker_transports(), *([self._transport] if self._transport else [])):
            transport.abort()
        self.end("")

    def leave_brokers(self) -> None:
        """End all connections to brokers."""
        for upstream in self.homes.upstreams.values():
            upstream.close()
