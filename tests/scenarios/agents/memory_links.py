"""Links between nodes in memory: each keeps its order, and is as slow as an action lets it be.

In: messages of a node, encoded as on a real link. Out: the same at the other end. What was sent to an incarnation of a
node that has died is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from regraft.producers.brokers.broker_messages import Message
from regraft.producers.nodes.links.carried_messages import body_of, message_of
from regraft.producers.nodes.links.meter_links import LinkStanding
from regraft.schemas.telemetry import QueueSample


class LinkLanes:
    """What is under way; ``cut`` are pairs of which the second has died since the first knew it."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str], deque[bytes]] = {}
        self.cut: set[tuple[str, str]] = set()

    def send(self, source: str, target: str, message: Message) -> None:
        """Put a message on its way."""
        if (source, target) not in self.cut:
            self.lanes.setdefault((source, target), deque()).append(body_of(message))

    def take(self, source: str, target: str) -> Message | None:
        """Return the first message that arrives, None if none is under way."""
        lane = self.lanes.get((source, target))
        if lane is None:
            return None
        body = lane.popleft()
        if not lane:
            del self.lanes[source, target]
        return message_of(body)

    def lose(self, broker: str, others: Collection[str]) -> None:
        """Lose what is under way to a node that has died, and what others send to that incarnation."""
        for other in others:
            self.lanes.pop((other, broker), None)
            self.cut.add((other, broker))


class MemoryLinks:
    """The links of one node: what a node asks of :class:`Links`."""

    def __init__(self, broker: str, lanes: LinkLanes) -> None:
        self._broker, self._lanes = broker, lanes
        self.roaming: Any = None

    def send(self, peer: str, message: Message) -> bool:
        """Send a message."""
        self._lanes.send(self._broker, peer, message)
        return True

    def renew(self, peer: str) -> None:
        """Note that messages from now on are for the present incarnation of a peer."""
        self._lanes.cut.discard((self._broker, peer))

    def cancel_renewal(self, peer: str) -> None:
        """Do nothing: the peer does not take part."""

    def want(self, peers: Collection[str]) -> None:
        """Do nothing: all are connected."""

    def close_idle(self) -> None:
        """Do nothing."""

    def begin_incarnation(self, incarnation: str) -> None:
        """Forget what was sent in the former incarnation."""
        for pair in [pair for pair in self._lanes.lanes if self._broker in pair]:
            del self._lanes.lanes[pair]

    def round_trips(self) -> list[tuple[str, float]]:
        """Return nothing: no link is measured."""
        return []

    def frames_owed(self) -> dict[str, int]:
        """Return nothing: no message has a receipt."""
        return {}

    def frames_over(self, peer: str) -> int:
        """Return 0."""
        return 0

    def sample(self, name: str) -> QueueSample:
        """Return a queue without counts."""
        return QueueSample(name, 0, 0, 0, 0, 0, 0, 0, 0)

    def standing(self, name: str) -> LinkStanding:
        """Return where a link stands that nobody measures."""
        return LinkStanding(("", ""), 0, 0, None)
