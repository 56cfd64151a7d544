"""Plans under way: phases, commands, answers, and the runner that leads a plan through them."""

from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.transition import EmitEvent, PersistPlan, SendCommand, Transition
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.plan_life import LIFE, answers_to

__all__ = [
    "Command",
    "CommandPhase",
    "CommandResult",
    "EmitEvent",
    "LIFE",
    "Outcome",
    "PersistPlan",
    "PlanRunner",
    "SendCommand",
    "Transition",
    "answers_to",
]
