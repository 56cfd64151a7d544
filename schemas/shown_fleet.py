"""What the live view shows of members and repairs: a part of :class:`schemas.live_view.LiveView`."""

from msgspec import Struct


class ShownMember(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that does not simply serve, or that died lately: its fields are those of :class:`schemas.member.Member`.

    ``in_overlay`` means that the overlay in force has it, ``deaths`` counts the recent ones. ``position`` places a
    broker outside the inventory's file on a map, None if unknown.
    """

    broker: str
    state: str
    since_ms: int
    reason: str
    in_overlay: bool = False
    deaths: int = 0
    returns_ms: int = 0
    position: tuple[float, float] | None = None


class ShownAnnounced(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that is not a member and asks to be one, since when, through which agent, and where it listens.

    ``to_do`` says what admits it, and what keeps it out until then.
    """

    broker: str
    since_ms: int
    to_do: str
    agent: str = ""
    address: str = ""


class ShownRepair(Struct, frozen=True, kw_only=True):
    """A plan that takes lost brokers out: since when they are dead, and when its overlay was in force, 0 until then."""

    plan: str
    lost: tuple[str, ...]
    dead_since_ms: int
    whole_ms: int
    phase: str


class ShownFleet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All known brokers: how many are in each state, and those that do not simply serve, by name.

    ``announced`` are not members yet. ``repairs`` are the last ones, oldest first. ``traffic_at_risk_per_s`` is how
    many notifications a second passed brokers that are in the overlay in force and whose life in it is over, None where
    no window says so.
    """

    counts: dict[str, int] = {}
    members: tuple[ShownMember, ...] = ()
    announced: tuple[ShownAnnounced, ...] = ()
    repairs: tuple[ShownRepair, ...] = ()
    traffic_at_risk_per_s: float | None = 0.0
