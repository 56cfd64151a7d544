"""LiveView: the state of the control loop as JSON, whole in a status file, in parts in Valkey or Redis.

Each view is written in full and replaces the one before. Readers ignore unknown fields, so a new field with a default
needs no new version; removing a field or changing its meaning does. Phases and verdicts are strings here, so that
values of a newer controller do not hide a plan.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from regraft.schemas.event import AdaptationEvent
from regraft.schemas.order_book import OrdersInForce
from regraft.schemas.plan import ClientMove, HomeMove, IdMove, LinkPair
from regraft.schemas.same_fields import like
from regraft.schemas.shown_state import CostPoint, DecisionTimes, ShownFleet, ShownLimits

VIEW_VERSION = 1


class LiveViewError(ValueError):
    """The text is not a live view that this Regraft can read; the message says why."""


class NewerViewError(LiveViewError):
    """The view is of a version that this Regraft does not know."""


class ShownConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The overlay in force. A ring has the ID of each broker and the number of bits of an ID.

    A structured cyclic overlay has its regions, each with its broker of every cluster, and the links between regions.
    """

    epoch: int
    brokers: tuple[str, ...]
    links: tuple[LinkPair, ...]
    degree_max: int
    ring: tuple[tuple[str, int], ...] = ()
    ring_bits: int = 0
    regions: tuple[tuple[str, ...], ...] = ()
    region_links: tuple[tuple[int, int], ...] = ()


class ShownWindow(Struct, frozen=True, kw_only=True):
    """What a window holds and lacks; ``error`` is empty if it is complete.

    ``epoch_min`` and ``epoch_max`` are -1 if no broker reported. ``users`` is None if users are not known.
    ``clock_offsets_ms`` has the brokers whose clocks are farthest from Kafka's, negative if behind. If ``sample_share``
    is below 1, ``notifications`` are those of the sample; divided by the share, they estimate all.
    """

    start_ms: int
    end_ms: int
    notifications: int
    epoch_min: int
    epoch_max: int
    is_complete: bool
    error: str
    short_brokers: tuple[str, ...]
    client_changes: int
    late_rows: int
    queue_length_max: int
    rtt_ms_max: float | None
    users: int | None
    users_strayed: int
    clock_offsets_ms: dict[str, int] = {}
    sample_share: float = 1.0


class ShownLink(Struct, frozen=True):
    """The traffic of a link in both directions; queue and congestion are those of the worse end."""

    a: str
    b: str
    notifications_per_s: float
    bytes_per_s: float
    rtt_ms: float | None
    queue_length_max: int
    congestion: float


class ShownBroker(Struct, frozen=True):
    """The load of a broker, and the number of publishers whose latest notifications were published there.

    ``subscribers`` without topics are registered there, None if that is unknown. ``movable`` of them may be moved by
    plans; None if clients do not stay by the inventory, or if it is unknown. ``staying`` counts the others by why they
    stay, a label of :class:`schemas.stay_reasons.StayReason`, as far as that is known.
    """

    broker: str
    notifications_per_s: float
    busy_share: float
    queue_length_last: int
    queue_length_max: int
    congestion: float
    publishers: int
    subscribers: int | None = None
    movable: int | None = None
    staying: dict[str, int] = {}


class ShownNetwork(Struct, frozen=True):
    """Links and brokers of one window, sorted."""

    window_end_ms: int
    links: tuple[ShownLink, ...]
    brokers: tuple[ShownBroker, ...]


class ShownChanges(Struct, frozen=True, kw_only=True):
    """What a proposal or a plan changes; ``moves`` are only the first of ``move_count``, likewise ``id_moves``.

    With ``has_places``, IDs are places of a structured cyclic overlay.
    """

    links_removed: tuple[LinkPair, ...]
    links_added: tuple[LinkPair, ...]
    moves: tuple[ClientMove, ...]
    move_count: int
    id_moves: tuple[IdMove, ...]
    id_move_count: int
    subscribers_moved: tuple[HomeMove, ...] = ()
    has_places: bool = False


class ShownProposal(ShownChanges, frozen=True, kw_only=True):
    """A proposal; its fields are those of :class:`schemas.plan.Proposal`."""

    planner: str
    cost_before_per_s: float
    cost_after_per_s: float
    price_per_s: float
    reason: str
    verdict: str
    verdict_reason: str
    gain_observed_per_s: float | None
    gain_error_per_s: float | None = None


class ShownPhase(Struct, frozen=True):
    """When a plan entered a phase, and why."""

    phase: str
    time_ms: int
    reason: str


class ShownPlan(ShownChanges, frozen=True, kw_only=True):
    """A plan without its target; its fields are those of :class:`schemas.plan.Plan`."""

    plan: str
    epoch_from: int
    epoch_to: int
    window_end_ms: int
    proposals: tuple[ShownProposal, ...]
    cost_before_per_s: float
    cost_predicted_per_s: float
    phase: str
    history: tuple[ShownPhase, ...]
    undoes: str
    cost_observed_per_s: float | None
    control_messages: int
    refused: tuple[ShownProposal, ...]
    digest: str = ""
    sample_share: float = 1.0
    gain_error_per_s: float | None = None


class ShownDecision(Struct, frozen=True, kw_only=True):
    """The outcome of a window: a plan or None, and the first refused proposals.

    ``state_verdict`` is set if the state as a whole was refused.
    """

    window_end_ms: int
    plan: ShownPlan | None
    state_verdict: str | None
    state_reason: str
    refused: tuple[ShownProposal, ...]


class ShadowPlan(ShownChanges, frozen=True, kw_only=True):
    """A plan that a shadow planner would have made."""

    window_end_ms: int
    cost_before_per_s: float
    cost_predicted_per_s: float
    cost_observed_per_s: float | None


class ShownShadow(Struct, frozen=True, kw_only=True):
    """Results since the start from the overlay of ``epoch_start``. ``homes``: the clients that it has moved."""

    plans: int
    plans_taken_back: int
    links_exchanged: int
    publishers_moved: int
    users_moved: int
    id_moves: int
    homes: dict[str, str]
    links: tuple[LinkPair, ...]
    ring: tuple[tuple[str, int], ...]
    refusals: dict[str, int]
    errors: int
    error_text: str
    last_plans: tuple[ShadowPlan, ...]
    regions: tuple[tuple[str, ...], ...] = ()
    region_links: tuple[tuple[int, int], ...] = ()
    epoch_start: int = 0


class ShownBill(Struct, frozen=True, kw_only=True):
    """What 30 days of a window's traffic would cost, in ``currency``, between brokers and to subscribers.

    ``per_million`` is the total per million hand-overs, whatever the volume of traffic is; None without hand-overs.
    """

    currency: str
    window_end_ms: int
    links_per_month: float
    access_per_month: float
    per_million: float | None

    @property
    def per_month(self) -> float:
        """The total of links and access."""
        return self.links_per_month + self.access_per_month


class ShownSampling(Struct, frozen=True):
    """The share of notifications that brokers are asked to report, since when (0: always), and why."""

    share_asked: float = 1.0
    since_ms: int = 0
    reason: str = ""


class Horizon(Struct, frozen=True):
    """How far the last decision looked back.

    ``windows_wanted`` follows from the settings and ``lifetime_s``, the mean lifetime of a subscription (None if too
    little is known); ``windows`` of these were available. ``is_measured`` is False if the lifetime comes from the
    settings.
    """

    windows: int
    windows_wanted: int
    lifetime_s: float | None
    is_measured: bool


class ViewCounts(Struct, frozen=True, kw_only=True):
    """Counts and short series of one control loop since its start (windows of the look-back included).

    ``plan_in_review`` waits for an operator; ``plan_running`` is being executed, or else is the newest plan being
    verified; both are empty if there is none. ``window_close_to_command_ms`` is by plan, ``window_end_to_state_ms`` has
    the last windows, oldest first, ``decision_ms`` is by role and planner, such as ``shadow:swap_links_ci``.
    ``horizon`` is None before the first decision on a complete window.

    ``leader`` leads with number ``term``, empty if no leader is known. It is the controller that shows this view,
    unless ``is_standby``: a standby knows no plans and no windows, and ``standby_reason`` says why it must not lead,
    empty if it may. ``closable`` are the brokers without clients.
    ``bill_first`` is that of the last complete window on the overlay with which the controller began, ``bill`` that of
    the newest window; None if traffic is not charged. ``sampling`` is what brokers are asked to report.
    """

    version: int = VIEW_VERSION
    time_ms: int
    started_ms: int
    planner: str
    dry_run: bool
    plan_in_review: str
    plan_running: str
    horizon: Horizon | None
    windows_closed: int
    windows_incomplete: int
    late_rows: int
    client_changes: int
    plans_completed: int
    plans_aborted: int
    plans_undone: int
    window_close_to_command_ms: dict[str, int]
    window_end_to_state_ms: tuple[int, ...]
    decision_ms: dict[str, DecisionTimes]
    leader: str = ""
    term: int = 0
    is_standby: bool = False
    standby_reason: str = ""
    closable: tuple[str, ...] = ()
    bill_first: ShownBill | None = None
    bill: ShownBill | None = None
    sampling: ShownSampling = ShownSampling()
    limits: ShownLimits = ShownLimits()


class LiveView(ViewCounts, frozen=True, kw_only=True):
    """Everything shown about a control loop. Each field that is not in ViewCounts is a part with its own key.

    ``window`` and ``network`` are those of the newest window, None before the first. ``plans`` are sorted by epoch,
    ``cost`` and ``events`` oldest first. ``refusals`` are counts by verdict, ``errors`` counts by kind of error in
    input and output. ``members`` is the fleet.
    """

    configuration: ShownConfiguration
    window: ShownWindow | None
    network: ShownNetwork | None
    cost: tuple[CostPoint, ...]
    plans: tuple[ShownPlan, ...]
    orders: OrdersInForce
    refusals: dict[str, int]
    events: tuple[AdaptationEvent, ...]
    last_decision: ShownDecision | None
    errors: dict[str, int]
    shadows: dict[str, ShownShadow]
    members: ShownFleet = ShownFleet()


COUNTS = "counts"
PARTS = tuple(name for name in LiveView.__struct_fields__ if name not in ViewCounts.__struct_fields__)
VIEW_KEYS = (*PARTS, COUNTS)


class _Version(Struct):
    version: int = VIEW_VERSION  # Views without a version are of version 1.


_VIEW = msgspec.json.Decoder(LiveView)
_VERSION = msgspec.json.Decoder(_Version)
_KEYS: dict[str, msgspec.json.Decoder[Any]] = {
    field.name: msgspec.json.Decoder(field.type) for field in msgspec.structs.fields(LiveView) if field.name in PARTS
}
_KEYS[COUNTS] = msgspec.json.Decoder(ViewCounts)


def encode_view(view: LiveView) -> bytes:
    """Return the whole view as one JSON text."""
    return msgspec.json.encode(view)


def decode_view(text: bytes) -> LiveView:
    """Return the view in a JSON text. Raises LiveViewError if it is not a view, or one of a newer version."""
    check_version(text)
    view: LiveView = _read(_VIEW, text)
    return view


def encode_keys(view: LiveView) -> dict[str, bytes]:
    """Return the view in parts: the JSON text of each of VIEW_KEYS."""
    counts = like(ViewCounts, view)
    return {part: msgspec.json.encode(getattr(view, part)) for part in PARTS} | {COUNTS: msgspec.json.encode(counts)}


def decode_keys(texts: Mapping[str, bytes]) -> LiveView:
    """Return the view with these parts.

    Raises LiveViewError if one of VIEW_KEYS is missing or cannot be read, or the view is of a newer version.
    """
    missing = [key for key in VIEW_KEYS if key not in texts]
    if missing:
        raise LiveViewError(f"it lacks {', '.join(missing)}: it may come from an older version of Regraft")
    check_version(texts[COUNTS])
    return view_of_parts({key: decode_key(key, texts[key]) for key in VIEW_KEYS})


def view_of_parts(parts: Mapping[str, Any]) -> LiveView:
    """Return the view with these decoded parts, at least all VIEW_KEYS."""
    return LiveView(**msgspec.structs.asdict(parts[COUNTS]), **{name: parts[name] for name in PARTS})


def decode_key(key: str, text: bytes) -> Any:
    """Return the part under one of VIEW_KEYS, in the type of its field; for COUNTS, a ViewCounts.

    Raises LiveViewError if it cannot be read. Call :func:`check_version` on COUNTS first.
    """
    return _read(_KEYS[key], text)


def check_version(text: bytes) -> None:
    """Raise NewerViewError if a view, or its COUNTS, is of a version that this Regraft does not know.

    Raises LiveViewError if it is not JSON.
    """
    version = _read(_VERSION, text).version
    if version > VIEW_VERSION:
        raise NewerViewError(
            f"it has version {version}, but this version of Regraft reads versions up to {VIEW_VERSION}: "
            "use the same version of Regraft as the controller"
        )


def _read(decoder: Any, text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LiveViewError(str(error)) from error
