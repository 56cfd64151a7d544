"""Member: one known broker, what is known about it, and its state (compacted topic).

The newest record of a broker counts. A broker of the inventory without a record is in service.
"""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Items, Measure, Name, NameOrNone, Number, StoredText, Text, TimeMs


class MemberState(StrEnum):
    """The state of a broker in the fleet.

    ``joining``: runs or soon will, and waits for a plan that adds it to the overlay. ``in_service``: expected to serve.
    ``leaving``: serves until plans have taken it out of the overlay. ``dead``: silent, or declared dead. ``left``:
    known, but not expected.
    """

    JOINING = "joining"
    IN_SERVICE = "in_service"
    LEAVING = "leaving"
    DEAD = "dead"
    LEFT = "left"

    @property
    def is_serving(self) -> bool:
        """Return True if the broker is expected to report and to forward notifications."""
        return self in (MemberState.IN_SERVICE, MemberState.LEAVING)


class PeerCost(Struct, frozen=True, order=True):
    """The cost of a link to another broker, in the inventory's unit."""

    peer: Name
    cost: Measure


class Position(Struct, frozen=True):
    """A position on a map, x to the right and y upwards like longitude and latitude."""

    x: Number
    y: Number


class BrokerFacts(Struct, frozen=True):
    """What an inventory says about one broker.

    ``link_costs`` prices links to peers; the cost to others follows from ``position``, or is that of unknown links
    (:mod:`overlay.inventory.members`). ``load_max_per_s`` caps the notifications per second that may pass it, 0 for no
    cap. ``agent`` represents it in Kafka, empty if it has none. ``address`` and ``capabilities`` are for people.
    """

    processing_cost: Measure = 0.0
    link_costs: Items[PeerCost] = ()
    load_max_per_s: Measure = 0.0
    position: Position | None = None
    agent: NameOrNone = ""
    address: Text = ""
    capabilities: Items[Name] = ()


class Member(Struct, frozen=True):
    """One broker, its state since ``since_ms``, and the reason, for people.

    ``boot_ms`` is the start of the incarnation to which the state refers, 0 if unknown. ``facts`` replace what the
    inventory says about the broker; a broker outside the inventory always has them. ``deaths_ms`` are the times of its
    recent deaths, oldest first. ``returns_ms`` is when a dead broker may rejoin: 0 as soon as it is back, TIME_MS_MAX
    not without an order. ``ordered_ms`` is the time of the newest order about it that was followed, 0 for none.
    ``term`` is that of the leader that wrote this record.
    """

    broker: Name
    state: MemberState
    since_ms: TimeMs
    reason: StoredText
    boot_ms: TimeMs = 0
    facts: BrokerFacts | None = None
    deaths_ms: Items[TimeMs] = ()
    returns_ms: TimeMs = 0
    ordered_ms: TimeMs = 0
    term: Epoch = 0
