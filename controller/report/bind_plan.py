"""Put the plan under way and its epoch on every log line, from its first storing to its end.

In: plans as they are stored or read. Out: ``plan`` and ``epoch`` in this thread's log context. What is logged does not
belong here.
"""

from __future__ import annotations

from structlog.contextvars import bind_contextvars, unbind_contextvars

from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE


class PlanBinder:
    """Binds the newest plan that is under way; one that waits for approval or is over is not bound."""

    def __init__(self) -> None:
        self._bound = ""
        self._newest: tuple[str, int] = ("", 0)

    def note(self, plan: Plan) -> None:
        """Note a plan's newest version."""
        if LIFE[plan.phase].is_under_way:
            bind_contextvars(plan=plan.plan, epoch=plan.epoch_to)
            self._bound = plan.plan
            self._newest = (plan.plan, plan.epoch_to)
        elif plan.plan == self._bound:
            unbind_contextvars("plan", "epoch")
            self._bound = ""

    def ids_of(self, plan: str) -> dict[str, str | int]:
        """Return the context of a line about ``plan``, also after its end; empty if the line is about no plan."""
        if not plan:
            return {}
        newest, epoch = self._newest
        return {"plan": plan, "epoch": epoch} if plan == newest else {"plan": plan}
