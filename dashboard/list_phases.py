"""Send pages what holds in each phase of a plan, so that no page keeps a list of phases.

In: the table of a plan's life. Out: a part of the board, the same as long as the server runs. Which pictures and words
a page has for it is the page's affair.
"""

from __future__ import annotations

from typing import Any

from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE

FACTS = ("is_moving", "is_under_way", "is_committed", "is_in_force", "is_aborted", "is_final")


def phases_part() -> dict[str, Any]:
    """Return the facts of each phase and the orders allowed in it, and the steps of a plan that is executed."""
    facts = {
        str(phase): {
            "orders": [str(kind) for kind in one.orders],
            **{name: getattr(one, name) for name in FACTS},
        }
        for phase, one in LIFE.items()
    }
    return {"facts": facts, "steps": [str(phase) for phase in _steps()]}


def _steps() -> list[PlanPhase]:
    """Return the phases from the first command to the end where all goes well, without the end itself."""
    steps, phase = [], PlanPhase.PREPARING
    while not LIFE[phase].is_final:
        steps.append(phase)
        phase = LIFE[phase].next[0]
    return steps
