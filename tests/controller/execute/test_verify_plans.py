"""On which windows plans are verified, and what happens to plans without any."""

import pytest

from regraft.schemas.plan import PlanPhase
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.controller.test_control_loop import far_ends, overlay_of


def hidden(start_ms: int) -> list[set[str]]:
    """What is reported in time of the same traffic: nothing at the far ends, for which the plan was made."""
    return [{"b02", "b03"}] * 40


def behind_long_queues(**changes: object) -> ScriptedOverlay:
    """Return an overlay whose plan has just been executed, and whose queues then hide its savings."""
    overlay = overlay_of(quiet_windows_per_change=0, **changes)
    while overlay.phases != [PlanPhase.VERIFYING]:
        overlay.tick()
    overlay.wanted = hidden
    overlay.wait_ms = 2 * overlay.settings.decision.queue_wait_ms_max
    return overlay


def test_a_plan_is_verified_on_windows_without_long_queues() -> None:
    """On the windows with long queues it would seem harmful and be rolled back."""
    overlay = behind_long_queues()
    overlay.run_windows(3 * overlay.settings.verify_windows)
    assert overlay.phases == [PlanPhase.VERIFYING]
    overlay.wanted, overlay.wait_ms = far_ends, 0.0
    overlay.run_windows(overlay.settings.verify_windows + 2)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert plan.cost_observed_per_s == pytest.approx(plan.cost_predicted_per_s)


def test_a_plan_is_closed_unverified_if_queues_stay_long() -> None:
    """After the usual time-out for verification, and with the reason."""
    overlay = behind_long_queues(verify_ms_max=6_000)
    overlay.run_windows(8)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert plan.cost_observed_per_s is None
    why = "no 2 complete windows without long queues since epoch 1 within 6000 ms"
    assert plan.history[-1].reason == f"not verified: {why}"
