"""A decision considers recent windows first, and all windows only if these lead to no plan but something pays."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from regraft.controller.decide.decide_plan import Decision, decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal, Verdict
from tests.controller.decide.test_decide_moves import (
    HOMES,
    INVENTORY,
    KIND,
    SETTINGS,
    TO_THE_END,
    TREE,
    moving,
    situation_of,
    window_of,
)

OLD, RECENT = 8, 2


def situation_over(wanted: Sequence[str]) -> Situation:
    """Return a situation with one window per entry, whose broker wants p; the last ``RECENT`` windows are recent."""
    windows: tuple[ClosedWindow, ...] = tuple(window_of(1000 * at, p_wanted=one) for at, one in enumerate(wanted))
    state = KIND.state_of(TreeConfiguration.of(0, TREE.brokers, TREE.links, HOMES), windows)
    now_ms = windows[-1].end_ms + 500
    return replace(situation_of(INVENTORY), state=state, now_ms=now_ms, recent_windows=RECENT)


def decided_on(situation: Situation, proposal: Proposal, from_windows: int) -> tuple[list[int], Decision]:
    """Return the numbers of windows with which the planner was called, and the decision.

    The planner proposes ``proposal`` once it gets at least ``from_windows`` windows.
    """
    seen: list[int] = []

    def planner(state: TreeState, *_: object) -> list[Proposal]:
        seen.append(len(state.windows))
        return [proposal] if len(state.windows) >= from_windows else []

    return seen, decide_plan(situation, [planner], 1, SETTINGS)


def test_recent_windows_suffice_for_a_plan() -> None:
    """p is wanted elsewhere for the last two windows only: a plan follows, without looking at the eight before."""
    seen, decision = decided_on(situation_over(["b00"] * OLD + ["b04"] * RECENT), moving(TO_THE_END), 1)
    assert seen == [RECENT]
    assert decision.plan is not None


def test_a_change_visible_only_over_many_windows_is_found() -> None:
    """Nothing is proposed on two windows; on ten the same change is, and it saves cost on the two as well."""
    seen, decision = decided_on(situation_over(["b04"] * (OLD + RECENT)), moving(TO_THE_END), RECENT + 1)
    assert seen == [RECENT, OLD + RECENT]
    assert decision.plan is not None


def test_a_change_that_does_not_pay_on_recent_windows_is_not_sought_on_all() -> None:
    """It saves beyond chance, but less than a transition costs."""
    situation = replace(situation_over(["b04"] * (OLD + RECENT)), price_per_s=1e6)
    seen, decision = decided_on(situation, moving(TO_THE_END), 1)
    assert seen == [RECENT]
    assert [one.verdict for one in decision.refused] == [Verdict.GAIN_BELOW_PRICE]


def test_a_change_that_only_past_traffic_justifies_is_refused() -> None:
    """p was wanted at the far end and now is at home: moving it saves cost over all windows, but no longer."""
    _, decision = decided_on(situation_over(["b04"] * OLD * 8 + ["b00"] * RECENT), moving(TO_THE_END), RECENT + 1)
    assert decision.plan is None
    (refused,) = decision.refused
    assert refused.verdict is Verdict.GAIN_WITHIN_NOISE
    assert "recent windows" in refused.verdict_reason


@pytest.mark.parametrize("recent", [None, OLD + RECENT, OLD + RECENT + 1])
def test_without_older_windows_there_is_one_decision(recent: int | None) -> None:
    """All windows are recent, or an order wants them considered together."""
    situation = replace(situation_over(["b04"] * (OLD + RECENT)), recent_windows=recent)
    seen, _ = decided_on(situation, moving(TO_THE_END), OLD * 2)
    assert seen == [OLD + RECENT]


def test_an_evacuation_waits_for_no_second_decision() -> None:
    """r leaves its broker at the first decision, though it costs."""
    leaving = {"maintained": {"b02": "in maintenance"}, "evacuated": frozenset({"b02"})}
    situation = replace(situation_over(["b00"] * (OLD + RECENT)), **leaving)  # type: ignore[arg-type]
    seen, decision = decided_on(situation, moving(TO_THE_END), OLD * 2)
    assert seen == [RECENT]
    assert [move.client for move in decision.plan.moves] == ["r"]
