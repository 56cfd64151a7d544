"""Compose a control loop: its state, its steps in their order, and what the steps work with.

The only place that knows all parts of the loop. What each does belongs to its own module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from regraft.controller.control_ports import ControlPorts, EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.execute.verify_plans import PlanVerifier
from regraft.controller.execute.weigh_claims import PeerClaims
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.loop.begin_shadows import RunShadows, ShadowStarter
from regraft.controller.loop.control_loop import ControlLoop, LoopSteps
from regraft.controller.loop.correct_links import CorrectLinks
from regraft.controller.loop.decide_once import DecideOnce, DecisionTimer
from regraft.controller.loop.find_situation import SituationFinder
from regraft.controller.loop.follow_members import FollowMembers
from regraft.controller.loop.follow_plans import AdvancePlan, FollowReview, StartLoop
from regraft.controller.loop.noted_events import CommandNotes, NotedEvents
from regraft.controller.loop.repair_overlay import RepairOverlay
from regraft.controller.loop.set_share import SetShare
from regraft.controller.loop.show_state import BoundCost, SettlePlans, ShowState
from regraft.controller.loop.take_windows import TakeWindows
from regraft.controller.loop.watch_shifts import ShiftWatch
from regraft.controller.planners.planner_registry import planners_of
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.report_refusals import RefusalEvents
from regraft.controller.settings.controller_settings import TERM_FIRST, ControllerSettings
from regraft.controller.state.planner_interface import Planner
from regraft.controller.windows.read_windows import WindowReader
from regraft.overlay.inventory.inventory import Inventory


def compose_loop(
    settings: ControllerSettings,
    inventory: Inventory,
    ports: ControlPorts,
    planner: Planner | None = None,
    metrics: LoopMetrics | None = None,
    port_errors: Callable[[], dict[str, int]] = dict,
    stopwatch_s: Callable[[], float] = time.perf_counter,
    *,
    term: int = TERM_FIRST,
    instance: str = "",
) -> ControlLoop:
    """Return a loop that has not begun.

    ``planner`` is by default the settings' one; ``port_errors`` returns the ports' counts of errors by name. No
    decision depends on ``stopwatch_s``. ``term`` must exceed all earlier leaders' terms, ``instance`` must be unique.
    """
    planners = (planner,) if planner else planners_of(settings.planner, settings)
    metrics, kind, refused = metrics or LoopMetrics(), kind_of(inventory, settings), RefusalEvents(inventory.bootstrap)
    state, shadows = LoopState.at_start(inventory, term), ShadowStarter(settings, kind)
    events, timer = NotedEvents(ports.events, state, metrics), DecisionTimer(stopwatch_s, metrics)
    notes, noted = CommandNotes(state, metrics), replace(ports, events=events)
    runner = _runner(settings, noted, state, notes, term, instance)
    orders, changes = OrderTaker(ports.orders, events, ports.audit), ShiftWatch(settings, kind, events, metrics)
    reviewer, windows = PlanReviewer(settings, orders, runner), WindowReader(settings, kind, ports)
    situations = SituationFinder(settings, kind, windows, reviewer, runner)
    steps = LoopSteps(
        start=StartLoop(shadows, orders, ports.plans, events),
        advance=(
            AdvancePlan(orders, reviewer, runner),
            TakeWindows(settings, kind, windows, changes, refused, events, metrics),
            FollowMembers(settings, orders, ports.announcements, runner, events, metrics),
            *_after_windows(settings, ports, events, metrics, term),
        ),
        decide=(
            RepairOverlay(settings, kind, windows, reviewer, runner, events, term),
            PlanVerifier(settings, kind, windows, runner, events, ports.clients, reviewer.begin).verify,
            FollowReview(reviewer, situations),
            DecideOnce(settings, planners, situations, reviewer, runner, timer, refused, events, metrics),
            # After the decision: neither may delay a plan that begins.
            RunShadows(situations, shadows, timer, events),
            BoundCost(settings, kind, metrics),
        ),
        show=(SettlePlans(ports), ShowState(settings, ports, windows, orders, runner, metrics, port_errors)),
    )
    return ControlLoop(state, steps, runner)


def _runner(
    settings: ControllerSettings, ports: ControlPorts, state: LoopState, notes: CommandNotes, term: int, instance: str
) -> PlanRunner:
    """Return the runner of plans, which judges what brokers claim about their neighbours."""
    claims, log = PeerClaims(state.fleet.inventory.agent_of, notes.note_claim), state.plan_log
    return PlanRunner(ports, log, settings.transition, notes.note, notes.note_foreign, term, instance, claims)


def _after_windows(
    settings: ControllerSettings, ports: ControlPorts, events: EventSink, metrics: LoopMetrics, term: int
) -> tuple[CorrectLinks, SetShare]:
    """Return the steps that follow from windows but do not change the overlay."""
    return CorrectLinks(settings, events, metrics), SetShare(settings, ports.plans, events, metrics, term)
