"""Whose word that a broker is dead a committed plan accepts."""

from dataclasses import replace

import pytest

from regraft.controller.execute.transition import CLAIMED_UNANSWERED_MS, UNANSWERED_MS_MIN
from regraft.controller.execute.weigh_claims import PeerClaims
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.controller.execute.test_transition import answer, run_to

DRAINED_MS = 100_000


@pytest.mark.parametrize("agent_of", [{}, {"a": "east", "b": "west", "c": "east"}])
@pytest.mark.parametrize("phase", [PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.RETIRING])
def test_one_party_cannot_end_a_committed_plan_early(phase: PlanPhase, agent_of: dict[str, str]) -> None:
    """One broker, or all of one agent, report another agent's broker dead: the plan still waits for that."""
    transition = run_to(phase, PeerClaims(agent_of))
    facts = LIFE[phase]
    assert facts.command is not None
    assert facts.answer is not None
    for broker in ("a", "c") if agent_of else ("a",):
        transition.on_result(answer(broker, facts.command, facts.answer, lost=("b",)), 10)
    transition.on_tick(1_011)
    assert transition.plan.phase is phase
    assert "b" in transition.waiting_for


@pytest.mark.parametrize("is_answering", [True, False])
def test_a_broker_that_one_neighbour_reports_dead_is_lost_if_it_answers_nothing_either(is_answering: bool) -> None:
    """Its silence is the second witness: a leaf of a tree has one neighbour only."""
    transition = run_to(PlanPhase.DRAINING)
    for broker in ("a", "c"):
        transition.on_result(answer(broker, CommandPhase.ACTIVATE, Outcome.DRAINED, lost=("b",)[: broker == "a"]), 10)
    for now_ms in range(1_000, CLAIMED_UNANSWERED_MS + 3_000, 1_000):
        transition.on_tick(now_ms)
        if is_answering:
            transition.on_result(answer("b", CommandPhase.ACTIVATE, Outcome.ACTIVATED), now_ms)
    assert transition.plan.phase is (PlanPhase.DRAINING if is_answering else PlanPhase.RETIRING)


def test_nobody_is_silent_while_not_asked() -> None:
    """A broker drains for long: those that had drained are asked again only then, and have their time to answer."""
    transition = run_to(PlanPhase.DRAINING)
    transition.limits = replace(transition.limits, drain_ms=DRAINED_MS)
    for broker in ("a", "c"):
        transition.on_result(answer(broker, CommandPhase.ACTIVATE, Outcome.DRAINED, lost=("a",)[: broker == "c"]), 10)
    for now_ms in range(1_000, DRAINED_MS, 1_000):
        transition.on_tick(now_ms)
        transition.on_result(answer("b", CommandPhase.ACTIVATE, Outcome.ACTIVATED), now_ms)
    transition.on_result(answer("b", CommandPhase.ACTIVATE, Outcome.DRAINED), DRAINED_MS)
    transition.on_tick(DRAINED_MS + CLAIMED_UNANSWERED_MS)
    assert transition.unanswering(DRAINED_MS + CLAIMED_UNANSWERED_MS) == {}
    assert (transition.plan.phase, transition.waiting_for) == (PlanPhase.RETIRING, ("a", "b", "c"))
    transition.on_tick(DRAINED_MS + CLAIMED_UNANSWERED_MS + 1)
    assert transition.waiting_for == ("b", "c")
    assert transition.unanswering(DRAINED_MS + UNANSWERED_MS_MIN + 1) == dict.fromkeys("bc", UNANSWERED_MS_MIN + 1)
