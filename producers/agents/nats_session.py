"""One client of NATS and its agent's connections to brokers for it: a pipe, until a plan moves a subscription.

In: frames of the client and of brokers, notes of nodes. Out: frames for both. Which messages of two brokers count
belongs to :mod:`producers.agents.move_subscription`; how connections open to :mod:`producers.agents.nats_upstream`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from regraft.producers.agents.client_moves import Delivered
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.nats_client import (
    FLUSH_LINES,
    FLUSH_SID,
    NOT_CHOSEN,
    NOT_FOR_CLIENTS,
    NOTES_SID,
    PRIVATE_SID,
    NatsClient,
    Subscription,
    info_line,
    unsub_line,
)
from regraft.producers.agents.nats_frames import (
    Frame,
    FrameError,
    FrameReader,
    header_block,
    message_frame,
    named_frame,
    publish_frame,
)
from regraft.producers.agents.nats_upstream import Upstream
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.agent_names import FLUSH, ORDERS, PRIVATE, PUBLISHER_HEADER
from regraft.schemas.agent_note import AgentNote, mark_of, note_bytes
from regraft.schemas.stay_reasons import StayReason

log = structlog.get_logger(__name__)

DIGITS_MAX = 12  # Of a number of a subscription.
UNKNOWN_HOME = "?"
CHOOSING = (b"PUB", b"HPUB", b"SUB")  # The frames of a client that name a subject.


class NatsSession(ClientSession[Upstream]):
    """One client of NATS."""

    client: NatsClient
    is_tls_first = False
    refusal = b"-ERR 'maximum connections exceeded'\r\n"

    def __init__(
        self, name: str, brokers: Mapping[str, BrokerAddress], home: str, counts: Counter[str],
        on_end: Callable[[Any], None], tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, brokers, home, counts, on_end, tls)
        self.client = NatsClient(name)
        self._line = b"%b: %b" % (PUBLISHER_HEADER, name.encode())
        self._reader, self._held = FrameReader(), bytearray()
        self._out: list[bytes] = []

    # --- the client's socket -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect to the broker at which the client begins."""
        self.hold("opening")
        self.run(self._begin())

    async def _begin(self) -> None:
        upstream = await self._open_first()
        if upstream is not None:
            header_bytes = len(header_block(self._line))
            self._write(info_line(upstream.facts, needs_tls=self._tls is not None, header_bytes=header_bytes))
            if self._tls is None or await self._secure(self._tls):
                self.release("opening")

    async def _open_first(self) -> Upstream | None:
        """Connect to the client's home or, if it cannot be reached, to the next broker; the client ends if to none."""
        reasons = []
        for broker in self.homes.in_turn():
            upstream = self.new_upstream(self.homes.brokers[broker])
            try:
                await upstream.open()
            except UpstreamError as error:
                reasons.append(str(error))
                continue
            self.homes.begin(broker, upstream)
            return upstream
        self.end_unreached(reasons)
        return None

    def new_upstream(self, address: BrokerAddress) -> Upstream:
        """Return a connection to a broker that is not open."""
        return Upstream(address, self)

    async def log_in(self, upstream: Upstream) -> None:
        """Open a connection with the client's own login; raise UpstreamError if that is refused."""
        await upstream.open()
        refusal = await upstream.introduce(self.client.introduction())
        if refusal:
            raise UpstreamError(f"{upstream.broker} refuses: {refusal}")

    async def _secure(self, tls: ssl.SSLContext) -> bool:
        """Encrypt the client's connection, as NATS does, behind the first line; return False if that fails."""
        assert self._transport is not None
        try:
            secure = await asyncio.get_running_loop().start_tls(self._transport, self, tls, server_side=True)
        except (OSError, ssl.SSLError) as error:
            self.end(f"no TLS with the client: {error}")
            return False
        self._transport = secure or self._transport
        return secure is not None

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends, unless it has to wait."""
        if self._holds:
            self._held += data
            return
        upstream = self.homes.upstreams.get(self.homes.home)
        out: list[bytes] = []
        try:
            for frame in self._reader.feed(data):
                if self._holds:  # The frame before has made all others wait.
                    self._held += frame.raw
                elif self._is_refused(frame):
                    self.counts["own_subject"] += 1
                elif upstream is not None and frame.words[0] in (b"PUB", b"HPUB"):
                    is_first = not self.client.has_published
                    self._note_published(frame.words[1])
                    is_named = self.publishing.note_published()
                    out.append(named_frame(frame, self._line) if is_named else frame.raw)
                    if is_first:
                        self._stand_in()
                else:
                    self._flush(upstream, out)
                    self._take(frame)
                    upstream = self.homes.upstreams.get(self.homes.home)
        except (FrameError, IndexError, ValueError) as error:
            self._write(b"-ERR 'Unknown Protocol Operation'\r\n")
            self.end(f"the client sent what no NATS client sends: {error}")
        self._flush(upstream, out)
        if self._holds:
            self._held += self._reader.take_rest()

    def _note_published(self, subject: bytes) -> None:
        self.client.has_published = True
        if subject.startswith(b"$"):
            self.stay(StayReason.SERVER_SUBJECTS)

    def _stand_in(self) -> None:
        """Let plans move a client that only publishes."""
        stand_in = self.client.stand_in(self.homes.subscribing)
        if stand_in is not None:
            self.homes.subscribe(stand_in)

    def _is_refused(self, frame: Frame) -> bool:
        """Return True, and say so, for a subject or queue group by which nodes and agents know each other."""
        words = frame.words
        if words[0] not in CHOOSING or len(words) < 3:
            return False
        if words[1].startswith(NOT_FOR_CLIENTS):
            refused = words[1]
        elif words[2].startswith(NOT_CHOSEN):  # A queue group, or where answers go.
            refused = words[2]
        else:
            return False
        self._write(b"-ERR 'Permissions Violation: %b belongs to agents'\r\n" % refused[:80])
        return True

    def _flush(self, upstream: Upstream | None, out: list[bytes]) -> None:
        if out and upstream is not None:
            upstream.write(b"".join(out))
            if self.client.connect.get("verbose"):
                self._write(b"+OK\r\n" * len(out))
        out.clear()

    def hold(self, reason: str) -> None:
        """Let the client wait, until each reason for it is released."""
        self._holds.add(reason)
        if self._transport is not None and not self.is_over:
            self._transport.pause_reading()

    def release(self, reason: str) -> None:
        """Take back a reason for which the client waits."""
        self._holds.discard(reason)
        if self._holds or self.is_over or self._transport is None:
            return
        held, self._held = bytes(self._held), bytearray()
        if held:
            self.data_received(held)
        if not self._holds and not self.is_over:
            self._transport.resume_reading()

    # --- the client's frames -----------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        words = frame.words
        match words[0]:
            case b"CONNECT":
                reason = self.client.take_connect(frame.raw)
                if reason is not None:
                    self.stay(reason)
                self.hold("login")
                self.run(self._log_in())
            case b"SUB" if words[-1] in self.client.subscriptions:
                pass  # As a server does, which keeps the first one.
            case b"SUB":
                if words[1].startswith(b"$"):
                    self.stay(StayReason.SERVER_SUBJECTS)
                self.homes.subscribe(self.client.subscribe(words, self.homes.subscribing))
            case b"UNSUB":
                self._unsubscribe(words[1], int(words[2]) if len(words) > 2 else 0)
            case b"PING":
                self._pass_ping()
            case _:
                return
        if words[0] != b"PING" and self.client.connect.get("verbose"):
            self._write(b"+OK\r\n")

    async def _log_in(self) -> None:
        """Introduce the client to its broker; it stays there if the broker does not let nodes reach the agent."""
        upstream = self.homes.upstreams[self.homes.home]
        try:
            refusal = await upstream.introduce(self.client.introduction())
        except UpstreamError as error:
            self._write(f"-ERR '{error}'\r\n".encode())
            self.end(f"login refused: {error}")
            return
        if refusal:
            self.stay(StayReason.RIGHTS, refusal)
        self.release("login")

    def _unsubscribe(self, sid: bytes, count_max: int) -> None:
        """End a subscription, now or after some messages of which the agent counts how many have come."""
        subscription = self.client.subscriptions.get(sid)
        if subscription is None:
            return
        if count_max > subscription.delivered:
            subscription.count_max = count_max
        else:
            self.end_subscription(subscription)

    def end_subscription(self, subscription: Subscription) -> None:
        """End a subscription at every broker."""
        self.client.forget(subscription.sid)
        self.moves.forget(subscription)
        for upstream in self.homes.upstreams.values():
            upstream.write(unsub_line(subscription.sid))
        self._stand_in()

    def _pass_ping(self) -> None:
        """Answer the client once every broker in use has handled what came before."""
        waiting = len(self.homes.upstreams)

        def answered() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                self._write(b"PONG\r\n")

        if not waiting:
            waiting = 1
            answered()
        for upstream in list(self.homes.upstreams.values()):
            upstream.ping_then(answered)

    # --- brokers' frames ---------------------------------------------------------------------------------------------

    def take_frames(self, upstream: Upstream, frames: list[Frame]) -> None:
        """Pass on what a broker delivers."""
        for frame in frames:
            if frame.words[0] in (b"MSG", b"HMSG"):
                self._take_message(upstream, frame)
            elif frame.words[0] == b"-ERR":
                self._take_error(upstream, frame)
        self.deliver_now()

    def _take_message(self, upstream: Upstream, frame: Frame) -> None:
        sid = frame.words[2]
        subscription = self.client.subscriptions.get(sid)
        if subscription is not None and frame.words[1].startswith(NOT_FOR_CLIENTS):
            return  # It wants everything.
        if subscription is None:
            self._take_own(upstream, sid, frame)
        elif subscription.number in self.moves.moving:
            mark = mark_of(frame.words[1], frame.payload[frame.headers_size :])
            delivered = Delivered(frame.raw, len(frame.raw), self._home_of(frame), mark)
            self.moves.take(upstream.broker, subscription, delivered)
        elif subscription.home == upstream.broker:
            self.deliver(subscription, frame.raw)

    def _home_of(self, frame: Frame) -> str:
        """Return the broker at which a message was published that the overlay has handed over, "" for any other."""
        size, stamps = frame.headers_size, self.moves.stamps
        if not size or stamps is None:
            return ""
        subject = frame.words[1].decode(errors="surrogateescape")
        stamp = stamps.met(LocalMessage(subject, b"", headers=frame.payload[:size]))
        return "" if stamp is None else stamp.home or UNKNOWN_HOME

    def _take_own(self, upstream: Upstream, sid: bytes, frame: Frame) -> None:
        if sid == NOTES_SID:
            self.take_note(upstream, frame.payload)
        elif sid == PRIVATE_SID:
            rest = frame.words[1].removeprefix(f"{PRIVATE}{self.client.name}.".encode())
            number, _, subject = rest.partition(b".")
            subscription = self.client.numbered(int(number)) if number.isdigit() and len(number) < DIGITS_MAX else None
            if not subject:
                self.take_note(upstream, frame.payload)
            elif subscription is not None:
                reply = frame.words[3] if len(frame.words) == 5 + (frame.words[0] == b"HMSG") else b""
                raw = message_frame(subject, subscription.sid, reply, frame.headers_size, frame.payload)
                words = [frame.words[0], subject, subscription.sid, *frame.words[3:]]
                self._take_message(upstream, Frame(words, frame.payload, raw))
        elif sid == FLUSH_SID:
            self.publishing.note_flush(frame.payload[frame.headers_size :])

    def deliver(self, subscription: Subscription, raw: bytes) -> None:
        """Hand a message to the client."""
        if raw.startswith(FLUSH_LINES):
            return
        subscription.delivered += 1
        self._out.append(raw)
        if 0 < subscription.count_max <= subscription.delivered:
            self.end_subscription(subscription)

    def deliver_now(self) -> None:
        """Write what has been handed to the client: at the end of a broker's frames, and of a move."""
        if self._out:
            self._write(b"".join(self._out))
            self._out.clear()

    def _take_error(self, upstream: Upstream, frame: Frame) -> None:
        text = frame.raw.decode(errors="replace")
        if ORDERS in text or FLUSH in text:
            return
        is_refusal = "Permissions Violation for Subscription" in text
        if not (is_refusal and self.moves.refuse(upstream.broker, self.client.numbers_in(text))):
            self._write(frame.raw)

    def write_note(self, broker: str, note: AgentNote) -> None:
        """Send a note to the node of a broker, through the broker."""
        upstream = self.homes.upstreams.get(broker)
        if upstream is not None:
            upstream.write(publish_frame(f"{ORDERS}{self.client.name}".encode(), note_bytes(note)))

    # --- what the parts of the session ask ---------------------------------------------------------------------------

    def subscribe(self, upstream: Upstream, subscription: Subscription, name: str = "", epoch: int = -1) -> None:
        """Subscribe at a broker; a plan to ``epoch`` brings the overlay's subscription ``name`` there."""
        upstream.write(self.client.sub_line(subscription, name, epoch))

    def unsubscribe(self, upstream: Upstream, subscription: Subscription) -> None:
        """End a subscription at a broker."""
        upstream.write(unsub_line(subscription.sid))

    def want_flush(self, upstream: Upstream, *, is_wanted: bool) -> None:
        """Ask a broker for the agent's own messages through the overlay, or no longer."""
        asked = f"SUB {FLUSH}{self.client.name} {FLUSH_SID.decode()}\r\n".encode()
        upstream.write(asked if is_wanted else unsub_line(FLUSH_SID))

    def send_flush(self, upstream: Upstream, mark: int) -> None:
        """Publish such a message behind everything that the client has published."""
        subject, text = f"{FLUSH}{self.client.name}".encode(), b"%d" % mark
        raw = publish_frame(subject, text)
        if self.publishing.is_named(upstream.broker):
            raw = named_frame(Frame([b"PUB", subject, b"%d" % len(text)], text, raw), self._line)
        upstream.write(raw)
