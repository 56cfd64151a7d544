"""LiveView: what the control loop shows of itself, as JSON: whole in a status file, in parts in Valkey or Redis.

A view is written whole each time and replaces the one before. Readers pass over fields that they do not know, so a new
field with a default needs no new version; a field that goes or changes its meaning does. Phases and verdicts are words
here: those that only a newer controller has must not hide a plan.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from regraft.schemas.cost_point import CostPoint
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.order_book import StandingOrders
from regraft.schemas.plan import ClientMove, HomeMove, IdMove, LinkPair
from regraft.schemas.shown_fleet import ShownFleet

VIEW_VERSION = 1


class LiveViewError(ValueError):
    """The text is not a live view that this Regraft can read; the message says why."""


class NewerViewError(LiveViewError):
    """The view is of a version that this Regraft does not know."""


class ShownConfiguration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The overlay in force. A ring has the ID of each broker, and how many bits IDs have.

    A structured cyclic overlay has its regions, each with its broker of every cluster, and which regions are linked.
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
    """What a window holds and what it lacks: ``fault`` is empty when it is complete.

    ``epoch_min`` and ``epoch_max`` are -1 when no broker was heard. ``users`` is None where users are not known.
    ``clock_offsets_ms`` names the brokers whose clocks are farthest from Kafka's, below 0 where they are behind.
    ``notifications`` are those of the sample where ``sample_share`` is below 1: divided by it, they estimate all.
    """

    start_ms: int
    end_ms: int
    notifications: int
    epoch_min: int
    epoch_max: int
    is_complete: bool
    fault: str
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
    """What a link carried both ways; its queue and congestion are those of the worse end."""

    a: str
    b: str
    notifications_per_s: float
    bytes_per_s: float
    rtt_ms: float | None
    queue_length_max: int
    congestion: float


class ShownBroker(Struct, frozen=True):
    """What a broker processed, and how many publishers published there last."""

    broker: str
    notifications_per_s: float
    busy_share: float
    queue_length_last: int
    queue_length_max: int
    congestion: float
    publishers: int


class ShownNetwork(Struct, frozen=True):
    """Links and brokers in one window, sorted."""

    window_end_ms: int
    links: tuple[ShownLink, ...]
    brokers: tuple[ShownBroker, ...]


class ShownChanges(Struct, frozen=True, kw_only=True):
    """What a proposal or a plan changes: of clients and IDs only the first moves, of ``move_count`` and so on.

    ``has_places``: IDs are places of a structured cyclic overlay.
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

    ``state_verdict`` is set when the state as a whole was refused.
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
    """What a shadow planner has made so far. ``homes`` names the clients that are elsewhere on its overlay."""

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
    faults: int
    fault_text: str
    last_plans: tuple[ShadowPlan, ...]
    regions: tuple[tuple[str, ...], ...] = ()
    region_links: tuple[tuple[int, int], ...] = ()


class ShownBill(Struct, frozen=True, kw_only=True):
    """What the traffic of a window would come to in 30 days, in ``currency``, between brokers and to subscribers.

    ``per_million`` is the whole for a million hand-overs, which does not rise and fall with traffic; None without any.
    """

    currency: str
    window_end_ms: int
    links_per_month: float
    access_per_month: float
    per_million: float | None

    @property
    def per_month(self) -> float:
        """The whole of it."""
        return self.links_per_month + self.access_per_month


class ShownSampling(Struct, frozen=True):
    """Which share of the notifications brokers are asked to report, since when (0: since ever), and why."""

    share_asked: float = 1.0
    since_ms: int = 0
    reason: str = ""


class Horizon(Struct, frozen=True):
    """How far the last decision looked back.

    ``windows_wanted`` follows from the settings and ``lifetime_s``, the mean lifetime of a subscription (None when too
    little is known); ``windows`` of them were there. ``is_measured`` is False where the settings give the lifetime.
    """

    windows: int
    windows_wanted: int
    lifetime_s: float | None
    is_measured: bool


class DecisionTimes(Struct, frozen=True):
    """How long the decisions of one planner took, judge and choice included."""

    count: int = 0
    last_ms: float = 0.0
    mean_ms: float = 0.0
    max_ms: float = 0.0

    def and_one(self, duration_ms: float) -> "DecisionTimes":
        """Return them with one more."""
        count = self.count + 1
        mean_ms = self.mean_ms + (duration_ms - self.mean_ms) / count
        return DecisionTimes(count, duration_ms, mean_ms, max(self.max_ms, duration_ms))


class ViewCounts(Struct, frozen=True, kw_only=True):
    """Counts and short series of one control loop since its start (windows of the look-back included).

    ``plan_in_review`` waits for a person, ``plan_running`` is executed or, of several the newest, checked; both are
    empty otherwise.
    ``window_close_to_command_ms`` is by plan, ``window_end_to_state_ms`` of the last windows, oldest first,
    ``decision_ms`` by role and planner: ``shadow:swap_links_ci``. ``horizon`` is None before the first decision on a
    complete window. ``leader`` leads with number ``term``, empty where nobody is known to; it is who shows this, unless
    that ``is_standby``, which knows no plans and no windows. ``closable`` are the brokers without clients.
    ``bill_first`` is of the last complete window of the overlay that the controller began with, ``bill`` of the newest;
    None where traffic is not charged. ``sampling`` is what brokers are asked to report.
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
    closable: tuple[str, ...] = ()
    bill_first: ShownBill | None = None
    bill: ShownBill | None = None
    sampling: ShownSampling = ShownSampling()


class LiveView(ViewCounts, frozen=True, kw_only=True):
    """All that is shown of a control loop. Each field that ViewCounts lacks is a part with its own key.

    ``window`` and ``network`` are of the newest window, None before the first; ``plans`` are by epoch, ``cost`` and
    ``events`` oldest first; ``refusals`` are by verdict, ``faults`` by what went wrong on the borders; ``members`` is
    the fleet.
    """

    configuration: ShownConfiguration
    window: ShownWindow | None
    network: ShownNetwork | None
    cost: tuple[CostPoint, ...]
    plans: tuple[ShownPlan, ...]
    orders: StandingOrders
    refusals: dict[str, int]
    events: tuple[AdaptationEvent, ...]
    last_decision: ShownDecision | None
    faults: dict[str, int]
    shadows: dict[str, ShownShadow]
    members: ShownFleet = ShownFleet()


COUNTS = "counts"
PARTS = tuple(name for name in LiveView.__struct_fields__ if name not in ViewCounts.__struct_fields__)
VIEW_KEYS = (*PARTS, COUNTS)


class _Version(Struct):
    version: int = VIEW_VERSION  # Views from before they had a version are like the first.


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
    """Return the view that a text holds. Raises LiveViewError if it holds none, or one of a newer version."""
    check_version(text)
    view: LiveView = _read(_VIEW, text)
    return view


def encode_keys(view: LiveView) -> dict[str, bytes]:
    """Return the view in parts, the JSON text of each of VIEW_KEYS."""
    counts = ViewCounts(**{name: getattr(view, name) for name in ViewCounts.__struct_fields__})
    return {part: msgspec.json.encode(getattr(view, part)) for part in PARTS} | {COUNTS: msgspec.json.encode(counts)}


def decode_keys(texts: Mapping[str, bytes]) -> LiveView:
    """Return the view whose parts these are.

    Raises LiveViewError if one of VIEW_KEYS is missing or cannot be read, or the view is of a newer version.
    """
    missing = [key for key in VIEW_KEYS if key not in texts]
    if missing:
        raise LiveViewError(f"it lacks {', '.join(missing)}: it may come from an older Regraft")
    check_version(texts[COUNTS])
    found = {key: decode_key(key, texts[key]) for key in VIEW_KEYS}
    return LiveView(**msgspec.structs.asdict(found.pop(COUNTS)), **found)


def decode_key(key: str, text: bytes) -> Any:
    """Return what one of VIEW_KEYS holds, of the type of its field; for COUNTS a ViewCounts.

    Raises LiveViewError. Look at :func:`check_version` of COUNTS first.
    """
    return _read(_KEYS[key], text)


def check_version(text: bytes) -> None:
    """Raise NewerViewError if a view, or its COUNTS, is of a version that this Regraft does not know.

    Raises LiveViewError when it is not JSON.
    """
    version = _read(_VERSION, text).version
    if version > VIEW_VERSION:
        raise NewerViewError(
            f"it has version {version}, this Regraft reads versions up to {VIEW_VERSION}: "
            "use the same version of Regraft as the controller"
        )


def _read(decoder: Any, text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LiveViewError(str(error)) from error
