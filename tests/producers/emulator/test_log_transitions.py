"""Commands and answers of all brokers give one log line per transition, with plan and epoch."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from regraft.producers.run_emulator import TransitionLog
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    structlog.contextvars.clear_contextvars()
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as found:
        yield found
    structlog.contextvars.clear_contextvars()


def command(broker: str, phase: CommandPhase = CommandPhase.PREPARE, epoch: int = 4) -> Command:
    return Command(f"plan-{epoch}", phase, broker, epoch - 1, epoch)


def result(broker: str, outcome: Outcome, epoch: int = 4) -> CommandResult:
    return CommandResult(f"plan-{epoch}", CommandPhase.PREPARE, broker, epoch, outcome, "why not", 0, 0)


def test_a_transition_begins_and_ends_once(lines: list[Any]) -> None:
    """This holds for any number of brokers and repeated commands; lines in between have the plan."""
    transitions = TransitionLog(2)
    for broker in ("a", "b", "a"):
        transitions.on_command(command(broker))
    structlog.get_logger().info("in between")
    for broker in ("a", "a", "b"):
        transitions.on_result(result(broker, Outcome.RETIRED))
    structlog.get_logger().info("after")
    found = [(line["event"], line.get("plan"), line.get("epoch")) for line in lines]
    assert found == [
        ("transition_started_at_brokers", "plan-4", 4),
        ("in between", "plan-4", 4),
        ("transition_ended_at_brokers", "plan-4", 4),
        ("after", None, None),
    ]


def test_a_newer_plan_replaces_one_that_never_ended(lines: list[Any]) -> None:
    """A dead broker never answers; lines of the next plan carry that plan."""
    transitions = TransitionLog(2)
    transitions.on_command(command("a"))
    transitions.on_result(result("a", Outcome.ABORTED))
    transitions.on_command(command("a", epoch=5))
    transitions.on_result(result("b", Outcome.ABORTED))
    assert [line["epoch"] for line in lines] == [4, 5]
    assert structlog.contextvars.get_contextvars()["plan"] == "plan-5"


def test_every_refusal_is_logged_with_its_own_plan(lines: list[Any]) -> None:
    """Its plan need not be the one under way."""
    TransitionLog(2).on_result(result("a", Outcome.REFUSED, 7))
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("command_refused", "warning")
    assert (line["broker"], line["plan"], line["epoch"], line["reason"]) == ("a", "plan-7", 7, "why not")


def test_late_commands_begin_no_transition_after_a_restart(lines: list[Any]) -> None:
    """Only a prepare begins a transition."""
    TransitionLog(2).on_command(command("a", CommandPhase.RETIRE))
    assert lines == []
