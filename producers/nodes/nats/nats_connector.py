"""The connector to a NATS server: a leaf link, over which the server reports what its clients want and publish.

In: the address of the server's leaf port. Out: interest and messages. Bytes belong to
:mod:`producers.nodes.nats.nats_protocol`.

While the server is away, its clients' interest stays as it was: the server reports interest again when it is back, and
what it does not report has ended. Messages to be handed over meanwhile are dropped and counted, as with any core NATS
server.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import structlog

from regraft.producers.nodes.connectors.agent_line import ASKED, AgentLine
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage, NoteLine
from regraft.producers.nodes.connectors.connector_addresses import ConnectorAddresses, RetryPause
from regraft.producers.nodes.connectors.connector_checks import TOO_LARGE
from regraft.producers.nodes.connectors.kept_connector import KeptConnector
from regraft.producers.nodes.connectors.look_for_nodes import loop_error
from regraft.producers.nodes.connectors.wanted_subjects import AskedSubjects
from regraft.producers.nodes.nats.jetstream_ingress import JetStreamIngress
from regraft.producers.nodes.nats.local_streams import LocalStreams
from regraft.producers.nodes.nats.nats_interest import NatsInterest
from regraft.producers.nodes.nats.nats_leaf import SILENT, Leaf, check_tls
from regraft.producers.nodes.nats.nats_login import NO_LOGIN, NatsLogin, is_login_refused, login_advice
from regraft.producers.nodes.nats.nats_permissions import NOT_PERMITTED, LeafPermissions
from regraft.producers.nodes.nats.nats_protocol import (
    BLOCK_BYTES_MAX,
    Interest,
    Oversized,
    Ping,
    Pong,
    Refused,
    ServerInfo,
    ServerMessage,
    connect_line,
    message_bytes,
    stamped,
)
from regraft.schemas.safe_names import safe_name
from regraft.schemas.topics import DEFAULT_NAMESPACE
from regraft.schemas.wire_grammar import PAYLOAD_BYTES_MAX

log = structlog.get_logger(__name__)

PORTS = {"nats": 7422, "tls": 7422}
ADVICE = "nats://host:port names the leaf port of a NATS server, tls:// one with TLS"
CONNECT_S_MAX = 10.0
BUFFER_BYTES_MAX = 64 << 20  # Bytes waiting for a slow server; further messages are dropped.
EVERYTHING = ">"
AWAY, SLOW, FAILED = "broker_away", "broker_slow", "handling_failed"


class NatsConnector(KeptConnector):
    """The way to one NATS server, or to any of a cluster. ``url`` is ``nats://host[:7422]``, its leaf port, tls:// with
    TLS; several are separated by commas, and tried in turn.

    Messages that a ``stream`` of the server stores are taken from there, each with a receipt; all others have none.
    """

    def __init__(
        self,
        url: str,
        name: str,
        login: NatsLogin = NO_LOGIN,
        stream: str = "",
        tls: ssl.SSLContext | None = None,
        overlay: str = DEFAULT_NAMESPACE,
        local_streams: Collection[str] = (),
    ) -> None:
        super().__init__(ConnectorAddresses(url, PORTS, ADVICE), name, overlay, self._send, CONNECT_S_MAX)
        self._tls = (tls or ssl.create_default_context()) if self._addresses.scheme == "tls" else None
        self._login = login
        self._is_tls_first = False
        self._leaf: Leaf | None = None
        self._search.on_found = self._give_way
        self._line = AgentLine(self._send, overlay)
        self.agents: NoteLine | None = self._line
        self._interest, self._streams = NatsInterest(self._checks), LocalStreams(name, local_streams, self._send)
        self._interest.leaves_out, self._streams.on_change = self._streams.leaves_out, self._interest.reconsider
        self._facts: Mapping[str, Any] = {}  # What the server says of itself.
        self._payload_bytes_max = PAYLOAD_BYTES_MAX  # Until the server says otherwise.
        self._permissions = LeafPermissions()
        self._asked = AskedSubjects(EVERYTHING)
        self._asking: asyncio.Future[None] | None = None
        self._ingress: JetStreamIngress | None = None
        if stream:
            self._ingress = JetStreamIngress(stream, name, self._send, self._checks.note_message, self.counts)

    def _prepare(self) -> None:
        self._interest.groups_once = self.groups_once

    async def _settle(self) -> None:
        """Wait for the server's streams, and look for other nodes; raise ConnectorError if the connector is of no
        use.
        """
        await self._streams.wait(str(self._addresses), CONNECT_S_MAX)
        await self._look()
        await self._open_ingress()

    def _advice(self) -> str:
        place = f"the leaf port {self._addresses}"
        if is_login_refused(self._reason):
            return login_advice(f"{place} of the NATS server", self._login, self._reason)
        if self._reason == SILENT and self._tls is None:
            return f"{place} closes the connection without a message: if it has `handshake_first`, use tls://"
        return (
            f"no NATS server answers at {place} within {CONNECT_S_MAX:g} s ({self._reason}): start it with "
            f"`leafnodes {{ port: {self._addresses.port} }}`"
        )

    async def _open_ingress(self) -> None:
        """Wait until the stream's consumer is ready; raise ConnectorError if it is refused or takes too long."""
        ingress, until_s = self._ingress, time.monotonic() + CONNECT_S_MAX
        while ingress is not None and not ingress.is_ready:
            if ingress.error or time.monotonic() > until_s:
                raise ConnectorError(
                    f"stream {ingress.stream!r} of {self._addresses} cannot be read "
                    f"({ingress.error or 'no answer'}): enable JetStream there and create the stream, or do not set "
                    "connectors.nats.durable_stream"
                )
            await asyncio.sleep(0.01)

    @property
    def is_open(self) -> bool:
        """Return True if the server has reported what its clients want, and reaches no other node by itself."""
        return self._leaf is not None and self._leaf.is_caught_up and self._search.is_open

    @property
    def error(self) -> str:
        """Return which other node the server reaches by itself, or what is wrong with the stream; "" for nothing."""
        return self._checks.error or ("" if self._ingress is None else self._ingress.error)

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the clients that want it; return False if it may not be, or the server is away or slow."""
        leaf = self._leaf
        if leaf is None or leaf.transport is None or leaf.transport.is_closing():
            self.counts[AWAY] += 1
            return False
        if leaf.transport.get_write_buffer_size() > BUFFER_BYTES_MAX:
            self.counts[SLOW] += 1
            return False
        checked = self._checks.checked(message)
        if checked is None:
            return False
        if not self._permissions.may_publish(checked.subject):
            self._checks.refuse(NOT_PERMITTED, f"the server does not let this node publish {checked.subject!r}")
            return False
        checked = stamped(checked, self._checks.stamp_of(message))
        size_bytes = len(checked.headers) + len(checked.payload)
        if size_bytes > self._payload_bytes_max:  # The server would end the connection, and drop what is behind it.
            self._checks.refuse(TOO_LARGE, f"{size_bytes} bytes: the server takes {self._payload_bytes_max}")
            return False
        leaf.write_soon(self._lines_of(checked))
        return True

    def _lines_of(self, message: LocalMessage) -> bytes:
        """Return the lines that hand a message over: to all that want it, or to subscriptions beside agents alone."""
        if message.only_for:
            return b"".join(message_bytes(AgentLine.private(name, message)) for name in message.only_for)
        groups = self._interest.queues.of(message.subject, message.groups_excluded)
        return message_bytes(message, [*groups, *sorted(message.agents)])

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Subscribe further subjects; what is returned completes once the server has them."""
        new, leaf = self._asked.add(subjects), self._leaf
        if leaf is None or not leaf.has_asked:
            return None  # They are subscribed before the next connection counts as open.
        if new:
            self._asking = leaf.ask(self._lines("LS+", new))
        return None if self._asking is None or self._asking.done() else self._asking

    def ask_only(self, subjects: Collection[str]) -> None:
        """Subscribe these subjects and unsubscribe others."""
        new, old = self._asked.replace(subjects)
        if self._leaf is not None and self._leaf.has_asked:
            self._leaf.write_soon(self._lines("LS+", new) + self._lines("LS-", old))

    def _lines(self, word: str, subjects: Iterable[str]) -> bytes:
        """Return the lines for subjects; a server that limits what may be subscribed is asked for everything."""
        if self._permissions.has_subscribe_limit:
            subjects = [EVERYTHING] if word == "LS+" and subjects else []
        return "".join(f"{word} {subject}\r\n" for subject in subjects).encode()

    def _own_lines(self) -> bytes:
        own = [
            self._search.subjects,
            self._streams.answers,
            ASKED,
            *([] if self._ingress is None else [self._ingress.answers]),
        ]
        return "".join(f"LS+ {subject}\r\n" for subject in own if self._permissions.may_subscribe(subject)).encode()

    def release(self, receipt: int) -> None:
        """Acknowledge a message to the stream."""
        if self._ingress is not None:
            self._ingress.release(receipt)

    def _send(self, message: LocalMessage) -> None:
        if self._leaf is not None and self._permissions.may_publish(message.subject):
            self._leaf.write_soon(message_bytes(message))

    async def _stay_open(self, pause: RetryPause) -> str:
        leaf = await self._connect()
        opened_s = time.monotonic()
        self._leaf = leaf
        self._interest.begin_connection()
        await leaf.ping_until_closed()
        if leaf.is_caught_up:
            pause.note_open(opened_s)
        self._is_tls_first = self._tls is not None and self._is_tls_first == leaf.has_info
        return leaf.reason

    async def _leave(self) -> None:
        if self._leaf is not None:
            self._leaf.end()
            self._leaf = None
            await asyncio.sleep(0)

    async def _connect(self) -> Leaf:
        """Connect to the next server; some want TLS before they say anything, which shows when one says nothing."""
        tls, host = self._tls if self._is_tls_first else None, self._addresses.host
        make = partial(Leaf, self._handle, is_secure=tls is not None)
        async with asyncio.timeout(CONNECT_S_MAX / len(self._addresses)):
            _, leaf = await asyncio.get_running_loop().create_connection(make, host, self._addresses.port, ssl=tls)
        return leaf

    # --- from the server ---------------------------------------------------------------------------------------------

    def _handle(self, leaf: Leaf, message: ServerMessage) -> None:
        """Handle a message; one that fails is counted, and those behind it are handled."""
        try:
            self._take(leaf, message)
        except ConnectorError:
            raise
        except Exception:
            self.counts[FAILED] += 1
            log.exception("message_failed", broker=self._name, kind=type(message).__name__)

    def _take(self, leaf: Leaf, message: ServerMessage) -> None:
        match message:
            case LocalMessage():
                is_taken = self._ingress is not None and self._ingress.receive(message)
                if not is_taken and not self._streams.receive(message) and not self._line.receive(message):
                    self._checks.note_message(message)
            case Oversized(_, reply, size_bytes):
                self._checks.refuse(TOO_LARGE, f"{size_bytes} bytes: at most {BLOCK_BYTES_MAX} are read")
                if self._ingress is not None:
                    self._ingress.skip(reply)
            case Interest(subject, _, is_wanted) if node := self._search.node_of(subject):
                if is_wanted:  # Only by nodes that are open.
                    self._search.note(node, is_open=True)
            case Interest():
                self._interest.take(message)
            case Ping():
                leaf.write_soon(b"PONG\r\n")
            case ServerInfo():
                self._facts = message.facts
                self._payload_bytes_max = int(message.facts.get("max_payload", PAYLOAD_BYTES_MAX))
                check_tls(str(self._addresses), has_tls=self._tls is not None, facts=message.facts)
                self._note_limits(message.facts)
                handshake = self._handshake(str(message.facts.get("nonce", "")))
                leaf.send_handshake(handshake, self._tls, self._addresses.host)
            case Pong():
                self._take_pong(leaf)
            case Refused():
                leaf.reason = message.reason
                log.warning("connector_refused", broker=self._name, reason=message.reason)

    def _take_pong(self, leaf: Leaf) -> None:
        """Note how far the server is: it has said what may be subscribed, then what is wanted."""
        leaf.note_pong()
        if not leaf.has_asked:  # Now the server has reported what may be subscribed.
            leaf.has_asked = True
            leaf.ask(self._lines("LS+", self._asked.asked) + self._own_lines())
            self._streams.ask()
        elif not leaf.is_caught_up:
            leaf.is_caught_up = True
            self._interest.end_unreported()
            if not self._note_first():
                self._line.on_open()
                self._tasks[1:] = [asyncio.get_running_loop().create_task(self._look_again(leaf))]
            if self._ingress is not None:
                self._ingress.begin()
        else:
            self._search.ask_again(is_hinted=bool(self._checks.error))  # A gateway reports no interest.
            self._streams.ask_again(self._facts)
            if self._ingress is not None:
                self._ingress.repeat_unanswered()

    async def _look(self) -> None:
        """Look for other nodes, and let them find this one; raise ConnectorError if it has to give way."""
        await self._search.look()
        if self._leaf is not None and self._permissions.may_subscribe(self._search.subject):
            self._leaf.write_soon(f"LS+ {self._search.subject}\r\n".encode())

    async def _look_again(self, leaf: Leaf) -> None:
        try:
            await self._look()
        except ConnectorError as error:
            leaf.reason = str(error)
            leaf.end()

    def _give_way(self, node: str) -> None:
        """Close the connector; it opens again once the server no longer reaches the other node."""
        if self._leaf is not None:
            self._leaf.reason = loop_error(node)
            self._leaf.end()

    def _note_limits(self, facts: Mapping[str, Any]) -> None:
        """Say once what the server's permissions let through: it cuts the rest without a word."""
        permissions = LeafPermissions(facts)
        if permissions.limits != self._permissions.limits:
            self._permissions = permissions
            log.warning("connector_limited", broker=self._name, permissions=permissions.limits)

    def _handshake(self, nonce: str) -> bytes:
        options = {
            "version": "2.10.0",
            "name": safe_name(self._name),
            "server_id": f"REGRAFT-{safe_name(self._name)}",
            "headers": True,
            "tls_required": self._tls is not None,
            **self._login.facts(nonce),
        }
        return connect_line(options)
