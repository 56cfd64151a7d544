"""Member: one broker that is known, what is known of it and whether it is in service (compacted topic).

The newest record of a broker counts. A broker of the inventory that has none is in service.
"""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Items, Measure, Name, NameOrNone, Number, Text, TimeMs


class MemberState(StrEnum):
    """Where a broker stands in the fleet.

    ``joining`` runs or is about to, and waits for a plan that takes it into the overlay; ``in_service`` is one to be
    counted on; ``leaving`` serves until plans have taken it out; ``dead`` is silent or was said to be; ``left`` is
    known and awaited by nobody.
    """

    JOINING = "joining"
    IN_SERVICE = "in_service"
    LEAVING = "leaving"
    DEAD = "dead"
    LEFT = "left"

    @property
    def is_serving(self) -> bool:
        """Return True if the broker is expected to be heard of and to carry notifications."""
        return self in (MemberState.IN_SERVICE, MemberState.LEAVING)


class PeerCost(Struct, frozen=True, order=True):
    """What a link to another broker would cost, in the unit of the inventory."""

    peer: Name
    cost: Measure


class Position(Struct, frozen=True):
    """A place on a map, x to the right and y upwards, as longitude and latitude."""

    x: Number
    y: Number


class BrokerFacts(Struct, frozen=True):
    """What an inventory says of one broker.

    ``link_costs`` names peers; the cost to others follows from ``position``, or is that of the unknown
    (:mod:`overlay.members`). ``load_max_per_s`` is how many notifications a second may pass it, 0 for no cap.
    ``agent`` speaks for it in Kafka, empty where it has none. ``address`` and ``capabilities`` are for people.
    """

    processing_cost: Measure = 0.0
    link_costs: Items[PeerCost] = ()
    load_max_per_s: Measure = 0.0
    position: Position | None = None
    agent: NameOrNone = ""
    address: Text = ""
    capabilities: Items[Name] = ()


class Member(Struct, frozen=True):
    """One broker, the state it is in since ``since_ms``, and why, for people.

    ``boot_ms`` is the start of the life that the state is about, 0 where it is not known. ``facts`` replace what the
    inventory says of the broker; a broker outside the inventory has them. ``deaths_ms`` are the times of its late
    deaths, oldest first, and ``returns_ms`` is when a dead one may come back, 0 for as soon as it is there, TIME_MS_MAX
    for not by itself. ``ordered_ms`` is the time of the newest order about it that was followed, 0 for none. ``term``
    is that of the leader who wrote this record.
    """

    broker: Name
    state: MemberState
    since_ms: TimeMs
    reason: Text
    boot_ms: TimeMs = 0
    facts: BrokerFacts | None = None
    deaths_ms: Items[TimeMs] = ()
    returns_ms: TimeMs = 0
    ordered_ms: TimeMs = 0
    term: Epoch = 0
