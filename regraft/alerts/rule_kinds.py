"""The kinds of rules, each a frozen dataclass of typed and checked parameters.

In: the parameters of one ``[[rule]]`` table. Out: a rule, or what is wrong with it. Reading the file belongs to
:mod:`alerts.read_rules`, judging windows and events to the ``watch_...`` modules.

Levels have two bounds, so that a value near one of them does not raise and clear an alert repeatedly: it is raised
above ``above`` and cleared at or below ``clear_below``, and either must hold for some windows.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_type_hints

from msgspec import Meta

from regraft.alerts.quiet_hours import QuietHoursError, parse_quiet_hours
from regraft.schemas.event import Severity

COUNTED_MAX = 10_000  # Per subject; beyond that the value is a lower bound.
QueueScope = Literal["brokers", "links", "both"]
SAMPLE: Mapping[str, object] = {
    "subject": "b01", "value": 1.0, "limit": 1.0, "detail": "why", "duration_s": 1.0, "windows": 1, "span_min": 1.0,
    "clear_min": 1.0,
}  # fmt: skip
TEXT_FIELDS = tuple(SAMPLE)
COUNT_MAX = 1_000_000  # Two months of windows of 5 s; the memory of a rule grows with it.

Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, le=1)]


def template_error(template: str) -> str:
    """Return what is wrong with the text of a rule, "" if nothing is."""
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        return f"is {template!r}: {error}"
    unknown = [name for name in fields if name not in TEXT_FIELDS]
    if unknown:
        usable = ", ".join(f"{{{name}}}" for name in TEXT_FIELDS)
        return f"is {template!r}: {{{unknown[0]}}} is unknown: use one of {usable}"
    try:
        template.format(**SAMPLE)
    except (ValueError, KeyError, IndexError) as error:
        return f"is {template!r}: {error}"
    return "" if template.strip() else "is empty: write what an operator should know"


def bound_errors(rule: object) -> list[str]:
    """Return a sentence for each parameter that is not a finite number within the bounds of its type."""
    hints = get_type_hints(type(rule), include_extras=True)
    bounds = ((name, meta) for name, hint in hints.items() for meta in getattr(hint, "__metadata__", ()))
    return [error for name, meta in bounds if (error := _bound_error(name, getattr(rule, name), meta))]


def _bound_error(name: str, value: float, bound: Meta) -> str:
    shown = f"{value:g}" if isinstance(value, float) else f"{value}"
    if not math.isfinite(value):
        return f"{name} is {shown}: write a number"
    if bound.ge is not None and value < bound.ge:
        return f"{name} is {shown}: must be at least {bound.ge}"
    if bound.gt is not None and value <= bound.gt:
        return f"{name} is {shown}: must be above {bound.gt}"
    if bound.le is not None and value > bound.le:
        return f"{name} is {shown}: must be at most {bound.le}"
    return ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The parameters of all rules.

    ``name``: the rule's name, in every message and in the key of its alerts. ``on``: what it observes. ``severity``:
    info, warning or critical. ``text``: the sentence of a raised alert, ``text_cleared`` that of a cleared one; they
    may contain {subject}, {value}, {limit}, {detail}, {duration_s}, and the rule's parameters {windows} (for_windows),
    {span_min} (span_s in minutes) and {clear_min} (clear_after_s in minutes).
    ``group``: whether alerts raised at the same time are one message.
    ``quiet``: quiet hours of this rule, "22:00-07:00 Europe/Berlin", at any severity.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ()
    LIMIT: ClassVar[str] = ""  # The parameter whose value raises the alert.

    name: str
    on: str
    severity: Severity = Severity.WARNING
    text: str = "{subject}: {value:g}, limit {limit:g}. {detail}"
    text_cleared: str = "{subject} is healthy again after {duration_s:.0f} s: {value:g}. {detail}"
    group: bool = True
    quiet: str = ""

    @property
    def limit(self) -> float:
        """Return the value that raises the alert, for its text."""
        return float(getattr(self, self.LIMIT)) if self.LIMIT else 0.0

    @property
    def windows_memory(self) -> int:
        """Return how many windows back the rule looks."""
        return 0

    @property
    def span_s_memory(self) -> float:
        """Return for how many seconds the rule still counts an event."""
        return 0.0

    def text_values(self) -> dict[str, object]:
        """Return the parameters that texts may contain, 0 for those that this kind of rule does not have."""
        minutes = {"span_min": "span_s", "clear_min": "clear_after_s"}
        values: dict[str, object] = {name: getattr(self, field, 0.0) / 60 for name, field in minutes.items()}
        return {**values, "windows": getattr(self, "for_windows", 0)}

    def errors(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        errors = []
        if not self.name or set(self.name) - set(string.ascii_lowercase + string.digits + "_-."):
            errors.append(
                f"name is {self.name!r}: use only lower-case letters, digits, _, - and ., because it is part of a key"
            )
        for field, template in (("text", self.text), ("text_cleared", self.text_cleared)):
            reason = template_error(template)
            if reason:
                errors.append(f"{field} {reason}")
        if self.quiet:
            try:
                parse_quiet_hours(self.quiet)
            except QuietHoursError as error:
                errors.append(f"quiet {error}")
        return errors + bound_errors(self)


@dataclass(frozen=True, kw_only=True)
class LevelRule(Rule):
    """A value of each window that must not exceed a bound.

    ``above``: the bound; ``for_windows``: for how many windows in a row the value must exceed it. ``clear_below``,
    ``clear_for_windows``: the bound, and the windows in a row at or below it, that clear the alert. ``of``: for queues,
    those of brokers, of links or both.

    ``queue.congestion`` is messages in / messages out * length (Shafique, Eq. 10: congested above tau),
    ``queue.length`` the length at the window's end, ``queue.busy`` the busy share. ``window.incomplete`` is the largest
    share of batches missing from any broker, ``window.late`` the seconds from the end of a window until it is written,
    ``window.late_rows`` the rows that arrived too late. ``broker.clock`` is the offset from Kafka's clock in seconds.
    """

    SOURCES = (
        "queue.congestion",
        "queue.length",
        "queue.busy",
        "window.incomplete",
        "window.late",
        "window.late_rows", "broker.clock",
    )  # fmt: skip
    LIMIT = "above"

    above: Annotated[float, Meta(ge=0)]
    clear_below: Annotated[float, Meta()]
    for_windows: Count = 1
    clear_for_windows: Count = 1
    of: QueueScope = "both"

    @property
    def windows_memory(self) -> int:
        """Return the longer of both spans."""
        return max(self.for_windows, self.clear_for_windows)

    def errors(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        errors = super().errors()
        if self.clear_below > self.above:
            errors.append(
                f"clear_below is {self.clear_below:g}, but above is {self.above:g}: clear_below must not exceed it"
            )
        if self.of != "both" and not self.on.startswith("queue."):
            errors.append(f"of is {self.of!r}: only queues belong to brokers or links: leave it out")
        return errors


@dataclass(frozen=True, kw_only=True)
class GrowthRule(Rule):
    """A queue that grows from window to window.

    ``for_windows``: windows in a row in which it grew; ``factor``: how many times as long it became at least;
    ``length_min``: its least length then. ``clear_for_windows``: windows in a row in which it did not grow, or was
    shorter than ``length_min``. ``of``: queues of brokers, of links or both.
    """

    SOURCES = ("queue.growth",)
    LIMIT = "length_min"

    for_windows: Count
    factor: Annotated[float, Meta(gt=1)] = 2.0  # Else every queue grows.
    length_min: Count = 10
    clear_for_windows: Count = 1
    of: QueueScope = "both"

    @property
    def windows_memory(self) -> int:
        """Return the windows that growth, or its end, spans."""
        return max(self.for_windows + 1, self.clear_for_windows + 1)


@dataclass(frozen=True, kw_only=True)
class SilentRule(Rule):
    """A broker from which no batch arrives.

    ``for_windows``: windows in a row without a batch; ``clear_for_windows``: windows in a row with one again.
    ``forget_after_s``: seconds after which the broker is considered gone for good, and the alert is cleared.
    """

    SOURCES = ("broker.silent",)
    LIMIT = "for_windows"

    for_windows: Count
    clear_for_windows: Count = 1
    forget_after_s: Seconds = 86_400.0

    @property
    def windows_memory(self) -> int:
        """Return the windows of silence and the one before, or those of its end if these are more."""
        return max(self.for_windows + 1, self.clear_for_windows)


@dataclass(frozen=True, kw_only=True)
class MissingRule(Rule):
    """Windows that do not arrive at all, judged by the clock.

    ``for_s``: seconds in which no window was written; ``clear_for_windows``: windows written again.
    """

    SOURCES = ("window.missing",)
    LIMIT = "for_s"

    for_s: Seconds
    clear_for_windows: Count = 1

    @property
    def windows_memory(self) -> int:
        """Return the windows that clear the alert."""
        return self.clear_for_windows


@dataclass(frozen=True, kw_only=True)
class SpanRule(Rule):
    """What rules have in common that count within a span.

    ``span_s``: within how many seconds; ``clear_after_s``: seconds without it after which the alert is cleared.
    """

    span_s: Seconds = 600.0
    clear_after_s: Seconds = 600.0

    @property
    def span_s_memory(self) -> float:
        """Return the longer of both spans."""
        return max(self.span_s, self.clear_after_s)


@dataclass(frozen=True, kw_only=True)
class CountRule(SpanRule):
    """Something that happens this many times within a span.

    ``count``: how many times.

    Stages report ``plan.aborted``, ``plan.taken_back`` (a plan rolls back another), ``plan.limit`` (proposals refused
    because a plan is full), ``gain.missed``, ``model.drift`` (costs differ from what is measured), ``planner.failed``,
    ``epoch.mismatch``, ``deaths.doubted`` (too many brokers silent at once), ``order.forged`` (not authentic),
    ``telemetry.lost`` (deleted before it was read), ``join.asked`` (a broker announces itself; ends as soon as it is a
    member or stops asking), ``share.lowered`` (brokers are asked to report less; ends when they are asked for
    everything) and ``broker.overloaded`` (more notifications than its cap; ends when that is over). The supervisor
    reports ``service.restarted``. ``dead_letters`` counts records that could not be used, by topic, except those that a
    newer Regraft wrote, which are ``records.newer``.
    """

    SOURCES = ("plan.aborted", "plan.taken_back", "plan.limit", "gain.missed", "model.drift", "planner.failed",
               "epoch.mismatch", "deaths.doubted", "join.asked", "share.lowered", "broker.overloaded", "order.forged",
               "service.restarted", "telemetry.lost", "dead_letters", "records.newer")  # fmt: skip
    LIMIT = "count"

    count: Annotated[int, Meta(ge=1, le=COUNTED_MAX)] = 1


@dataclass(frozen=True, kw_only=True)
class StalledRule(Rule):
    """A transition that makes no progress: the controller reports it, or the plan's phase is older than ``for_s``.

    It is cleared when the plan enters another phase.
    """

    SOURCES = ("plan.stalled",)
    LIMIT = "for_s"

    for_s: Seconds

    @property
    def span_s_memory(self) -> float:
        """Return how long a phase may take, in seconds."""
        return self.for_s


@dataclass(frozen=True, kw_only=True)
class FlappingRule(SpanRule):
    """A link, client or ring ID that plans change back and forth.

    ``flips``: how many times within ``span_s`` seconds it returns to an earlier value of that span. ``clear_after_s``:
    seconds without a return after which the alert is cleared.
    """

    SOURCES = ("flapping",)
    LIMIT = "flips"

    flips: Count
    span_s: Seconds = 1800.0
    clear_after_s: Seconds = 1800.0


@dataclass(frozen=True, kw_only=True)
class FleetRule(Rule):
    """A condition that lasts from one record to a later one: raised after ``for_s`` seconds, cleared when it is over.

    ``broker.dead``: a member is dead, because of silence, a neighbour's report or an order. ``repair.running``: a plan
    that removes lost brokers is not in force yet. ``traffic.at_risk``: the overlay in force still has brokers that are
    dead or have restarted, so what crosses them is lost; the value is the number of these brokers.
    """

    SOURCES = ("broker.dead", "repair.running", "traffic.at_risk")

    for_s: Annotated[float, Meta(ge=0)] = 0.0


@dataclass(frozen=True, kw_only=True)
class BlastRule(Rule):
    """Too many brokers affected at once, by alerts about single brokers or by maintenance.

    ``brokers_above``, ``share_above``: raised above this many brokers, or this share of all, whichever is less;
    ``brokers_min``: the number of affected brokers from which the share counts. ``clear_below``: cleared below this
    share of the limit, for ``clear_for_windows`` windows. While it is raised, new alerts about single queues and
    brokers are not reported.
    """

    SOURCES = ("blast_radius",)

    brokers_above: Count
    share_above: Share
    brokers_min: Count = 3
    clear_below: Share = 0.8
    clear_for_windows: Count = 2

    @property
    def windows_memory(self) -> int:
        """Return the windows that clear the alert."""
        return self.clear_for_windows

    def brokers_limit(self, broker_count: int) -> float:
        """Return the number of affected brokers above which it is raised, given the number of all brokers."""
        return min(self.brokers_above, max(self.share_above * broker_count, self.brokers_min - 1))


KINDS: tuple[type[Rule], ...] = (
    LevelRule,
    GrowthRule,
    SilentRule,
    MissingRule,
    CountRule,
    StalledRule,
    FlappingRule,
    FleetRule,
    BlastRule,
)
KIND_OF: Mapping[str, type[Rule]] = {source: kind for kind in KINDS for source in kind.SOURCES}
