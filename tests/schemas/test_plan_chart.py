"""The state chart and the table of phases in docs/protocol.md agree with the table of a plan's life."""

import re
from pathlib import Path

from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import FIRST_PHASES, LIFE, PhaseFacts

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def chart() -> list[str]:
    """Return the lines of the state chart: beginnings, transitions with the answer that causes each, ends."""
    lines = ["stateDiagram-v2", *(f"    [*] --> {phase}" for phase in FIRST_PHASES)]
    for phase, facts in LIFE.items():
        for number, after in enumerate(facts.next):
            is_answered = facts.answer is not None and number == 0
            lines.append(f"    {phase} --> {after}" + (f": all {facts.answer}" if is_answered else ""))
    return lines + [f"    {phase} --> [*]" for phase, facts in LIFE.items() if facts.is_final]


def how_binding(facts: PhaseFacts) -> str:
    """Return how binding the plan is in that phase: in force, committed, or "" for neither."""
    return "in force" if facts.is_in_force else "committed" if facts.is_committed else ""


def row(phase: PlanPhase, facts: PhaseFacts) -> list[str]:
    """Return the cells of a phase's row."""
    facts_shown = [str(facts.command or ""), str(facts.answer or ""), f"`{facts.limit}`" if facts.limit else ""]
    return [str(phase), *facts_shown, ", ".join(facts.orders), how_binding(facts)]


def test_the_state_chart_matches_the_table() -> None:
    found = re.search(r"```mermaid\n(stateDiagram-v2\n    \[\*\] --> proposed.*?)\n```", PAGE, re.DOTALL)
    assert found is not None
    assert found[1].splitlines() == chart()


def test_the_table_of_phases_matches_the_code() -> None:
    heads = ["phase", "command", "ends when all are", "limit", "orders", "plan is"]
    wanted = [heads, ["---"] * len(heads), *(row(phase, facts) for phase, facts in LIFE.items())]
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|" for cells in wanted]
    assert "\n".join(lines) in PAGE
