"""Run one change of traffic on the virtual clock, and compare the controller's reaction with an oracle.

In: the kind of change, a seed, settings. Out: a Reaction: costs by window, plans, when most of the reachable saving was
reached. An oracle runs the two ``ORACLE`` planners without noise, price or bounds on windows after the change; its
overlay applies from the moment of the change. One oracle knows all these windows, the other those of the first seconds.
Printing and comparing belong to ``bench_reaction``.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import msgspec

from regraft.api.emulation import START_MS, RegimeChange, VirtualLoop, virtual_settings
from regraft.api.kinds import AnyKind, kind_of
from regraft.api.planning import ClosedWindow, DecisionSettings, PlanLog, TreeContext, planner_of
from regraft.api.programs import (
    ReportWork,
    Settings,
    configure_logs,
    demo_flags,
    ensure_inventory,
    load_settings,
    parse_assignments,
)
from regraft.api.records import Plan, PlanPhase
from regraft.api.transitions import LIFE
from regraft.api.trees import TreeConfiguration

SECOND_MS = 1_000
SHIFT_S = 60
AFTER_S = 90
QUIET_S = 30  # By then a first overlay has been found, and a later plan on quiet traffic is a false alarm.
GRADUAL_S = 30.0
CROWD_S = 45
DAY_S = 120.0
DAY_PHASES = 6
QUIET = "quiet"
EARLY_S = 20.0  # The second oracle knows this much even traffic.
SAVED_SHARE = 0.9
KEPT_AFTER_S = 5.0  # One window: an earlier plan was decided on traffic before the change.
KEPT_WINDOWS_MIN = 3  # To judge a plan on.
ORACLE: dict[str, dict[str, object]] = {
    "swap_links_cost": {"escape_words_max": 120_000_000},  # Of which 40 brokers get 30 million.
    "relocate_publishers_joint": {},
}
ORACLE_ROUNDS_MAX = 8
ORACLE_GAIN_SHARE_MIN = 1e-3
CHANGE_DETECTED = "change_detected"


@dataclass(frozen=True)
class Course:
    """The workload's settings for one kind of change, and the phases (start, end) that follow, in s.

    Traffic starts to change at the start of a phase and is even from ``settled_s`` later on. ``has_end``: traffic stays
    even for long enough to measure when most of the reachable saving is reached.
    """

    workload: dict[str, object]
    phases: tuple[tuple[float, float], ...]
    settled_s: float = 3.0
    has_end: bool = True


END_S = SHIFT_S + AFTER_S
COURSES = {
    "sudden": Course({}, ((SHIFT_S, END_S),)),
    "gradual": Course({"regime_change_spread_s": GRADUAL_S}, ((SHIFT_S, END_S),), GRADUAL_S),
    "publisher": Course({"regime_change_kind": RegimeChange.PUBLISHER}, ((SHIFT_S, END_S),), 0.0),
    "crowd": Course(
        {"regime_change_kind": RegimeChange.CROWD, "regime_change_for_s": CROWD_S},
        ((SHIFT_S, SHIFT_S + CROWD_S), (SHIFT_S + CROWD_S, END_S)),
    ),
    "day": Course(
        {"regime_change_kind": RegimeChange.DAY, "regime_change_for_s": DAY_S},
        tuple((start, start + DAY_S / DAY_PHASES) for start in range(SHIFT_S, END_S - 1, int(DAY_S / DAY_PHASES))),
        0.0,
        has_end=False,
    ),
    QUIET: Course({"regime_change_s": 10_000.0}, ((SHIFT_S, END_S),), 0.0, has_end=False),
}


class ShiftTask(msgspec.Struct, frozen=True):
    """One change of traffic with one seed; ``assignments`` are settings as `--set` takes them."""

    kind: str
    seed: int
    assignments: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name the task."""
        return f"{self.kind}-{self.seed}"

    @property
    def work_count(self) -> int:
        """The run's length in simulated seconds."""
        return END_S


class Saving(msgspec.Struct, frozen=True):
    """The reachable saving of a phase, and how much of it was reached.

    It is the saving of an overlay found in the first EARLY_S seconds of even traffic on the traffic after them.
    ``reachable_share``: relative to the cost of the overlay in force at the start of the phase. ``after_s``: time from
    that start until an overlay was in force that reaches SAVED_SHARE of it, None if none did. ``share``: what share of
    it the last overlay of the phase reaches.
    """

    reachable_share: float
    after_s: float | None
    share: float


class KeptGain(msgspec.Struct, frozen=True):
    """The predicted and the observed saving of a plan, each as a share of the cost without it.

    The observed saving is taken on the even traffic after the plan.
    """

    predicted_share: float
    observed_share: float


class Reaction(msgspec.Struct, frozen=True):
    """The outcome of one change.

    ``costs_per_s``: for each complete window after the change its end in s and its cost per second on the overlays in
    force (by time), on the overlay at the start of the phase, and on that of the oracle that knows the whole phase.
    ``savings``: by phase. ``plans``: plans of the run that took effect, with their ``links`` and ``moves``. ``alarms``:
    plans on quiet traffic before the change. ``changes``: when a change was reported, in s. ``kept``: of plans after
    which traffic stayed even for some windows. ``decisions_cpu_ms`` is the processor time of each decision.
    """

    kind: str
    seed: int
    costs_per_s: tuple[tuple[float, float, float, float], ...]
    savings: tuple[Saving, ...]
    plans: int
    links: int
    moves: int
    plans_undone: int
    gains_missed: int
    alarms: int
    changes: tuple[float, ...]
    kept: tuple[KeptGain, ...] = ()
    decisions_cpu_ms: tuple[float, ...] = ()


def run_shift(task: ShiftTask, report_work: ReportWork) -> Reaction:
    """Run one change and return the outcome."""
    configure_logs(level="error")
    course = COURSES[task.kind]
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(task, course, folder)
        inventory = ensure_inventory(settings)
    controller = dataclasses.replace(settings.controller, shadow_planners=(), dry_run=False)
    kind = kind_of(inventory, controller)
    kind.prepare()
    virtual = virtual_settings(settings.emulator, inventory, START_MS)
    streaming = settings.streaming
    lengths_ms = streaming.window_ms, streaming.grace_ms
    workload = settings.emulator.workload
    loop = VirtualLoop(inventory, workload, controller, virtual, *lengths_ms, stopwatch_s=time.process_time)
    windows: list[ClosedWindow] = []
    cpu_ms: list[float] = []
    # The last window closes a window's length and a grace after its end.
    while loop.virtual.now_ms < START_MS + END_S * SECOND_MS + streaming.window_ms + streaming.grace_ms:
        decided = loop.loop.state.last_decision
        loop.step()
        newest, decision = loop.loop.state.newest, loop.loop.state.last_decision
        if decision is not decided and decision is not None and decision.state_verdict is None:
            cpu_ms.append(loop.loop.state.decision_times[f"acting:{controller.planner}"].last_ms)
        if newest is not None and newest.is_complete and newest not in windows[-1:]:
            windows.append(newest)
        if loop.virtual.now_ms % SECOND_MS == 0:
            report_work(1)
    return msgspec.structs.replace(_reaction(task, loop, windows, kind), decisions_cpu_ms=tuple(cpu_ms))


def _settings(task: ShiftTask, course: Course, folder: str) -> Settings:
    flags = parse_assignments(list(task.assignments))
    flags.setdefault("run", {}).update(seed=task.seed, directory=folder)
    settings = load_settings(demo_flags(flags, load_settings(flags)))
    shift: dict[str, Any] = {"regime_change_s": float(SHIFT_S), **course.workload}
    workload = dataclasses.replace(settings.emulator.workload, **shift)
    return dataclasses.replace(settings, emulator=dataclasses.replace(settings.emulator, workload=workload))


@dataclass(frozen=True)
class _Overlays:
    """The overlays in force, with all homes, by the time from which publishers used them."""

    kind: AnyKind
    since_s: tuple[float, ...]
    overlays: tuple[TreeConfiguration, ...]

    def at(self, time_s: float) -> TreeConfiguration:
        """Return the overlay in force at a time."""
        return [one for since_s, one in zip(self.since_s, self.overlays, strict=True) if since_s <= time_s][-1]

    def cost_per_s(self, window: ClosedWindow) -> float:
        """Return the cost of a window, weighting each overlay by its time in the window."""
        start_s, end_s = _seconds(window.start_ms), _seconds(window.end_ms)
        ends_s = (*self.since_s[1:], END_S + end_s)
        cost = 0.0
        for since_s, until_s, overlay in zip(self.since_s, ends_s, self.overlays, strict=True):
            share = (min(until_s, end_s) - max(since_s, start_s)) / (end_s - start_s)
            if share > 0:
                cost += share * self.kind.cost_per_s(overlay, window)
        return cost

    def mean_per_s(self, overlay: TreeConfiguration, windows: Sequence[ClosedWindow]) -> float:
        """Return the mean cost of an overlay over windows."""
        return statistics.fmean(self.kind.cost_per_s(overlay, window) for window in windows)


def _overlays(kind: AnyKind, plan_log: PlanLog, windows: Sequence[ClosedWindow]) -> _Overlays:
    homes = {**windows[-1].homes, **plan_log.homes_origin}
    overlays = [(-1e9, kind.inventory.bootstrap.with_homes(homes))]
    for plan in plan_log.in_force:
        overlay = plan_log.configuration_of(plan.epoch_to)
        assert overlay is not None, plan.plan
        since_ms = next(change.time_ms for change in plan.history if change.phase is PlanPhase.DRAINING)
        overlays.append((_seconds(since_ms), overlay.with_homes(homes | overlay.home_of)))
    return _Overlays(kind, *zip(*overlays, strict=True))


def _reaction(task: ShiftTask, loop: VirtualLoop, windows: list[ClosedWindow], kind: AnyKind) -> Reaction:
    course, state = COURSES[task.kind], loop.loop.state
    overlays = _overlays(kind, state.plan_log, windows)
    best = settled(kind, overlays.at(QUIET_S), _between(windows, QUIET_S, SHIFT_S))
    costs, savings = [], []
    for start_s, end_s in course.phases:
        held = overlays.at(start_s)
        even = _between(windows, start_s + course.settled_s, end_s)
        best = settled(kind, best, even)
        costs += [
            (
                _seconds(window.end_ms),
                overlays.cost_per_s(window),
                kind.cost_per_s(held, window),
                kind.cost_per_s(best, window),
            )
            for window in _between(windows, start_s, end_s)
        ]
        if course.has_end:
            early_s = start_s + course.settled_s + EARLY_S
            early = settled(kind, held, _between(windows, start_s + course.settled_s, early_s))
            savings.append(_saving(overlays, early, _between(windows, early_s, end_s), start_s, end_s))
    plans = [plan for plan in loop.plans if plan.history]
    done = [plan for plan in plans if LIFE[plan.phase].is_in_force]
    changed_s = [_seconds(event.time_ms) for event in state.events if event.kind == CHANGE_DETECTED]
    quiet_until_s = END_S if task.kind == QUIET else SHIFT_S
    return Reaction(
        task.kind,
        task.seed,
        tuple(costs),
        tuple(savings),
        len(done),
        sum(len(plan.links_added) for plan in done),
        sum(len(plan.moves) for plan in done),
        sum(bool(plan.undoes) for plan in done),
        sum(event.kind == "gain_missed" for event in state.events),
        sum(QUIET_S <= _start_s(plan) < quiet_until_s for plan in plans),
        tuple(changed_s),
        _kept(done, overlays, windows, course),
    )


def _kept(
    plans: Sequence[Plan], overlays: _Overlays, windows: Sequence[ClosedWindow], course: Course
) -> tuple[KeptGain, ...]:
    """Return predicted and observed gains of plans, each judged on the windows until traffic changes again."""
    starts_s = (0.0, *(start_s for start_s, _ in course.phases), END_S)
    gains = []
    for plan, since_s, (before, after) in zip(plans, overlays.since_s[1:], pairwise(overlays.overlays), strict=True):
        began_s = max(one for one in starts_s if one <= since_s)
        until_s = min(
            (one for one in starts_s if one > since_s), default=END_S
        )  # A plan may take effect after the last window.
        decided_s = _seconds(plan.window_end_ms)
        later = _between(windows, since_s, until_s)
        if plan.undoes or decided_s < began_s + course.settled_s + KEPT_AFTER_S or len(later) < KEPT_WINDOWS_MIN:
            continue
        saved_per_s = overlays.mean_per_s(before, later) - overlays.mean_per_s(after, later)
        gains.append(
            KeptGain(
                1 - plan.cost_predicted_per_s / plan.cost_before_per_s, saved_per_s / overlays.mean_per_s(before, later)
            )
        )
    return tuple(gains)


def _saving(
    overlays: _Overlays, early: TreeConfiguration, later: Sequence[ClosedWindow], start_s: float, end_s: float
) -> Saving:
    held_per_s = overlays.mean_per_s(overlays.at(start_s), later)
    reachable_per_s = held_per_s - overlays.mean_per_s(early, later)
    after_s, share = None, 0.0
    for since_s in (one for one in overlays.since_s if start_s < one < end_s):
        share = (held_per_s - overlays.mean_per_s(overlays.at(since_s), later)) / max(reachable_per_s, 1e-9)
        if after_s is None and share >= SAVED_SHARE:
            after_s = since_s - start_s
    return Saving(reachable_per_s / held_per_s, after_s, share)


def settled(kind: AnyKind, start: TreeConfiguration, windows: Sequence[ClosedWindow]) -> TreeConfiguration:
    """Return the overlay on which the oracle's planners find next to nothing more to save on these windows.

    Stops when a round saves less than ORACLE_GAIN_SHARE_MIN, or after ORACLE_ROUNDS_MAX rounds.
    """
    context = dataclasses.replace(
        cast(TreeContext, kind.planner_context(sys.maxsize, DecisionSettings())),
        moves_max=sys.maxsize,
        frailty_weight=0.0,
    )
    planners, rng = [planner_of(name, **own) for name, own in ORACLE.items()], random.Random("oracle")
    overlay = start
    for _ in range(ORACLE_ROUNDS_MAX):
        reached = kind.reached(kind.state_of(overlay, windows))
        before_per_s = reached.cost_per_s
        for planner in planners:
            for proposal in planner(reached.state, context, rng):
                reached = reached.after(proposal)
        overlay = reached.configuration
        if reached.cost_per_s > before_per_s * (1 - ORACLE_GAIN_SHARE_MIN):
            break
    return overlay


def _between(windows: Sequence[ClosedWindow], start_s: float, end_s: float) -> list[ClosedWindow]:
    """Return the windows that lie entirely in a span."""
    return [one for one in windows if start_s <= _seconds(one.start_ms) and _seconds(one.end_ms) <= end_s]


def _seconds(time_ms: int) -> float:
    return (time_ms - START_MS) / SECOND_MS


def _start_s(plan: Plan) -> float:
    return _seconds(plan.history[0].time_ms)
