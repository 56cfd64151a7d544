"""Members and repairs in the live view, a part of :class:`schemas.live_view.LiveView`."""

from msgspec import Struct


class ShownMember(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that is not in service, or died recently; its fields are those of :class:`schemas.member.Member`.

    ``in_overlay`` means that it is in the overlay in force; ``deaths`` counts recent deaths. ``position`` is that on a
    map of a broker outside the inventory's file, None if unknown.
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
    """A broker that is not a member and asks to join: since when, through which agent, and its address.

    ``to_do`` says what an operator must do to admit it, and why it is not admitted yet.
    """

    broker: str
    since_ms: int
    to_do: str
    agent: str = ""
    address: str = ""


class ShownRepair(Struct, frozen=True, kw_only=True):
    """A plan that removes lost brokers: when they died, and when its overlay came into force, 0 if not yet."""

    plan: str
    lost: tuple[str, ...]
    dead_since_ms: int
    whole_ms: int
    phase: str


class ShownFleet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All known brokers: how many are in each state, and those not simply in service, sorted by name.

    ``announced`` are not members yet. ``repairs`` are the latest, oldest first. ``traffic_at_risk_per_s`` is the
    notifications per second that passed brokers which are in the overlay in force but dead or restarted empty; None if
    no window shows it.
    """

    counts: dict[str, int] = {}
    members: tuple[ShownMember, ...] = ()
    announced: tuple[ShownAnnounced, ...] = ()
    repairs: tuple[ShownRepair, ...] = ()
    traffic_at_risk_per_s: float | None = 0.0
