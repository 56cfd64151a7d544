"""What `regraft plans approve|cancel` refuses itself, and how long it waits for the outcome of an order."""

import json

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands import orders_command, plans_command
from regraft.commands.plans_command import is_awaited
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.orders.send_orders import send_order
from regraft.infra.process.stack_error import CallError, StackError
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.regraft.canned_run import small_plan

PLAN_ORDERS = [OrderKind.APPROVE, OrderKind.CANCEL]


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


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["b01", "--reason", "new disks"], [(OrderKind.MAINTAIN, "new disks")]),
        (["b01", "--end"], [(OrderKind.RETURN, "back")]),
        (["b01", "--end", "--reason", "repaired"], [(OrderKind.RETURN, "repaired")]),
        (["b01"], []),
        (["b01", "--end", "--reason", " "], []),
        (["b01", "--end", "--evacuate"], []),
        (["b01", "--end", "--for", "5"], []),
        *((["b01", "--reason", "disks", "--for", minutes], []) for minutes in ("nan", "inf", "1e300", "-1", "1e12")),
    ],
)
def test_maintenance_begins_with_a_reason_and_ends_without(
    words: list[str], sent: list[tuple[OrderKind, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be meant is a wrong call, and nothing is stored."""
    given: list[tuple[OrderKind, str]] = []
    monkeypatch.setattr(
        orders_command, "give_order", lambda _, kind, __, ___, reason, **____: given.append((kind, reason))
    )
    answer = CliRunner().invoke(app, ["members", "maintain", *words])
    assert (given, answer.exit_code) == (sent, 0 if sent else 2)


def test_a_plan_by_its_name_is_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown one is answered with those there are."""
    monkeypatch.setattr(plans_command, "_stored", lambda _: [small_plan(PlanPhase.PROPOSED)])
    shown = CliRunner().invoke(app, ["plans", "list", "plan-1"]).stdout
    assert shown.startswith("plan-1: proposed\n")
    assert "history:" in shown
    assert json.loads(CliRunner().invoke(app, ["plans", "list", "plan-1", "--json"]).stdout)["plan"] == "plan-1"
    unknown = CliRunner().invoke(app, ["plans", "list", "plan-9"])
    assert "No plan is named plan-9: the newest are plan-1." in str(unknown.exception)


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
        ("cancel", PlanPhase.REFUSED, 0),
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


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Order("b01", OrderKind.MAINTAIN, "ann", "x" * 10_001, 1), "length <= 10000 - at `$.reason`, it is 'xxx"),
        (Order("", OrderKind.ADD, "ann", "more room", 1), "length >= 1 - at `$.subject`, it is ''"),
        (Order("b\n9", OrderKind.ADD, "ann", "more room", 1), "at `$.subject`, it is 'b\\n9'"),
    ],
)
def test_an_order_that_no_controller_could_read_is_a_wrong_call(order: Order, why: str) -> None:
    """It is one sentence, and nothing is stored."""
    with pytest.raises(CallError) as refused:
        send_order(KafkaAccess("127.0.0.1:1"), order)
    assert why in str(refused.value)
    assert "nothing was stored" in str(refused.value)
