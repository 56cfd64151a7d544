"""Send pages the facts of each phase of a plan, so that no page needs its own list of phases.

In: the table of a plan's life. Out: a part of the board, constant while the server runs. Icons and labels belong to the
page.
"""

from __future__ import annotations

from typing import Any

from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE

FACTS = ("is_moving", "is_under_way", "is_committed", "is_in_force", "is_aborted", "is_final")


def phases_part() -> dict[str, Any]:
    """Return the facts and allowed orders of each phase, and the steps of a plan that succeeds."""
    facts = {
        str(phase): {
            "orders": [str(kind) for kind in one.orders],
            **{name: getattr(one, name) for name in FACTS},
        }
        for phase, one in LIFE.items()
    }
    return {"facts": facts, "steps": [str(phase) for phase in _steps()]}


def _steps() -> list[PlanPhase]:
    """Return the phases of a plan that succeeds, from the first command to before the final one."""
    steps, phase = [], PlanPhase.PREPARING
    while not LIFE[phase].is_final:
        steps.append(phase)
        phase = LIFE[phase].next[0]
    return steps
