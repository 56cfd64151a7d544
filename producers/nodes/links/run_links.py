"""The links of one node: which peers it calls, which may call, and the handling of cuts, silence and new incarnations.

In: messages for peers, and where peers listen. Out: messages from peers in the order they were sent, each once, and
which peers have begun another incarnation. Of two nodes, the one whose name comes first calls the other. A connection
that breaks or falls silent is made again and resumes where it was: nothing is lost while both nodes live.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from regraft.infra.process.end_tasks import end_tasks
from regraft.infra.process.handle_each import count_logged
from regraft.producers.brokers.broker_messages import Message, Notification
from regraft.producers.nodes.connectors.roaming_clients import RoamingClients
from regraft.producers.nodes.links.carried_messages import LinkError, body_of, message_of
from regraft.producers.nodes.links.link_connection import LinkConnection
from regraft.producers.nodes.links.link_frames import link_frame
from regraft.producers.nodes.links.link_session import LINK_VERSION, Hello, LinkSession
from regraft.producers.nodes.links.meter_links import LeastLately, LinkStanding
from regraft.schemas.telemetry import QueueSample
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

CLOSE_S_MAX = 2.0
CONNECTIONS_PER_PEER, CONNECTIONS_MIN = 4, 64  # Further calls are refused, so that strangers do not use up memory.


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """How long links wait, and how much they keep.

    ``kept_bytes_max``: unacknowledged bytes for one peer; further notifications are dropped and counted, control
    messages never are. ``probe_ms``: interval between probes of a connection. ``silence_ms_max``: a connection that is
    silent for longer is made again. ``retry_ms``, ``retry_ms_max``: first and longest pause between calls; it doubles.
    """

    kept_bytes_max: int = 64 << 20
    probe_ms: float = 1_000.0
    silence_ms_max: float = 5_000.0
    retry_ms: float = 50.0
    retry_ms_max: float = 2_000.0


@dataclass(frozen=True, slots=True)
class LinkTls:
    """Certificates for both directions; a peer's must name its broker."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Peer:
    """What is known of one peer: its session, its current connection, and counters."""

    def __init__(self, session: LinkSession) -> None:
        self.session = session
        self.connection: LinkConnection | None = None
        self.calling: asyncio.Task[None] | None = None
        self.messages_in = self.bytes_in = 0
        self.kept_max = 0
        self.idle_rtt_ms = LeastLately()


class Links:
    """All links of one node.

    ``on_message`` receives each message from a peer, in order; ``on_new_incarnation`` receives a peer whose former
    incarnation is over, after all messages of that incarnation; ``on_own_incarnation`` receives another incarnation of
    this node that a peer has met. All are called on the event loop and must not block.
    """

    def __init__(
        self,
        broker: str,
        incarnation: str,
        addresses: Mapping[str, tuple[str, int]],
        on_message: Callable[[str, Message], None],
        on_new_incarnation: Callable[[str], None],
        limits: LinkLimits | None = None,
        tls: LinkTls | None = None,
        on_own_incarnation: Callable[[str, str], None] = lambda _peer, _incarnation: None,
    ) -> None:
        self.broker, self.incarnation = broker, incarnation
        self.counts: Counter[str] = Counter()
        self.peers: dict[str, Peer] = {}
        self.roaming: RoamingClients | None = None
        self._addresses = addresses
        self._on_message, self._on_new_incarnation, self._on_own_incarnation = (
            on_message,
            on_new_incarnation,
            on_own_incarnation,
        )
        self._limits, self._tls = limits or LinkLimits(), tls
        self._wanted: set[str] = set()
        self._server: asyncio.Server | None = None
        self._maintaining: asyncio.Task[None] | None = None
        self._is_calling = False
        self._open: set[LinkConnection] = set()
        self._last: tuple[Message, bytes] | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address, and return the port; raises OSError if another process has it. ``start`` follows."""
        context = None if self._tls is None else self._tls.server
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._connection(None), host, port, ssl=context, start_serving=False
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Accept calls, and call the wanted peers."""
        if self._server is not None:
            await self._server.start_serving()
        self._is_calling = True
        self._maintaining = asyncio.get_running_loop().create_task(self._maintain())

    async def close(self) -> None:
        """End all connections, and stop calling peers."""
        self._is_calling = False
        tasks = [peer.calling for peer in self.peers.values() if peer.calling is not None]
        if self._maintaining is not None:
            tasks.append(self._maintaining)
        await end_tasks(tasks)
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.end("node stops")
        await asyncio.sleep(0)

    # --- called by the node ------------------------------------------------------------------------------------------

    def want(self, peers: Collection[str]) -> None:
        """Keep connections to these peers from now on; others stay open until they break or are closed as idle."""
        self._wanted = {peer for peer in peers if peer in self._addresses}
        for peer in sorted(self._wanted):
            self._call(peer)

    def close_idle(self) -> None:
        """End idle connections to peers that are no longer wanted, if this node is the one that calls them.

        The called end must not do this: it could not make the connection again if it had something to send.
        """
        idle_since_s = time.monotonic() - self._limits.silence_ms_max / SECOND_MS
        for name, peer in self.peers.items():
            connection, is_ours = peer.connection, self.broker < name
            if connection is None or not is_ours or self._is_due(name, peer):
                continue
            if connection.bodies_s < idle_since_s:
                connection.end("no longer measured")

    def send(self, peer: str, message: Message) -> bool:
        """Send a message to a peer, or keep it until the peer is connected.

        Return False if the buffer is full, or if the peer would refuse the message, which no message of a core is.
        """
        state = self._peer(peer)
        session = state.session
        if isinstance(message, Notification) and session.bytes_kept > self._limits.kept_bytes_max:
            self.counts["dropped"] += 1
            return False
        try:
            body = self._body_of(message)
        except LinkError as error:
            self._note_refused("refused_to_send", peer, error)
            return False
        session.put(body)
        state.messages_in += 1
        state.bytes_in += len(body)
        state.kept_max = max(state.kept_max, len(session))
        if state.connection is None:
            self._call(peer)
        else:
            state.connection.flush_soon()
        return True

    @property
    def lost_with_incarnations(self) -> int:
        """How many notifications were unacknowledged when an incarnation of this node or of their receiver ended."""
        return sum(peer.session.lost_notifications for peer in self.peers.values())

    def round_trips(self) -> list[tuple[str, float]]:
        """Return the connected peers with their round trips in ms; those not measured yet are left out."""
        connected = [
            (name, peer.connection) for name, peer in sorted(self.peers.items()) if peer.connection is not None
        ]
        return [(name, connection.rtt_ms) for name, connection in connected if connection.rtt_ms is not None]

    def sample(self, name: str) -> QueueSample:
        """Return the counters of the link to a peer."""
        peer = self.peers.get(name)
        if peer is None:
            return QueueSample(name, 0, 0, 0, 0, 0, 0, 0, 0)
        session, kept = peer.session, len(peer.session)
        sample = QueueSample(
            name, peer.messages_in, session.acknowledged_count,
            session.acknowledged_notifications, peer.bytes_in, session.acknowledged_bytes, 0, kept,
            max(peer.kept_max, kept),
        )  # fmt: skip
        peer.kept_max = kept
        return sample

    def standing(self, name: str) -> LinkStanding:
        """Return where the link to a peer stands, for a meter."""
        peer = self._peer(name)
        session = peer.session
        pair = session.incarnation, session.peer_incarnation
        return LinkStanding(pair, session.over_count + len(session), session.over_count, peer.idle_rtt_ms.least)

    def frames_owed(self) -> dict[str, int]:
        """Return how many frames of this incarnation were ever put for each peer with unacknowledged frames."""
        return {
            name: peer.session.over_count + len(peer.session) for name, peer in self.peers.items() if len(peer.session)
        }

    def frames_over(self, peer: str) -> int:
        """Return how many frames of this incarnation a peer is no longer owed."""
        return self._peer(peer).session.over_count

    def renew(self, peer: str) -> None:
        """Note that a plan admits a peer: messages from now on are for its current incarnation, known here or not."""
        self._peer(peer).session.renew()

    def cancel_renewal(self, peer: str) -> None:
        """Note that this node refuses the plan that would have admitted a peer."""
        self._peer(peer).session.cancel_renewal()

    def begin_incarnation(self, incarnation: str) -> None:
        """Forget what was owed to peers and begin another incarnation, as if the node had just started."""
        self.incarnation = incarnation
        # Including those that have only exchanged hellos in the former incarnation.
        for connection in list(self._open):
            connection.end("node has restarted")
        for name, peer in self.peers.items():
            peer.session, peer.connection = peer.session.successor(incarnation), None
            if name in self._wanted:
                self._call(name)

    def _body_of(self, message: Message) -> bytes:
        """Return the encoded message; the last one is cached, because one step may send it to several peers."""
        if self._last is None or self._last[0] is not message:
            self._last = message, body_of(message)
        return self._last[1]

    def _peer(self, name: str) -> Peer:
        if name not in self.peers:
            self.peers[name] = Peer(LinkSession(self.broker, self.incarnation))
        return self.peers[name]

    # --- connections -------------------------------------------------------------------------------------------------

    def _connection(self, called: str | None) -> LinkConnection:
        begin = None if called is None else self._peer(called).session.hello(called)

        def on_hello(connection: LinkConnection, hello: Hello) -> LinkSession:
            return self._handle_hello(connection, hello, called)

        connection = LinkConnection(on_hello, self._take, self._lose, begin)
        if called is None and len(self._open) >= CONNECTIONS_PER_PEER * len(self._addresses) + CONNECTIONS_MIN:
            connection.refuse_at_once = True
        if self.roaming is not None:
            connection.on_clients = self.roaming.take
        self._open.add(connection)
        return connection

    def _handle_hello(self, connection: LinkConnection, hello: Hello, called: str | None) -> LinkSession:
        self._check(connection, hello, called)
        peer = self._peer(hello.broker)
        former, peer.connection = peer.connection, None
        if former is not None and former is not connection:
            former.end("replaced by a newer connection of the peer")
        if peer.session.handle_hello(hello):
            self.counts["new_incarnations"] += 1
            log.warning("peer_restarted", broker=self.broker, peer=hello.broker, incarnation=hello.incarnation)
            self._on_new_incarnation(hello.broker)
        peer.connection, connection.peer = connection, hello.broker
        connection.on_round_trip = peer.idle_rtt_ms.note
        self.counts["connected"] += 1
        for incarnation in (hello.peer_incarnation, hello.former_peer_incarnation):
            if incarnation not in ("", self.incarnation):
                self._on_own_incarnation(hello.broker, incarnation)
        return peer.session

    def _check(self, connection: LinkConnection, hello: Hello, called: str | None) -> None:
        if hello.version != LINK_VERSION:
            raise LinkError(
                f"{hello.broker} speaks version {hello.version} of the link protocol, this node version {LINK_VERSION}"
            )
        if called is None and hello.broker == self.broker:  # A second process of this node, which must not begin.
            connection.write(link_frame(LinkSession(self.broker, self.incarnation).hello()))
        if hello.broker not in self._addresses or hello.broker == self.broker:
            raise LinkError(f"{hello.broker!r} is not a peer of {self.broker}: add it to the addresses of the nodes")
        if hello.called and hello.called != self.broker:  # Else it would replace the caller's proper connection.
            raise LinkError(
                f"{hello.broker} called {hello.called}, but this is {self.broker}: correct the addresses there"
            )
        if called is not None and hello.broker != called:
            raise LinkError(f"{hello.broker} answered at the address of {called}: correct the addresses of the nodes")
        if self._tls is not None and connection.transport is not None:
            named = _names_of(connection.transport.get_extra_info("peercert"))
            if hello.broker not in named:
                raise LinkError(f"{hello.broker} presented a certificate for {', '.join(sorted(named)) or 'no broker'}")

    def _take(self, connection: LinkConnection, body: bytes) -> None:
        if connection is not self.peers[connection.peer].connection:
            return
        try:
            message = message_of(body)
        except LinkError as error:  # It counts as received: sent again, it would be no better, and block what follows.
            self._note_refused("refused_to_take", connection.peer, error)
            return
        self._on_message(connection.peer, message)

    def _note_refused(self, what: str, peer: str, error: LinkError) -> None:
        facts = {"broker": self.broker, "peer": peer, "what": what, "reason": str(error)}
        count_logged(self.counts, what, log.error, "link_message_refused", **facts)

    def _clients_for(self, connection: LinkConnection) -> tuple[str, ...]:
        if self.roaming is None or connection.session is None:
            return ()
        connection.announced_count, clients = self.roaming.announced_from(connection.announced_count)
        return clients

    def _lose(self, connection: LinkConnection, reason: str) -> None:
        self._open.discard(connection)
        peer = self.peers.get(connection.peer)
        if peer is None or peer.connection is not connection:
            if not connection.peer:
                log.info("connection_refused", broker=self.broker, reason=reason)
            return
        peer.connection = None
        if not self._is_due(connection.peer, peer):
            self.counts["let_go"] += 1
            return
        self.counts["cut"] += 1
        log.info("link_cut", broker=self.broker, peer=connection.peer, reason=reason)
        self._call(connection.peer)

    def _call(self, name: str) -> None:
        peer = self._peer(name)
        is_ours = self.broker < name and name in self._addresses and self._is_calling
        is_called = peer.calling is not None and not peer.calling.done()
        if self._is_due(name, peer) and is_ours and peer.connection is None and not is_called:
            peer.calling = asyncio.get_running_loop().create_task(self._call_until_connected(name, peer))

    def _is_due(self, name: str, peer: Peer) -> bool:
        """Return True if there should be a connection to a peer."""
        return name in self._wanted or len(peer.session) > 0

    async def _call_until_connected(self, name: str, peer: Peer) -> None:
        pause_ms = self._limits.retry_ms
        loop = asyncio.get_running_loop()
        context = None if self._tls is None else self._tls.client
        while peer.connection is None and self._is_due(name, peer):
            host, port = self._addresses[name]
            wait_s = self._limits.silence_ms_max / SECOND_MS
            try:
                async with asyncio.timeout(wait_s):
                    named = None if context is None else name
                    _, connection = await loop.create_connection(
                        lambda: self._connection(name), host, port, ssl=context, server_hostname=named
                    )
                    while connection.session is None and connection in self._open:
                        await asyncio.sleep(self._limits.retry_ms / SECOND_MS / 10)
                if connection.session is not None:
                    return
            except (OSError, TimeoutError, ValueError) as error:  # ValueError: no host has such a name.
                log.debug("peer_not_reached", broker=self.broker, peer=name, reason=str(error))
            self.counts["calls_failed"] += 1
            await asyncio.sleep(pause_ms / SECOND_MS)
            pause_ms = min(2 * pause_ms, self._limits.retry_ms_max)

    async def _maintain(self) -> None:
        """Probe connections, end the silent ones, and call missing peers."""
        while True:
            await asyncio.sleep(self._limits.probe_ms / SECOND_MS)
            now_s = time.monotonic()
            for connection in list(self._open):
                silent_ms = (now_s - connection.received_s) * SECOND_MS
                if connection.session is None:  # Without a hello, bytes that trickle in do not count.
                    silent_ms = (now_s - connection.begun_s) * SECOND_MS
                if silent_ms > self._limits.silence_ms_max:
                    connection.end(f"no data for {silent_ms:.0f} ms")
                else:
                    connection.probe(self._clients_for(connection))
            for name in list(self.peers):
                self._call(name)


def _names_of(certificate: Mapping[str, object] | None) -> set[str]:
    """Return the DNS names that a certificate is for."""
    names = (certificate or {}).get("subjectAltName", ())
    return {value for kind, value in names if kind == "DNS"}  # type: ignore[attr-defined]
