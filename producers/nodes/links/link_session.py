"""One end of the link to one peer, across connections: numbers, unacknowledged frames, incarnations. Pure.

In: bodies to send; received hellos, acknowledgements and numbers. Out: what to send again, and whether the peer has
begun another incarnation. Sockets and time belong to :mod:`producers.nodes.links.run_links`.

A node begins a *incarnation* when it starts and when an install makes it start over. While the incarnations of both
ends last, nothing is lost between them; what was meant for an incarnation that is over is never given to the next.
"""

from __future__ import annotations

from collections import deque

import msgspec

from regraft.producers.nodes.links.carried_messages import LinkError, is_notification
from regraft.schemas.bounds import Name, NameOrNone, SequenceNumber

LINK_VERSION = 1


class Hello(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """The first frame in both directions.

    ``peer_incarnation`` is the incarnation of the other end that the sender met last, empty if none, and ``received``
    how many frames of that incarnation it has received. ``called`` is the broker that a caller wants to reach, empty in
    an answer. ``former_peer_incarnation`` is the incarnation of the other end before ``peer_incarnation`` that ended
    without a plan, empty if none.
    """

    version: int
    broker: Name
    incarnation: Name
    peer_incarnation: NameOrNone
    received: SequenceNumber
    called: NameOrNone = ""
    former_peer_incarnation: NameOrNone = ""


class LinkSession:
    """What one incarnation of a node owes a peer and has received from it.

    ``received`` counts the frames of the peer's current incarnation; ``bytes_kept`` is the size of all unacknowledged
    bodies. Frames are numbered from 1 for each pair of incarnations.
    """

    def __init__(self, broker: str, incarnation: str) -> None:
        self.broker, self.incarnation = broker, incarnation
        self.peer_incarnation = self.former_peer_incarnation = ""
        self.received = 0
        self.bytes_kept = 0
        self.over_count = 0  # Frames no longer owed: acknowledged, or for an incarnation of the peer that has ended.
        self.acknowledged_count = self.acknowledged_bytes = self.acknowledged_notifications = 0
        self.lost_notifications = 0  # Unacknowledged when an incarnation of either end ended.
        self._kept: deque[bytes] = deque()
        self._first_number = 1  # Of the kept frames.
        self._sent = 0  # How many kept frames were sent over the current connection.
        self._renewed_from: int | None = None  # From this index on, kept frames are for the peer's next incarnation.

    def __len__(self) -> int:
        return len(self._kept)

    def hello(self, called: str = "") -> Hello:
        """Return the hello that begins a connection."""
        return Hello(
            LINK_VERSION,
            self.broker,
            self.incarnation,
            self.peer_incarnation,
            self.received,
            called,
            self.former_peer_incarnation,
        )

    def handle_hello(self, hello: Hello) -> bool:
        """Handle the peer's hello; return True if it has begun another incarnation without a renewal.

        Raises LinkError if it acknowledges frames that were never sent.
        """
        self._sent = 0
        if hello.incarnation == self.peer_incarnation:
            self.acknowledge(hello.received if hello.peer_incarnation == self.incarnation else 0)
            return False
        was_known, was_announced = self.peer_incarnation != "", self._renewed_from is not None
        if was_known:
            for _ in range(len(self._kept) if self._renewed_from is None else self._renewed_from):
                body = self._kept.popleft()
                self.bytes_kept -= len(body)
                self.over_count += 1
                self.lost_notifications += is_notification(body)
        self.former_peer_incarnation = self.peer_incarnation if was_known and not was_announced else ""
        self.peer_incarnation, self.received, self._first_number, self._renewed_from = hello.incarnation, 0, 1, None
        return was_known and not was_announced

    def renew(self) -> None:
        """Keep bodies from now on for the peer even if its next hello shows another incarnation."""
        if self.peer_incarnation:
            self._renewed_from = len(self._kept)

    def cancel_renewal(self) -> None:
        """Treat another incarnation of the peer as its death again."""
        self._renewed_from = None

    def successor(self, incarnation: str) -> LinkSession:
        """Return the session of this node's next incarnation, which owes nothing; the counts continue."""
        lost = sum(map(is_notification, self._kept))
        session = LinkSession(self.broker, incarnation)
        session.acknowledged_count = self.acknowledged_count
        session.acknowledged_bytes = self.acknowledged_bytes
        session.acknowledged_notifications = self.acknowledged_notifications
        session.lost_notifications = self.lost_notifications + lost
        return session

    def put(self, body: bytes) -> None:
        """Add a body for the peer."""
        self._kept.append(body)
        self.bytes_kept += len(body)

    def take_unsent(self, bytes_max: int) -> list[tuple[int, bytes]]:
        """Return numbers and bodies of the next frames to send: at least one if any waits, then up to ``bytes_max``."""
        taken: list[tuple[int, bytes]] = []
        size = 0
        while self._sent < len(self._kept) and (not taken or size < bytes_max):
            body = self._kept[self._sent]
            taken.append((self._first_number + self._sent, body))
            size += len(body)
            self._sent += 1
        return taken

    @property
    def has_unsent(self) -> bool:
        """Return True if a kept frame was not yet sent over the current connection."""
        return self._sent < len(self._kept)

    def acknowledge(self, number: int) -> None:
        """Forget frames that the peer has received; raise LinkError for a number never sent, or already forgotten."""
        count = number - self._first_number + 1
        if not 0 <= count <= len(self._kept):
            last = self._first_number + len(self._kept) - 1
            raise LinkError(
                f"a peer acknowledged frame {number}, but can only acknowledge {self._first_number - 1} to {last}"
            )
        for _ in range(count):
            body = self._kept.popleft()
            self.bytes_kept -= len(body)
            self.acknowledged_bytes += len(body)
            self.acknowledged_notifications += is_notification(body)
        self._first_number += count
        self.over_count += count
        self._sent = max(self._sent - count, 0)
        self.acknowledged_count += count
        if self._renewed_from is not None and count:
            self._renewed_from = self._renewed_from - count if count <= self._renewed_from else None

    def accept(self, number: int) -> bool:
        """Note a received frame; return False if it is a repeat. Raises LinkError if one before it is missing."""
        if number > self.received + 1:
            raise LinkError(f"frame {number} arrived after {self.received}: the frames between are missing")
        if number <= self.received:
            return False
        self.received = number
        return True
