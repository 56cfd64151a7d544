"""What `regraft plans approve|refuse|cancel` refuses itself, and how long it waits for the outcome of an order."""

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands import plans_command
from regraft.commands.plans_command import is_awaited
from regraft.infra.process.stack_error import StackError
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.regraft.canned_run import small_plan

PLAN_ORDERS = [kind for kind in OrderKind if kind.scope == "plan"]


@pytest.mark.parametrize("kind", PLAN_ORDERS)
@pytest.mark.parametrize("phase", list(PlanPhase))
def test_an_impossible_order_is_not_stored(kind: OrderKind, phase: PlanPhase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The phases are the controller's: a plan that is being aborted cannot be cancelled again."""
    sent: list[OrderKind] = []
    monkeypatch.setattr(plans_command, "_stored", lambda _: [small_plan(phase)])
    monkeypatch.setattr(plans_command, "give_order", lambda _, kind, *__, **___: sent.append(kind))
    answer = CliRunner().invoke(app, ["plans", kind, "plan-1", "--reason", "because", "--wait", "0"])
    if kind in LIFE[phase].orders:
        assert (sent, answer.exit_code) == ([kind], 1)
        assert "plan-1 has not changed after 0 s" in answer.output
    else:
        assert sent == []
        assert isinstance(answer.exception, StackError)
        assert f"plan-1 is {phase}: {kind} needs a plan that is proposed" in str(answer.exception)


@pytest.mark.parametrize("phase", list(PlanPhase))
def test_an_order_is_waited_for_until_its_outcome(phase: PlanPhase) -> None:
    """A review until it is decided, a cancelled plan until brokers have dropped it or it is too late."""
    assert is_awaited(OrderKind.APPROVE, phase) is is_awaited(OrderKind.REFUSE, phase) is (phase is PlanPhase.PROPOSED)
    assert is_awaited(OrderKind.CANCEL, phase) is not (LIFE[phase].is_final or LIFE[phase].is_committed)


@pytest.mark.parametrize(
    ("kind", "phase", "exit_code"),
    [
        ("approve", PlanPhase.PREPARING, 0),
        ("approve", PlanPhase.REFUSED, 1),
        ("refuse", PlanPhase.REFUSED, 0),
        ("refuse", PlanPhase.PREPARING, 1),
        ("cancel", PlanPhase.ABORTED, 0),
        ("cancel", PlanPhase.ACTIVATING, 1),
    ],
)
def test_the_exit_code_says_whether_the_order_took_effect(
    kind: str, phase: PlanPhase, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order may come too late: the plan to cancel is executed, the plan to approve was refused."""
    versions = iter([small_plan(PlanPhase.PROPOSED), small_plan(phase)])
    monkeypatch.setattr(plans_command, "_stored", lambda _: [next(versions)])
    monkeypatch.setattr(plans_command, "give_order", lambda *_, **__: None)
    answer = CliRunner().invoke(app, ["plans", kind, "plan-1", "--reason", "because", "--wait", "5"])
    assert (answer.exit_code, f"plan-1 is {phase}" in answer.output) == (exit_code, True)
