"""A broker's answer to REPORT: its epoch, the plan that led there, and the whole overlay. Pure.

In: the broker's own state. Out: an answer. Who asks, and how the answers are used, belongs to the controller.
"""

from __future__ import annotations

import msgspec

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.brokers.broker_messages import Answer
from regraft.producers.brokers.broker_protocol import BrokerPhase
from regraft.producers.brokers.command_fence import CommandFence
from regraft.schemas.plan import Plan, PlanPhase

NO_PLAN = Plan("none", 0, 0, 0, (), (), (), (), 0.0, 0.0, PlanPhase.COMPLETED, ())


def reported(answer: Answer, held: OverlayConfiguration, phase: BrokerPhase, fence: CommandFence) -> Answer:
    """Return the answer with what the broker holds in the epoch that it stamps."""
    target = held.as_target(NO_PLAN, held)
    return Answer(
        msgspec.structs.replace(
            answer.result,
            epoch_to=held.epoch,
            reason=phase,
            plan_held=fence.plan_of(held.epoch),
            digest=fence.digest_of(held.epoch),
            links_held=target.links_target,
            ring_held=target.ring_target,
        )
    )
