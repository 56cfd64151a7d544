"""The parts of the emulated overlay: brokers with their queue, ends of links, and the counters of both.

Plain state; :mod:`producers.emulator.emulate_overlay` changes it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from regraft.producers.brokers.broker_messages import ClientRequest, Effect, Message, Notification
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.due_heartbeats import Heartbeats
from regraft.producers.emulator.judge_losses import CopyKey, IncarnationEnd
from regraft.schemas.command import Command
from regraft.schemas.telemetry import ClientChange, LinkProbe

DEATHS_KEPT_MAX = 100  # Deaths of neighbours that are remembered for a broker.


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A neighbour is dead."""

    peer: str


Served = Message | ClientRequest | Command | PeerLost


class QueueCounters:
    """Counters of one queue since boot, as telemetry reports them."""

    __slots__ = (
        "busy_ms",
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
        "notifications_out",
        "queue_length_max",
        "wait_ms",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.messages_out = 0
        self.notifications_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.busy_ms = 0.0
        self.queue_length_max = 0  # Since telemetry last read and reset it.
        self.wait_ms = 0.0

    def note_served(self, message: Served, busy_ms: float) -> None:
        """Count a message that came, waited for nothing and took this long."""
        self.messages_in += 1
        self.messages_out += 1
        self.busy_ms += busy_ms
        if isinstance(message, Notification):
            self.notifications_out += 1
            self.bytes_in += message.size_bytes
            self.bytes_out += message.size_bytes


class EmulatedBroker:
    """One incarnation of a broker: its core behind one bounded service queue, and its telemetry.

    ``is_outside``: it is not part of the overlay, so clients must wait; ``has_rejected``: it has refused a client,
    because it accepts none now. ``is_suspended``: its loop is stopped; ``is_overdue``: the message in service fell due
    while it was stopped. ``arrives_from_ms``: nothing that this incarnation sends arrives before, because the
    neighbours of the previous incarnation must first learn of its end. ``lost``: notifications in it, or on their way
    to it, when it died; ``neighbour_deaths``: deaths of its neighbours. ``counts_as_dead``: others consider this
    incarnation over, although the broker may live, until it is installed outside the overlay. ``known_as``: the life
    that others know, an earlier one until a plan lets this one join. ``probes``: measured since the last batch.
    """

    __slots__ = (
        "arrives_from_ms",
        "batches_sent",
        "cells",
        "changes",
        "core",
        "counters",
        "counts_as_dead",
        "has_rejected",
        "heartbeats",
        "is_dead",
        "is_outside",
        "is_overdue",
        "is_suspended",
        "known_as",
        "lost",
        "name",
        "neighbour_deaths",
        "overflow_count",
        "probes",
        "queue",
        "service_began_ms",
    )

    def __init__(self, core: BrokerProtocol, cells: DeliveryCells) -> None:
        self.name = core.broker
        self.core = core
        self.cells = cells
        self.changes: list[ClientChange] = []
        self.probes: list[LinkProbe] = []
        self.heartbeats = Heartbeats()
        self.counters = QueueCounters()
        self.queue: deque[tuple[str | None, Served, float]] = deque()  # With arrival time; the first is in service.
        self.service_began_ms = 0.0
        self.overflow_count = 0
        self.arrives_from_ms = 0.0
        self.lost: set[CopyKey] = set()
        self.neighbour_deaths: deque[IncarnationEnd] = deque(maxlen=DEATHS_KEPT_MAX)
        self.batches_sent = 0
        self.known_as = self
        self.is_dead = self.is_outside = self.has_rejected = self.is_suspended = self.is_overdue = False
        self.counts_as_dead = False

    def handle(self, source: str | None, message: Served, now_ms: float) -> list[Effect]:
        """Let its core handle a message."""
        if isinstance(message, PeerLost):
            return self.core.lose_peer(message.peer, now_ms)
        return self.core.handle(source, message, now_ms)

    @property
    def is_awaited(self) -> bool:
        """Whether clients may be waiting for it: it is outside the overlay, or has turned one away."""
        return self.is_outside or self.has_rejected


class LinkEnd:
    """The outgoing end of a link: the messages on their way from one broker to another, in the order they were sent.

    It reaches only one incarnation of the peer, ``target``. Nothing arrives before ``first_arrival_ms``.
    """

    __slots__ = ("broker", "busy_until_ms", "counters", "in_transit", "last_arrival_ms", "peer", "target", "waits_ms")

    def __init__(self, broker: str, target: EmulatedBroker, counters: QueueCounters, first_arrival_ms: float) -> None:
        self.broker = broker
        self.peer = target.name
        self.target = target
        self.counters = counters
        self.in_transit: deque[Message] = deque()
        self.waits_ms: deque[float] = deque()  # Of the same messages; empty if bandwidth is unlimited.
        self.busy_until_ms = 0.0
        self.last_arrival_ms = first_arrival_ms


@dataclass(frozen=True, slots=True)
class Homes:
    """What clients learn about a broker when they try to connect to it."""

    brokers: dict[str, EmulatedBroker]

    def is_serving(self, name: str) -> bool:
        """Return True if a broker accepts clients."""
        return not self.brokers[name].is_outside

    def may_accept(self, name: str) -> bool:
        """Return True if a broker is alive and in a live overlay, so that it may come to accept clients.

        One that lives but counts as dead gets no command to accept any: it begins again outside the overlay.
        """
        broker = self.brokers[name]
        return not (broker.is_dead or broker.counts_as_dead) and bool(broker.core.live_neighbours)
