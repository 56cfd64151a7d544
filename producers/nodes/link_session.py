"""One end of the link to one peer, whatever happens to the connection: numbers, what is not acknowledged, lives. Pure.

In: bodies to send, hellos, acknowledgements and numbers that came. Out: what to send again, and whether the peer has
begun another life. Sockets and time belong to :mod:`producers.nodes.run_links`.

A *life* is one start of a node, or what it is from an install on: two ends whose lives both last lose nothing between
them, and what was meant for a life that is over is never given to the next.
"""

from __future__ import annotations

from collections import deque

import msgspec

from regraft.producers.nodes.carried_messages import LinkError, is_notification

LINK_VERSION = 1


class Hello(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """The first frame in both directions.

    ``peer_life`` is the life of the other end that the sender has met last, empty for none, and ``received`` how many
    of that life's frames it has taken. ``called`` is whom a caller wants to speak to, empty from who answers.
    """

    version: int
    broker: str
    life: str
    peer_life: str
    received: int
    called: str = ""


class LinkSession:
    """What one life of a node owes and has had of a peer. ``received`` counts the frames of the peer's present life.

    ``bytes_kept`` are those of the bodies that are not acknowledged. Frames are numbered from 1 for each pair of lives.
    """

    def __init__(self, broker: str, life: str) -> None:
        self.broker, self.life = broker, life
        self.peer_life = ""
        self.received = 0
        self.bytes_kept = 0
        self.over_count = 0  # Frames that are owed no more: acknowledged, or of a life of the peer that has ended.
        self.acknowledged_count = self.acknowledged_bytes = self.acknowledged_notifications = 0
        self.lost_notifications = 0  # Not acknowledged when a life of either end was over.
        self._kept: deque[bytes] = deque()
        self._first_number = 1  # Of what is kept.
        self._sent = 0  # How much of what is kept has gone over the present connection.
        self._renewed_from: int | None = None  # From which place on what is kept is for the peer's next life.

    def __len__(self) -> int:
        return len(self._kept)

    def hello(self, called: str = "") -> Hello:
        """Return what to begin a connection with."""
        return Hello(LINK_VERSION, self.broker, self.life, self.peer_life, self.received, called)

    def greet(self, hello: Hello) -> bool:
        """Take the peer's hello; return True if it has begun another life, not announced before.

        Raises LinkError when its numbers cannot be.
        """
        self._sent = 0
        if hello.life == self.peer_life:
            self.acknowledge(hello.received if hello.peer_life == self.life else 0)
            return False
        was_known, was_announced = self.peer_life != "", self._renewed_from is not None
        if was_known:
            for _ in range(len(self._kept) if self._renewed_from is None else self._renewed_from):
                body = self._kept.popleft()
                self.bytes_kept -= len(body)
                self.over_count += 1
                self.lost_notifications += is_notification(body)
        self.peer_life, self.received, self._first_number, self._renewed_from = hello.life, 0, 1, None
        return was_known and not was_announced

    def renew(self) -> None:
        """Keep what is put in from now on for the life that the peer has, or begins with its next hello."""
        if self.peer_life:
            self._renewed_from = len(self._kept)

    def call_off_renewal(self) -> None:
        """Take another life of the peer for its death again."""
        self._renewed_from = None

    def successor(self, life: str) -> LinkSession:
        """Return the session of our own next life, which owes nothing; the counts continue."""
        lost = sum(map(is_notification, self._kept))
        session = LinkSession(self.broker, life)
        session.acknowledged_count = self.acknowledged_count
        session.acknowledged_bytes = self.acknowledged_bytes
        session.acknowledged_notifications = self.acknowledged_notifications
        session.lost_notifications = self.lost_notifications + lost
        return session

    def put(self, body: bytes) -> None:
        """Add what the peer is to get."""
        self._kept.append(body)
        self.bytes_kept += len(body)

    def take_unsent(self, bytes_max: int) -> list[tuple[int, bytes]]:
        """Return what to send next, with its numbers: one frame at least if there is any."""
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
        """Return True if something has not gone over the present connection."""
        return self._sent < len(self._kept)

    def acknowledge(self, number: int) -> None:
        """Forget what the peer has taken; raise LinkError for what was never sent, or was forgotten before."""
        count = number - self._first_number + 1
        if not 0 <= count <= len(self._kept):
            last = self._first_number + len(self._kept) - 1
            raise LinkError(f"a peer acknowledged frame {number}; it can be from {self._first_number - 1} to {last}")
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
        """Note a frame; return False if it has come before. Raises LinkError when one before it is missing."""
        if number > self.received + 1:
            raise LinkError(f"frame {number} came after {self.received}: the frames between are missing")
        if number <= self.received:
            return False
        self.received = number
        return True
