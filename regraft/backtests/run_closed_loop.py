"""Run one planner on the emulator again, with the settings and the seed of a recording, on the virtual clock.

``run_backtest`` decides whether a recording can be emulated again.
"""

from __future__ import annotations

import msgspec

from regraft.backtests.backtest_outcome import CostPoint, Deliveries, Mode, Outcome
from regraft.backtests.run_open_loop import mark_of
from regraft.controller.decide.loop_state import COST_POINTS_MAX
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.log_stream import configure_logs
from regraft.infra.process.run_tasks import ReportWork
from regraft.producers.emulated_kinds import EMULATED_KINDS
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.recordings.aggregate_span import opened_recording
from regraft.schemas.plan_life import LIFE
from regraft.schemas.shown_state import DecisionTimes
from regraft.schemas.units import SECOND_MS
from regraft.virtual_runs.virtual_loop import VirtualLoop, virtual_settings


class ClosedLoopTask(msgspec.Struct, frozen=True):
    """One planner that acts on the first ``duration_s`` seconds of a run, which are emulated again."""

    planner: str
    recording: str
    settings: ControllerSettings
    emulator: EmulatorSettings
    start_ms: int
    duration_s: int
    window_ms: int
    grace_ms: int

    @property
    def label(self) -> str:
        """The task's name."""
        return f"{self.planner} acting"

    @property
    def work_count(self) -> int:
        """The amount of work, in seconds to emulate."""
        return self.duration_s


def duration_s_max(window_ms: int) -> int:
    """Return how long a closed loop may last: as long as the controller keeps the costs of its windows."""
    return COST_POINTS_MAX * window_ms // SECOND_MS


def run_closed_loop(task: ClosedLoopTask, report_work: ReportWork) -> Outcome:
    """Emulate the run, let the planner act on it, and return the outcome once all plans have ended."""
    configure_logs(level="warning")
    inventory = opened_recording(task.recording).info.inventory
    loop = VirtualLoop(
        inventory,
        EMULATED_KINDS[inventory.bootstrap.KIND].settings_of(task.emulator),
        task.settings,
        virtual_settings(task.emulator, inventory, task.start_ms),
        task.window_ms,
        task.grace_ms,
    )
    for _ in range(task.duration_s):
        loop.run_for(SECOND_MS)
        report_work(1)
    is_settled = loop.settle()
    return _outcome(task, loop, loop.virtual.finish(), is_settled)


def _outcome(task: ClosedLoopTask, loop: VirtualLoop, ledger: LedgerSnapshot, is_settled: bool) -> Outcome:
    state = loop.loop.state
    end_ms = task.start_ms + task.duration_s * SECOND_MS
    points = tuple(
        CostPoint(point.window_end_ms, point.cost_per_s, point.cost_bootstrap_per_s, point.cost_least_per_s)
        for point in state.cost_points
        if point.is_complete and point.window_end_ms <= end_ms
    )
    carried_out = [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]
    return Outcome(
        planner=task.planner,
        mode=Mode.CLOSED_LOOP,
        points=points,
        plans=tuple(mark_of(plan) for plan in carried_out),
        plans_rolled_back=sum(bool(plan.undoes) for plan in carried_out),
        windows_incomplete=state.windows_incomplete,
        refusals={str(verdict): count for verdict, count in sorted(state.refusals.items())},
        decision_time=state.decision_times.get(f"acting:{task.planner}", DecisionTimes()),
        deliveries=Deliveries(
            ledger.published,
            ledger.expected,
            ledger.lost - ledger.excused,
            ledger.excused,
            ledger.repeated,
            ledger.out_of_order,
        ),
        is_settled=is_settled and ledger.final,
    )
