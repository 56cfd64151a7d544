"""Members, repairs, costs, durations and limits: what others than the view's writer and readers need of it, too."""

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


class ShownLimits(Struct, frozen=True):
    """How old a window may be that decisions rest on, and how long each phase that involves brokers may take.

    A phase that is missing has no limit.
    """

    window_age_ms_max: int = 60_000
    phase_ms_max: dict[str, int] = {}


class DecisionTimes(Struct, frozen=True):
    """The durations of one planner's decisions, judge and choice included."""

    count: int = 0
    last_ms: float = 0.0
    mean_ms: float = 0.0
    max_ms: float = 0.0

    def with_decision(self, duration_ms: float) -> "DecisionTimes":
        """Return the times with one more decision."""
        count = self.count + 1
        mean_ms = self.mean_ms + (duration_ms - self.mean_ms) / count
        return DecisionTimes(count, duration_ms, mean_ms, max(self.max_ms, duration_ms))


class CostPoint(Struct, frozen=True, kw_only=True):
    """The cost of one window, per second.

    ``cost_per_s`` is that of the window's overlay and homes of clients, ``cost_bootstrap_per_s`` that of the first
    overlay, with clients where they were before any plan moved them, ``cost_counted_per_s`` the sum of the brokers'
    counters, None on a ring. ``epoch`` is the newest epoch of the window; if a transition ran during it,
    ``is_one_epoch`` is False, and both overlays count by their share of the window's time. ``cost_shadows_per_s`` is
    the cost on the overlays of shadow planners, by planner, for windows since this controller started.
    ``cost_least_per_s`` is a lower bound for any overlay on this window, None for most windows because it is computed
    once a minute, and on a ring.

    ``sample_share`` is the share of notifications that the window knows in full: below 1, all costs but the counted one
    are estimates. ``cost_error_per_s`` is the standard error of ``cost_per_s``, None if exact or not known.
    """

    window_end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_counted_per_s: float | None
    epoch: int
    is_one_epoch: bool
    is_complete: bool
    notifications_per_s: float | None = None  # Missing from views of earlier versions.
    cost_shadows_per_s: dict[str, float] = {}
    cost_least_per_s: float | None = None
    sample_share: float = 1.0
    cost_error_per_s: float | None = None
