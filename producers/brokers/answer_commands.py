"""How a broker answers the controller, with its count of the control messages that it sent to neighbours."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regraft.producers.brokers.broker_messages import Answer, Effect, Message, Notification, Send
from regraft.producers.brokers.broker_state import BrokerState, Plan, PlanUnderWay, Tables
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.plan import Plan as StoredPlan
from regraft.schemas.plan import PlanPhase

NO_PLAN = StoredPlan("none", 0, 0, 0, (), (), (), (), 0.0, 0.0, PlanPhase.COMPLETED, ())


def answer(state: BrokerState[Tables, Plan], command: Command, outcome: Outcome) -> Answer:
    """Answer a command at once."""
    return Answer(_result_to(state, command.plan, command.digest, command.phase, command.epoch_to, outcome))


def refuse(state: BrokerState[Tables, Plan], command: Command, refusal: Refusal, reason: str) -> Answer:
    """Refuse a command."""
    result = answer(state, command, Outcome.REFUSED).result
    return Answer(msgspec.structs.replace(result, refusal=refusal, reason=reason))


def answer_late(
    state: BrokerState[Tables, Plan], under_way: PlanUnderWay, phase: CommandPhase, outcome: Outcome
) -> Answer:
    """Answer a command whose phase is complete, possibly long after it came."""
    digest = state.fence.digest_of(under_way.epoch_to)
    return Answer(_result_to(state, under_way.plan, digest, phase, under_way.epoch_to, outcome))


def report(state: BrokerState[Tables, Plan], command: Command) -> Answer:
    """Answer REPORT: with the epoch that the broker stamps, the plan that led there, and the whole overlay."""
    held = state.tables[state.epoch].configuration
    target = held.as_target(NO_PLAN, held)
    return Answer(
        msgspec.structs.replace(
            answer(state, command, Outcome.REPORTED).result,
            epoch_to=held.epoch,
            reason=state.phase,
            plan_held=state.fence.plan_of(held.epoch),
            digest=state.fence.digest_of(held.epoch),
            links_held=target.links_target,
            ring_held=target.ring_target,
        )
    )


def _result_to(
    state: BrokerState[Tables, Plan],
    plan: str,
    digest: str,
    phase: CommandPhase,
    epoch_to: int,
    outcome: Outcome,
) -> CommandResult:
    under_way = state.under_way
    sent = under_way.control_messages if under_way is not None and under_way.plan == plan else 0
    return CommandResult(
        plan, phase, state.broker, epoch_to, outcome, "", sent, int(state.now_ms), tuple(sorted(state.lost_peers)),
        state.fence.term, digest,
    )  # fmt: skip


def count_control(
    state: BrokerState[Tables, Plan], is_of_plan: Callable[[Message, Plan], bool], effects: list[Effect]
) -> None:
    """Count the messages sent to peers, except notifications; also count those that the plan under way caused."""
    sent = [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and not isinstance(effect.message, Notification)
    ]
    state.control_messages_sent += len(sent)
    if state.under_way is not None:
        state.under_way.control_messages += sum(is_of_plan(message, state.under_way) for message in sent)
