"""One connection between two nodes: frames in and out of a socket, acknowledgements and probes.

In: bytes. Out: hellos and numbered frames, for :mod:`producers.nodes.links.run_links`, which knows the peers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

from regraft.producers.nodes.links.carried_messages import LinkError
from regraft.producers.nodes.links.link_frames import (
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    Acknowledgement,
    FrameReader,
    Probe,
    frame,
    link_frame,
    read_link_frame,
)
from regraft.producers.nodes.links.link_session import Hello, LinkSession

WRITE_BYTES_MAX = 256 * 1024  # Handed to the socket at once.
ACKNOWLEDGE_EVERY = 64  # Frames after which an acknowledgement is sent at once.
ACKNOWLEDGE_AFTER_S = 0.01
SMOOTHING_SHARE = 0.2  # Weight of a new round trip in the moving average.


class LinkConnection(asyncio.Protocol):
    """A socket that belongs to a peer once its hello has arrived.

    ``on_hello`` returns the peer's session, greeted, or raises LinkError; ``on_body`` receives each new body;
    ``on_lost`` receives the reason when the connection ends. ``begin`` is the hello to send at once, None to wait for
    the other end's.
    """

    def __init__(
        self,
        on_hello: Callable[[LinkConnection, Hello], LinkSession],
        on_body: Callable[[LinkConnection, bytes], None],
        on_lost: Callable[[LinkConnection, str], None],
        begin: Hello | None = None,
    ) -> None:
        self.peer = ""
        self.session: LinkSession | None = None
        self.rtt_ms: float | None = None
        self.begun_s = self.received_s = self.bodies_s = (
            time.monotonic()
        )  # When it began, when anything last arrived, and when a message.
        self.transport: asyncio.Transport | None = None
        self.announced_count = 0  # Clients of which the peer has heard over this connection.
        self.on_clients: Callable[[str, tuple[str, ...]], None] = lambda _peer, _clients: None
        self.on_round_trip: Callable[[float, float], None] = lambda _now_s, _rtt_ms: None
        self._on_hello, self._on_body, self._on_lost = on_hello, on_body, on_lost
        self.refuse_at_once = False
        self._begin = begin
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._probed_s: float | None = None  # When the probe was sent whose answer is due.
        self._is_paused = self._is_flush_due = False
        self._unacknowledged = 0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._reason = "closed by the peer"

    # --- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our hello if this end called."""
        self.transport = cast(asyncio.Transport, transport)
        if self.refuse_at_once:
            self.end("too many connections")
        if self._begin is not None:
            self.transport.write(link_frame(self._begin))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that this connection has ended."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._on_lost(self, str(exc) if exc is not None else self._reason)
        self.session = None

    def pause_writing(self) -> None:
        """Stop sending: the socket accepts no more."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Resume sending."""
        self._is_paused = False
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; anything invalid ends the connection."""
        self.received_s = time.monotonic()
        try:
            for number, body in self._reader.feed(data):
                if number:
                    self._take(number, body)
                else:
                    self._handle_link_frame(body)
        except LinkError as error:
            self.end(str(error))

    # --- frames ------------------------------------------------------------------------------------------------------

    def _take(self, number: int, body: bytes) -> None:
        if self.session is None:
            raise LinkError(f"frame {number} arrived before a hello")
        self.bodies_s = self.received_s
        if self.session.accept(number):
            self._on_body(self, body)
        self._unacknowledged += 1
        if self._unacknowledged >= ACKNOWLEDGE_EVERY:
            self._acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(ACKNOWLEDGE_AFTER_S, self._acknowledge)

    def _handle_link_frame(self, body: bytes) -> None:
        frame = read_link_frame(body)
        if isinstance(frame, Hello):
            if self.session is not None:
                raise LinkError("a second hello arrived over one connection")
            self.session = self._on_hello(self, frame)
            self._reader.body_bytes_max = BODY_BYTES_MAX
            if self._begin is None:
                self.write(link_frame(self.session.hello()))
            self.flush()
        elif self.session is None:
            raise LinkError(f"{type(frame).__name__} arrived before a hello")
        elif isinstance(frame, Acknowledgement):
            self.session.acknowledge(frame.number)
        elif not frame.is_answer:
            self.write(link_frame(Probe(frame.sent_ms, True)))
            self.on_clients(self.peer, frame.clients)
        elif self._probed_s is not None and frame.sent_ms == self._probed_s * 1_000:  # What it repeats is not trusted.
            self._measure((time.monotonic() - self._probed_s) * 1_000)
            self._probed_s = None

    def _measure(self, rtt_ms: float) -> None:
        smoothed_ms = rtt_ms if self.rtt_ms is None else self.rtt_ms
        self.rtt_ms = max(smoothed_ms + SMOOTHING_SHARE * (rtt_ms - smoothed_ms), 0.0)
        self.on_round_trip(time.monotonic(), rtt_ms)

    def _acknowledge(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._unacknowledged and self.session is not None:
            self._unacknowledged = 0
            self.write(link_frame(Acknowledgement(self.session.received)))

    # --- called by the links -----------------------------------------------------------------------------------------

    def probe(self, clients: tuple[str, ...] = ()) -> None:
        """Send a probe, whose answer shows the round trip, with clients to announce."""
        if self.session is not None:
            if self._probed_s is None:  # Else the answer due is still on its way: this one keeps the connection alive.
                self._probed_s = time.monotonic()
            self.write(link_frame(Probe(self._probed_s * 1_000, False, clients)))

    def write(self, data: bytes) -> None:
        """Send bytes of whole frames, unless the connection is closing."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def flush_soon(self) -> None:
        """Send what the session holds in the next turn of the event loop, all at once."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send what the session holds, until the socket accepts no more."""
        self._is_flush_due = False
        while self.session is not None and self.session.has_unsent and not self._is_paused:
            self.write(b"".join([frame(*each) for each in self.session.take_unsent(WRITE_BYTES_MAX)]))

    def end(self, reason: str) -> None:
        """End the connection at once."""
        self._reason = reason
        if self.transport is not None:
            self.transport.abort()
