"""The timeline of a run's outages: what happened to brokers, how the controller reacted, and how long that took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from regraft.run_records.judge_plans import serves_members
from regraft.schemas.event import AdaptationEvent, EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE

MEMBER_EVENTS = frozenset({"member_changed", "deaths_doubted", "repair_waits"})
EMULATOR, CONTROLLER = "emulator", "controller"
DEATH_WORD = "died"
DOWN_WORDS = (DEATH_WORD, "hangs")  # A broker that hangs for long counts as dead.


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened, and its source."""

    time_ms: int
    source: str
    text: str


@dataclass(frozen=True)
class OutageTimeline:
    """All outages of one run.

    ``deaths`` counts simultaneous deaths as one. ``repairs_ms``: from each death until an overlay without the dead
    brokers was in force. ``traffic_at_risk_per_s_max``: the most deliveries per second that had to cross dead brokers.
    ``by_kind``: outages by kind, and errors injected into stages. ``alerts_...`` count all alerts of the run, by rule.
    """

    lines: tuple[TimelineEntry, ...] = ()
    deaths: int = 0
    repairs_ms: tuple[int, ...] = field(default=())
    traffic_at_risk_per_s_max: float = 0.0
    by_kind: Mapping[str, int] = field(default_factory=dict)
    alerts_raised: Mapping[str, int] = field(default_factory=dict)
    alerts_cleared: Mapping[str, int] = field(default_factory=dict)

    @property
    def first_ms(self) -> int | None:
        """When the first outage began; None if there was none."""
        return min((line.time_ms for line in self.lines if line.source == EMULATOR), default=None)


def outage_timeline(
    notes: Iterable[Sequence[object]],
    events: Iterable[AdaptationEvent],
    plans: Sequence[Plan],
    traffic_at_risk_per_s_max: float = 0.0,
    by_kind: Mapping[str, int] | None = None,
) -> OutageTimeline:
    """Return the timeline; ``notes`` are pairs of time and text from the emulator's status.

    A repair takes from the death or hang of the first of the brokers that its plan lost until its overlay is in force.
    """
    noted = [TimelineEntry(int(str(time_ms)), EMULATOR, str(text)) for time_ms, text in notes]
    kept = list(events)
    lines = [
        TimelineEntry(event.time_ms, CONTROLLER, event.text) for event in kept if event.kind.value in MEMBER_EVENTS
    ]
    of_members = [plan for plan in plans if serves_members(plan)]
    lines += [
        TimelineEntry(entry.time_ms, CONTROLLER, f"{plan.plan} ({_planner_of(plan)}): {entry.phase}")
        for plan in of_members
        for entry in plan.history
    ]
    down = [line for line in noted if line.text.endswith(DOWN_WORDS)]
    took = [_repair_ms(plan, down) for plan in of_members if plan.brokers_lost]
    return OutageTimeline(
        tuple(sorted(noted + lines, key=lambda line: line.time_ms)) if noted else (),
        sum(line.text.endswith(DEATH_WORD) for line in noted),
        tuple(one for one in took if one is not None),
        traffic_at_risk_per_s_max,
        dict(by_kind or {}),
        _alerts(kept, EventKind.ALERT_RAISED),
        _alerts(kept, EventKind.ALERT_CLEARED),
    )


def _alerts(events: Iterable[AdaptationEvent], kind: EventKind) -> dict[str, int]:
    """Return how many alerts were sent, by rule; an event may stand for several."""
    counts: Counter[str] = Counter()
    for event in events:
        if event.kind is kind:
            counts[event.details["rule"]] += int(event.details["count"])
    return dict(sorted(counts.items()))


def last_deaths(notes: Iterable[Sequence[object]]) -> dict[str, int]:
    """Return when each broker that died last did, according to the emulator's notes."""
    deaths_ms: dict[str, int] = {}
    for time_ms, text in notes:
        names, _, what = str(text).partition(": ")
        if what == DEATH_WORD:
            deaths_ms |= dict.fromkeys(names.split(", "), int(str(time_ms)))
    return deaths_ms


def _planner_of(plan: Plan) -> str:
    return plan.proposals[0].planner if plan.proposals else ""


def _repair_ms(plan: Plan, down: Sequence[TimelineEntry]) -> int | None:
    in_force = [entry.time_ms for entry in plan.history if LIFE[PlanPhase(entry.phase)].is_in_force]
    began_ms = plan.history[0].time_ms if plan.history else 0
    newest: dict[str, int] = {}
    for line in sorted(down, key=lambda line: line.time_ms):
        if line.time_ms <= began_ms:
            newest |= dict.fromkeys(line.text.partition(":")[0].split(", "), line.time_ms)
    since_ms = [newest[name] for name in plan.brokers_lost if name in newest]
    return min(in_force) - min(since_ms) if in_force and since_ms else None
