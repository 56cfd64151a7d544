"""Everything that passes the loop's ports is measured, and every log line of a transition names its plan."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.ports.measure_ports import OFF_MS_MAX, SAMPLES, ClockCheck, PlanBinder, clock_text, measured
from regraft.controller.report.loop_metrics import LoopHealth, LoopMetrics
from regraft.schemas.command import CommandPhase
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Plan, PlanPhase
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.controller.state.test_plan_log import plan_at
from tests.controller.test_control_loop import INVENTORY, overlay_of

log = structlog.get_logger()


@pytest.fixture(autouse=True)
def unbound() -> Iterator[None]:
    structlog.contextvars.clear_contextvars()
    yield
    structlog.contextvars.clear_contextvars()


class MeasuredOverlay:
    """A scripted overlay whose loop uses measured ports."""

    def __init__(self, overlay: ScriptedOverlay) -> None:
        self.metrics, self.health = LoopMetrics(), LoopHealth(30.0)
        self.overlay = overlay
        ports = measured(overlay.ports.ports, self.metrics, self.health)
        overlay.loop = compose_loop(overlay.settings, INVENTORY, ports, metrics=self.metrics)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"regraft_controller_{name}", labels)


def test_a_plan_is_measured_from_its_first_phase_to_its_last() -> None:
    """Phases with their durations, answers, records and the age of the state."""
    run = MeasuredOverlay(overlay_of())
    run.overlay.run_windows(12)
    (plan,) = run.overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    for earlier, later in zip(plan.history, plan.history[1:], strict=False):
        assert run.value("phase_ms_count", phase=earlier.phase) == 1
        assert run.value("phase_ms_sum", phase=earlier.phase) == later.time_ms - earlier.time_ms
    assert run.value("phase_ms_count", phase="completed") is None
    assert run.value("plan_phase", phase="verifying") == 0
    assert run.value("results_total", outcome="prepared") == 5
    assert run.value("results_total", outcome="retired") == 5
    assert (run.value("records_read_total", source="state") or 0) > 12
    outcomes = ("prepared", "activated", "drained", "retired")
    answers = sum(run.value("results_total", outcome=outcome) or 0 for outcome in outcomes)
    assert run.value("records_read_total", source="results") == answers
    assert run.value("window_end_to_state_ms") == 0


def test_repeated_commands_are_counted_by_phase() -> None:
    """Commands to a silent broker are repeated until the plan is aborted; first commands do not count as repeated."""
    run = MeasuredOverlay(overlay_of())
    run.overlay.silent_brokers.add("b03")
    run.overlay.run_windows(8)
    assert run.overlay.phases[0] in (PlanPhase.ABORTING, PlanPhase.ABORTED)
    assert run.value("commands_repeated_total", phase="activate") is None
    sent, repeated = run.value("commands_total", phase="prepare"), run.value("commands_repeated_total", phase="prepare")
    assert repeated
    assert sent == repeated + len(INVENTORY.brokers)


def test_a_store_that_is_away_is_counted() -> None:
    """While plans cannot be read the controller is not ready; each attempt counts."""
    run = MeasuredOverlay(overlay_of())
    run.overlay.ports.plans.is_unavailable = True
    run.overlay.tick()
    run.overlay.tick()
    assert not run.health().is_ready
    assert run.value("plan_store_failures_total") == 2
    run.overlay.ports.plans.is_unavailable = False
    run.overlay.tick()
    assert run.health().is_ready
    assert run.health().errors == ()


def test_a_hanging_controller_is_unhealthy() -> None:
    """No step for longer than usual is an error, whether plans were read or not."""
    health = LoopHealth(-1.0)
    (error,) = health().errors
    assert "the control loop has not run" in error


def test_every_line_of_a_transition_carries_plan_and_epoch() -> None:
    """From storing the first phase to the end of the plan, neither before nor after."""
    run = MeasuredOverlay(overlay_of())
    seen: list[tuple[str | None, int | None, PlanPhase | None]] = []
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        for _ in range(12 * 20):
            run.overlay.tick()
            log.info("tick")
            plans = run.overlay.plans
            seen.append((lines[-1].get("plan"), lines[-1].get("epoch"), plans[0].phase if plans else None))
    over = (None, PlanPhase.COMPLETED)
    assert {(plan, epoch) for plan, epoch, phase in seen if phase in over} == {(None, None)}
    assert {(plan, epoch) for plan, epoch, phase in seen if phase not in over} == {("plan-1", 1)}
    assert {phase for _, _, phase in seen} >= {PlanPhase.VERIFYING, PlanPhase.COMPLETED}


def test_every_event_is_a_line_with_its_plan_and_epoch() -> None:
    """Even a plan's last event, which is reported when the plan is over; events without a plan name none."""
    run = MeasuredOverlay(overlay_of())
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        run.overlay.run_windows(12)
    by_kind = {str(line["kind"]): line for line in lines if line["event"] == "adaptation_event"}
    for kind in ("plan_started", "plan_phase", "plan_completed"):
        assert (by_kind[kind]["plan"], by_kind[kind]["epoch"], by_kind[kind]["log_level"]) == ("plan-1", 1, "info")
    assert "plan" not in by_kind["controller_started"]
    assert run.overlay.events_of(EventKind.PLAN_COMPLETED) == [by_kind["plan_completed"]["text"]]


def _bound(plan: Plan) -> dict[str, object]:
    structlog.contextvars.clear_contextvars()
    PlanBinder().note(plan)
    return structlog.contextvars.get_contextvars()


def test_a_plan_in_review_or_finished_is_not_bound() -> None:
    """A review may take long and has nothing to do with what the loop does meanwhile."""
    plan = plan_at(3, PlanPhase.DRAINING)
    assert _bound(plan) == {"plan": plan.plan, "epoch": 3}
    for phase in (PlanPhase.PROPOSED, PlanPhase.REFUSED, PlanPhase.COMPLETED, PlanPhase.ABORTED):
        assert _bound(plan_at(3, phase)) == {}


def test_the_end_of_another_plan_keeps_the_bound_one() -> None:
    """A plan that is refused while another is under way changes no log line."""
    binder = PlanBinder()
    binder.note(plan_at(3, PlanPhase.DRAINING))
    binder.note(plan_at(4, PlanPhase.REFUSED))
    assert structlog.contextvars.get_contextvars()["epoch"] == 3


def test_the_metrics_know_all_phases_of_commands() -> None:
    """A command of any phase can be counted as repeated."""
    metrics = LoopMetrics()
    for phase in CommandPhase:
        metrics.commands_repeated.labels(phase).inc()
        assert metrics.registry.get_sample_value("regraft_controller_commands_repeated_total", {"phase": phase}) == 1


@pytest.mark.parametrize("ahead_ms", [60_000, -60_000, 3_600_000, -3_600_000])
def test_a_wrong_clock_is_found_however_late_single_records_are_read(ahead_ms: int) -> None:
    """The record that was read soonest after it was written shows it best."""
    check = ClockCheck()
    for number in range(SAMPLES):
        assert check.ahead_ms == 0
        check.add(1_000_000, 1_000_000 + ahead_ms + 5 * number)
    assert check.ahead_ms == ahead_ms


def test_a_right_clock_is_not_doubted_for_a_pause_of_the_reader() -> None:
    """After it, old records are read late, and soon new ones in time."""
    check = ClockCheck()
    for late_ms in (60_000, 50_000, 40_000, 30_000, 20_000, 15_000, 12_000, 20):
        check.add(1_000_000, 1_000_000 + late_ms)
    assert check.ahead_ms == 0
    for _ in range(SAMPLES):
        check.add(1_000_000, 1_000_000 - OFF_MS_MAX)
    assert check.ahead_ms == 0


def test_the_offset_is_described() -> None:
    """In seconds, with its direction."""
    assert clock_text(60_000) == "its clock is 60 s ahead of the times of records in Kafka"
    assert clock_text(-3_600_000) == "its clock is 3,600 s behind the times of records in Kafka"
