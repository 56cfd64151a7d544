"""How a broker answers the controller, with its count of the control messages that it sent to neighbours.

In: commands, and the state of the broker (:mod:`producers.brokers.two_epochs`). Out: answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from regraft.producers.brokers.broker_messages import Answer, Effect, Notification, Send
from regraft.producers.brokers.command_fence import CommandFence
from regraft.producers.brokers.epoch_change import PlanUnderWay
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal


class AnsweringBroker:
    """The part of a broker that answers commands."""

    broker: str
    control_messages_sent: int
    fence: CommandFence
    lost_peers: set[str]
    under_way: Any  # A PlanUnderWay of the kind of overlay, or None.
    _change: Any  # An EpochChange of the kind of overlay.

    def _answer(self, command: Command, outcome: Outcome, now_ms: float) -> Answer:
        return Answer(self._result_to(command.plan, command.digest, command.phase, command.epoch_to, outcome, now_ms))

    def _refuse(self, command: Command, refusal: Refusal, reason: str, now_ms: float) -> Answer:
        answer = self._answer(command, Outcome.REFUSED, now_ms).result
        return Answer(msgspec.structs.replace(answer, refusal=refusal, reason=reason))

    def _result(self, under_way: PlanUnderWay, phase: CommandPhase, outcome: Outcome, now_ms: float) -> Answer:
        """Answer a command whose phase is complete, possibly long after it came."""
        digest = self.fence.digest_of(under_way.epoch_to)
        return Answer(self._result_to(under_way.plan, digest, phase, under_way.epoch_to, outcome, now_ms))

    def _result_to(
        self, plan: str, digest: str, phase: CommandPhase, epoch_to: int, outcome: Outcome, now_ms: float
    ) -> CommandResult:
        under_way = self.under_way
        sent = under_way.control_messages if under_way is not None and under_way.plan == plan else 0
        return CommandResult(
            plan, phase, self.broker, epoch_to, outcome, "", sent, int(now_ms), tuple(sorted(self.lost_peers)),
            self.fence.term, digest,
        )  # fmt: skip

    def count_control(self, effects: list[Effect]) -> None:
        """Count the messages sent to peers, except notifications; also count those that the plan under way caused."""
        sent = [
            effect.message
            for effect in effects
            if isinstance(effect, Send) and not isinstance(effect.message, Notification)
        ]
        self.control_messages_sent += len(sent)
        if self.under_way is not None:
            self.under_way.control_messages += sum(self._change.is_of_plan(message, self.under_way) for message in sent)
