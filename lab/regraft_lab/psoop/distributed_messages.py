"""Messages between brokers of the distributed protocol, with their sizes.

Plain frozen values: Jaeger07, section 4.3. How brokers handle them belongs to
:mod:`experiments.psoop.distributed_broker`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from regraft.api.emulation import CONTROL_BYTES
from regraft.api.overlays import Link, link
from regraft_lab.yardsticks.bloom_filters import BloomFilter

HEADER_BYTES = CONTROL_BYTES  # The emulator's size of a control message.
NUMBER_BYTES = 4  # A broker's id or a cost.


class MessageKind(StrEnum):
    """The purpose of a message, by which it is counted."""

    BROADCAST = "broadcast"
    PROBE = "probe"  # A round trip to learn the cost of a link that is not in the tree.
    REQUEST = "request"
    AGREED = "agreed"
    RELEASE = "release"
    REPORT = "report"  # Central planners only: a broker's deliveries as exact masks.
    HAND_OVER = "hand_over"
    COMMAND = "command"
    RESULT = "result"
    MARKER = "marker"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True)
class Step:
    """One broker on a broadcast's path: its processing cost, and the cost of the link to it (0 for the origin)."""

    broker: str
    processing_cost: float
    link_cost: float


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The filter of ``origin``, travelling over the tree of ``epoch``; ``hops_left`` is the paper's TTL.

    ``path`` runs from the origin to the sender; the receiver appends itself.
    """

    origin: str
    epoch: int
    hops_left: int
    path: tuple[Step, ...]
    filter_: BloomFilter

    @property
    def size_bytes(self) -> int:
        """Bytes of the filter, and of broker and two costs for each step."""
        return HEADER_BYTES + self.filter_.size_bytes + 3 * NUMBER_BYTES * len(self.path)


@dataclass(frozen=True, slots=True)
class Cycle:
    """A reconfiguration cycle R: the path from the asking broker to the one it wants to link to, and the new link.

    ``link_costs[t]`` is the link behind ``brokers[t]``; the last one is the new link, which closes the cycle.
    """

    name: str
    epoch: int
    brokers: tuple[str, ...]
    link_costs: tuple[float, ...]
    processing_costs: tuple[float, ...]

    @property
    def link_added(self) -> Link:
        """The new link."""
        return link(self.brokers[0], self.brokers[-1])

    @property
    def path_links(self) -> tuple[Link, ...]:
        """The links of the tree on the cycle, in order."""
        return tuple(link(a, b) for a, b in pairwise(self.brokers))


@dataclass(frozen=True, slots=True)
class Request:
    """Asks every broker of the cycle for its estimate; ``costs[t]`` is the partial sum of cost_R without link t."""

    cycle: Cycle
    costs: tuple[float, ...]
    deadline_ms: float

    @property
    def size_bytes(self) -> int:
        """Bytes of broker, two costs and one entry of the cost vector for each place of the cycle."""
        return HEADER_BYTES + 4 * NUMBER_BYTES * len(self.cycle.brokers)


@dataclass(frozen=True, slots=True)
class Agreed:
    """The cycle's last broker has decided for the exchange; travels back along the path."""

    cycle: Cycle

    @property
    def size_bytes(self) -> int:
        """A header."""
        return HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Release:
    """The cycle's brokers are free again, for this reason; travels back along the path."""

    cycle: Cycle
    reason: str

    @property
    def size_bytes(self) -> int:
        """A header."""
        return HEADER_BYTES


ProtocolMessage = Broadcast | Request | Agreed | Release
KIND_OF_MESSAGE: dict[type[ProtocolMessage], MessageKind] = {
    Broadcast: MessageKind.BROADCAST,
    Request: MessageKind.REQUEST,
    Agreed: MessageKind.AGREED,
    Release: MessageKind.RELEASE,
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange that a cycle has agreed on: its new link for one of the others."""

    cycle: Cycle
    link_removed: Link


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send the message over the link to ``peer``."""

    peer: str
    message: ProtocolMessage


@dataclass(frozen=True, slots=True)
class HandOver:
    """Effect: hand the exchange over for execution."""

    exchange: Exchange


Effect = Send | HandOver
