"""The story of a run's outages: what befell brokers, what the controller made of it, and how long that took.

In: what the emulator noted, stored events and plans. Out: lines in the order of time, and figures. Drawing does not
belong here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.event import AdaptationEvent, EventKind
from schemas.plan import Plan, PlanPhase
from schemas.plan_life import LIFE

MEMBER_EVENTS = frozenset({"member_changed", "deaths_doubted", "repair_waits"})
MEMBER_PLANNERS = frozenset({"repair", "membership"})  # Plans because of who is there, not of what it costs.
EMULATOR, CONTROLLER = "emulator", "controller"
DEATH_WORD = "died"
DOWN_WORDS = (DEATH_WORD, "stands still")  # A broker that stands still for long is taken for dead.


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened, and who says so."""

    time_ms: int
    source: str
    text: str


@dataclass(frozen=True)
class OutageStory:
    """All outages of one run.

    ``deaths`` counts several at once as one. ``repairs_ms``: from a death until an overlay without the dead was in
    force. ``traffic_at_risk_per_s_max``: the most deliveries a second that had to cross the dead. ``by_kind``: outages
    of each kind. Alerts are all of the run.
    """

    lines: tuple[StoryLine, ...] = ()
    deaths: int = 0
    repairs_ms: tuple[int, ...] = field(default=())
    traffic_at_risk_per_s_max: float = 0.0
    by_kind: Mapping[str, int] = field(default_factory=dict)
    alerts_raised: int = 0
    alerts_cleared: int = 0

    @property
    def first_ms(self) -> int | None:
        """When the first outage began, None when there was none."""
        return min((line.time_ms for line in self.lines if line.source == EMULATOR), default=None)


def outage_story(
    notes: Iterable[Sequence[object]],
    events: Iterable[AdaptationEvent],
    plans: Sequence[Plan],
    traffic_at_risk_per_s_max: float = 0.0,
    by_kind: Mapping[str, int] | None = None,
) -> OutageStory:
    """Put the story together; ``notes`` are pairs of time and text from the emulator's status.

    The time of a repair runs from the last death, or standstill, before its plan until its overlay was in force.
    """
    noted = [StoryLine(int(str(time_ms)), EMULATOR, str(text)) for time_ms, text in notes]
    if not noted:
        return OutageStory()
    kept = list(events)
    told = [StoryLine(event.time_ms, CONTROLLER, event.text) for event in kept if event.kind.value in MEMBER_EVENTS]
    alerts = Counter(event.kind for event in kept)
    of_members = [plan for plan in plans if _planner_of(plan) in MEMBER_PLANNERS]
    told += [
        StoryLine(entry.time_ms, CONTROLLER, f"plan {plan.plan} ({_planner_of(plan)}): {entry.phase}")
        for plan in of_members
        for entry in plan.history
    ]
    down_ms = sorted(line.time_ms for line in noted if line.text.endswith(DOWN_WORDS))
    took = [_repair_ms(plan, down_ms) for plan in of_members if plan.brokers_lost]
    return OutageStory(
        tuple(sorted(noted + told, key=lambda line: line.time_ms)),
        sum(line.text.endswith(DEATH_WORD) for line in noted),
        tuple(one for one in took if one is not None),
        traffic_at_risk_per_s_max,
        dict(by_kind or {}),
        alerts[EventKind.ALERT_RAISED],
        alerts[EventKind.ALERT_CLEARED],
    )


def _planner_of(plan: Plan) -> str:
    return plan.proposals[0].planner if plan.proposals else ""


def _repair_ms(plan: Plan, down_ms: Sequence[int]) -> int | None:
    in_force = [entry.time_ms for entry in plan.history if LIFE[PlanPhase(entry.phase)].is_in_force]
    before = [time_ms for time_ms in down_ms if plan.history and time_ms <= plan.history[0].time_ms]
    return min(in_force) - before[-1] if in_force and before else None
