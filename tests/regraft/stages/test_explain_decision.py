"""Why no plan is made now: `regraft status` names the reason that holds, with its figures."""

import pytest
from msgspec.structs import replace

from regraft.schemas.live_view import ShownDecision
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.texts import time_text
from regraft.stages.explain_decision import NOTHING_PROPOSED, decision_line, decision_of
from tests.controller.execute.test_review_plans import far_ends, overlay_of
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.schemas.shown_views import shown_plan, shown_proposal, view_of

END_MS = 60_000


def decided(**changes: object) -> ShownDecision:
    nothing = ShownDecision(window_end_ms=END_MS, plan=None, state_verdict=None, state_reason="", refused=())
    return replace(nothing, **changes)


def line_of(decision: ShownDecision | None) -> str:
    """Return the sentence about a loop's last decision."""
    found = decision_of(replace(view_of(), last_decision=decision))
    assert found is not None
    return decision_line(found)


def told_by(overlay: ScriptedOverlay) -> str:
    """Return the sentence about a real loop."""
    found = decision_of(overlay.ports.view.shown)
    assert found is not None
    return decision_line(found)


def test_refusals_are_counted_by_verdict_with_the_first_reason_of_each() -> None:
    """The most frequent verdict comes first; what has no room is counted."""
    refused = [
        replace(shown_proposal("why"), planner="swap", verdict=verdict, verdict_reason=reason)
        for verdict, reason in (
            ("cool_down", "2 of 4 windows passed"),
            ("gain_within_noise", "saves 0.7%, chance alone up to 1.1%"),
            ("gain_within_noise", "saves 0.1%"),
            ("degree", ""),
            ("muted", "until 12:00"),
        )
    ]
    assert line_of(decided(refused=tuple(refused))) == (
        f"decision on the window ending {time_text(END_MS)}: no plan, 5 changes refused: 2 gain within noise "
        "(swap: saves 0.7%, chance alone up to 1.1%), 1 cool down (swap: 2 of 4 windows passed), 1 degree (swap), 1 "
        "for other reasons"
    )
    found = decision_of(replace(view_of(), last_decision=decided(refused=tuple(refused))))
    assert found is not None
    assert found["refused"] == {"cool_down": 1, "gain_within_noise": 2, "degree": 1, "muted": 1}


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (decided(), NOTHING_PROPOSED),
        (decided(state_verdict="paused", state_reason="paused by ada: patching"), "no plan, paused by ada: patching"),
        (decided(plan=shown_plan("plan-4", "preparing", END_MS, epoch_to=4)), "plan-4 made"),
        (None, "nothing has been decided yet"),
    ],
)
def test_every_outcome_of_a_decision_has_a_sentence(decision: ShownDecision | None, said: str) -> None:
    """A plan, a state that was refused as a whole, no proposal, no decision."""
    assert said in line_of(decision)


def test_a_standby_explains_nothing() -> None:
    """It makes no decisions; the leader's status has them."""
    assert decision_of(replace(view_of(), is_standby=True)) is None


def test_what_a_running_loop_waits_for_is_named() -> None:
    """A plan that waits for approval, and a pause: the sentence says which."""
    overlay = overlay_of(far_ends)
    overlay.run_windows(5)
    assert told_by(overlay).endswith("no plan, plan-1 waits for approval: one plan at a time")
    overlay.ports.orders.records.append(Order(WHOLE_OVERLAY, OrderKind.PAUSE, "ada", "patching", overlay.now_ms))
    overlay.run_windows(2)
    assert told_by(overlay).endswith("no plan, paused by ada: patching")
