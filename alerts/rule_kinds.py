"""The kinds of rules, each a frozen dataclass of typed and checked parameters.

In: the parameters of one ``[[rule]]`` table. Out: a rule, or what is wrong with it. Reading the file belongs to
:mod:`alerts.read_rules`, looking at windows and events to the ``watch_...`` modules.

Levels have two bounds, so that a value near one of them does not raise and clear an alert again and again: it is raised
above ``above`` and cleared below ``clear_below``, and both must hold for some windows.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from regraft.alerts.check_parameters import above_0, at_least_one, finite, template_fault
from regraft.alerts.quiet_hours import QuietHoursError, parse_quiet_hours
from regraft.schemas.event import Severity

QueueScope = Literal["brokers", "links", "both"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What all rules have.

    ``name``: of the rule, in every message and in the key of its alerts. ``on``: what it looks at. ``severity``: info,
    warning or critical. ``text``: the sentence of a raised alert, ``text_cleared`` that of a cleared one; they may hold
    {subject}, {value}, {limit}, {detail} and {duration_s}, and of the rule's parameters {windows} (for_windows),
    {span_min} (span_s in minutes) and {clear_min} (clear_after_s).
    ``group``: whether alerts raised at once are one message.
    ``quiet``: quiet hours of this rule, "22:00-07:00 Europe/Berlin", at any severity.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ()

    name: str
    on: str
    severity: Severity = Severity.WARNING
    text: str = "{subject}: {value:g}, at most {limit:g} is usual. {detail}"
    text_cleared: str = "{subject} is healthy again after {duration_s:.0f} s: {value:g}. {detail}"
    group: bool = True
    quiet: str = ""

    @property
    def limit(self) -> float:
        """Return the figure that raises the alert, for its text."""
        return 0.0

    @property
    def windows_memory(self) -> int:
        """Return how many windows back the rule looks."""
        return 0

    @property
    def span_s_memory(self) -> float:
        """Return how long ago an event may be that the rule still counts, in seconds."""
        return 0.0

    def text_values(self) -> dict[str, object]:
        """Return the parameters that texts may hold; 0 for those that this kind of rule does not have."""
        minutes = {"span_min": "span_s", "clear_min": "clear_after_s"}
        values: dict[str, object] = {name: getattr(self, field, 0.0) / 60 for name, field in minutes.items()}
        return {**values, "windows": getattr(self, "for_windows", 0)}

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        found = []
        if not self.name or set(self.name) - set(string.ascii_lowercase + string.digits + "_-."):
            found.append(
                f"name is {self.name!r}: use only lower-case letters, digits, _, - and ., as it is part of a key"
            )
        for field, template in (("text", self.text), ("text_cleared", self.text_cleared)):
            fault = template_fault(template)
            if fault:
                found.append(f"{field} {fault}")
        if self.quiet:
            try:
                parse_quiet_hours(self.quiet)
            except QuietHoursError as error:
                found.append(f"quiet {error}")
        return found


@dataclass(frozen=True, kw_only=True)
class LevelRule(Rule):
    """A figure of each window that must stay below a bound.

    ``above``: the bound; ``for_windows``: for how many windows in a row it must be passed. ``clear_below``,
    ``clear_for_windows``: the same for the end. ``of``: for queues, those of brokers, of links or both.

    ``queue.congestion`` is messages in / messages out * length (Shafique, Eq. 10: congested above tau),
    ``queue.length`` the length at the window's end, ``queue.busy`` the busy share; ``window.incomplete`` the share of
    the batches that are missing from the broker that lacks most, ``window.late`` the seconds from the end of a window
    until it is written, ``window.late_rows`` the rows that came too late; ``broker.clock`` the s off Kafka's clock.
    """

    SOURCES = (
        "queue.congestion",
        "queue.length",
        "queue.busy",
        "window.incomplete",
        "window.late",
        "window.late_rows", "broker.clock",
    )  # fmt: skip

    above: float
    clear_below: float
    for_windows: int = 1
    clear_for_windows: int = 1
    of: QueueScope = "both"

    @property
    def limit(self) -> float:
        """Return the bound."""
        return self.above

    @property
    def windows_memory(self) -> int:
        """Return the longer of both spans."""
        return max(self.for_windows, self.clear_for_windows)

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        found = super().faults() + at_least_one(self, "for_windows", "clear_for_windows")
        found += finite(self, "above", "clear_below")
        if self.above < 0:
            found.append(f"above is {self.above:g}: at least 0")
        if self.clear_below > self.above:
            found.append(
                f"clear_below is {self.clear_below:g}, above {self.above:g}: it must not be the larger of the two"
            )
        if self.of != "both" and not self.on.startswith("queue."):
            found.append(f"of is {self.of!r}: only queues belong to brokers or links: leave it out")
        return found


@dataclass(frozen=True, kw_only=True)
class GrowthRule(Rule):
    """A queue that grows from window to window.

    ``for_windows``: for this many windows in a row it got longer; ``factor``: and ended this many times as long;
    ``length_min``: and at least this long. ``clear_for_windows``: windows in a row in which it did not grow. ``of``:
    queues of brokers, of links or both.
    """

    SOURCES = ("queue.growth",)

    for_windows: int
    factor: float = 2.0
    length_min: int = 10
    clear_for_windows: int = 1
    of: QueueScope = "both"

    @property
    def limit(self) -> float:
        """Return the length from which on growth counts."""
        return float(self.length_min)

    @property
    def windows_memory(self) -> int:
        """Return the windows of growth and of its end."""
        return max(self.for_windows + 1, self.clear_for_windows + 1)

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        found = super().faults() + at_least_one(self, "for_windows", "length_min", "clear_for_windows")
        if not 1 < self.factor < math.inf:
            found.append(f"factor is {self.factor:g}: above 1, or every queue grows")
        return found


@dataclass(frozen=True, kw_only=True)
class SilentRule(Rule):
    """A broker from which no batch comes.

    ``for_windows``: this many windows in a row hold none; ``clear_for_windows``: this many hold one again.
    ``forget_after_s``: after this time it is taken to have left for good, and the alert is cleared.
    """

    SOURCES = ("broker.silent",)

    for_windows: int
    clear_for_windows: int = 1
    forget_after_s: float = 86_400.0

    @property
    def limit(self) -> float:
        """Return how many windows it may be silent."""
        return float(self.for_windows)

    @property
    def windows_memory(self) -> int:
        """Return the windows of silence and of its end, and the one before."""
        return max(self.for_windows + 1, self.clear_for_windows)

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        return super().faults() + at_least_one(self, "for_windows", "clear_for_windows") + above_0(
            self, "forget_after_s"
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MissingRule(Rule):
    """Windows that do not come at all, by the clock.

    ``for_s``: for this long none was written; ``clear_for_windows``: this many were written again.
    """

    SOURCES = ("window.missing",)

    for_s: float
    clear_for_windows: int = 1

    @property
    def limit(self) -> float:
        """Return how long none may be written."""
        return self.for_s

    @property
    def windows_memory(self) -> int:
        """Return the windows of the end."""
        return self.clear_for_windows

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        return super().faults() + at_least_one(self, "clear_for_windows") + above_0(self, "for_s")


@dataclass(frozen=True, kw_only=True)
class CountRule(Rule):
    """Something that happens this many times within a span.

    ``count``: how many times, ``span_s``: within how long. ``clear_after_s``: cleared after this long without it.
    ``plan.aborted``, ``plan.taken_back`` (it rolls another back), ``plan.limit`` (proposals refused as a plan is full),
    ``gain.missed``, ``model.drift`` (costs are not what is measured), ``planner.failed``, ``epoch.mismatch``,
    ``deaths.doubted`` (too many brokers silent at once), ``order.forged`` (not its giver's own), ``telemetry.lost``
    (deleted unread), ``join.asked`` (a broker announces itself; it ends at once when that is a member or asks no more),
    ``share.lowered`` (brokers are asked to report less; it ends when all is asked for) and ``broker.overloaded`` (one
    passes more than its cap; it ends when it no longer does) are reported by stages, ``service.restarted`` by their
    supervisor; ``dead_letters`` counts records that could not be used, by topic, but for those that a newer Regraft
    wrote: ``records.newer``.
    """

    SOURCES = ("plan.aborted", "plan.taken_back", "plan.limit", "gain.missed", "model.drift", "planner.failed",
               "epoch.mismatch", "deaths.doubted", "join.asked", "share.lowered", "broker.overloaded", "order.forged",
               "service.restarted", "telemetry.lost", "dead_letters", "records.newer")  # fmt: skip

    count: int = 1
    span_s: float = 600.0
    clear_after_s: float = 600.0

    @property
    def limit(self) -> float:
        """Return how many times raise the alert."""
        return float(self.count)

    @property
    def span_s_memory(self) -> float:
        """Return the longer of both spans."""
        return max(self.span_s, self.clear_after_s)

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        return super().faults() + at_least_one(self, "count") + above_0(self, "span_s", "clear_after_s")


@dataclass(frozen=True, kw_only=True)
class StalledRule(Rule):
    """A transition that does not come on: the controller says so, or the plan's phase is older than ``for_s``.

    It is cleared when the plan enters another phase.
    """

    SOURCES = ("plan.stalled",)

    for_s: float

    @property
    def limit(self) -> float:
        """Return how long a phase may take."""
        return self.for_s

    @property
    def span_s_memory(self) -> float:
        """Return how long a phase may take."""
        return self.for_s

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        return super().faults() + above_0(self, "for_s")


@dataclass(frozen=True, kw_only=True)
class FlappingRule(Rule):
    """A link, client or ring ID that plans change back and forth.

    ``flips``: this many times within ``span_s`` it returns to an earlier value of that span. ``clear_after_s``: cleared
    when it has not done so for this long.
    """

    SOURCES = ("flapping",)

    flips: int
    span_s: float = 1800.0
    clear_after_s: float = 1800.0

    @property
    def limit(self) -> float:
        """Return how many times raise the alert."""
        return float(self.flips)

    @property
    def span_s_memory(self) -> float:
        """Return the longer of both spans."""
        return max(self.span_s, self.clear_after_s)

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        return super().faults() + at_least_one(self, "flips") + above_0(self, "span_s", "clear_after_s")


@dataclass(frozen=True, kw_only=True)
class FleetRule(Rule):
    """Something that stands from one record to a later one: raised when it has for ``for_s``, cleared when it is over.

    ``broker.dead``: a member is dead, by silence, a neighbour's word or an order. ``repair.running``: a plan that does
    without lost brokers is not in force yet. ``traffic.at_risk``: the overlay in force still has brokers that are dead
    or have restarted, so what crosses them is lost; the value is how many.
    """

    SOURCES = ("broker.dead", "repair.running", "traffic.at_risk")

    for_s: float = 0.0

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        found = super().faults()
        if not 0 <= self.for_s < math.inf:
            found.append(f"for_s is {self.for_s:g}: at least 0")
        return found


@dataclass(frozen=True, kw_only=True)
class BlastRule(Rule):
    """Too many brokers concerned at once: by alerts about queues, by silence or by maintenance.

    ``brokers_above``, ``share_above``: this many brokers, or that share of all, whichever is less; ``brokers_min``:
    with fewer than these the share says nothing. ``clear_below``: cleared below this share of what raised it, for
    ``clear_for_windows``. While it stands, alerts about single queues and brokers are kept back.
    """

    SOURCES = ("blast_radius",)

    brokers_above: int
    share_above: float
    brokers_min: int = 3
    clear_below: float = 0.8
    clear_for_windows: int = 2

    @property
    def windows_memory(self) -> int:
        """Return the windows of the end."""
        return self.clear_for_windows

    def brokers_limit(self, broker_count: int) -> float:
        """Return the number of brokers above which it is raised, in an overlay of this many."""
        return min(self.brokers_above, max(self.share_above * broker_count, self.brokers_min - 1))

    def faults(self) -> list[str]:
        """Return what is wrong with the parameters, one sentence each."""
        found = super().faults() + at_least_one(self, "brokers_above", "brokers_min", "clear_for_windows")
        for name in ("share_above", "clear_below"):
            if not 0 < getattr(self, name) <= 1:
                found.append(f"{name} is {getattr(self, name):g}: a share above 0 and at most 1")
        return found


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
