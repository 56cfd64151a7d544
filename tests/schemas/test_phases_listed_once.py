"""Only the table of a plan's life lists phases: code that asks about several of them asks the table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from regraft.schemas.plan import PlanPhase

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("benchmarks", "controller", "infra", "lab", "producers", "regraft", "streaming")
PAGES = sorted((CHECKOUT / "regraft" / "dashboard" / "static").glob("*.*"))
NAMES = {phase.name: phase for phase in PlanPhase}
VALUES = "|".join(PlanPhase)
# A phase's name as a text, as a key, or compared with a plan's phase.
NAMED_ON_A_PAGE = re.compile(rf"""(["'`])(?:{VALUES})\1|\b(?:{VALUES})\s*:""")


def phase_of(node: ast.expr | None) -> PlanPhase | None:
    """Return the phase that an expression names, as a member of the enum or by its value."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "PlanPhase":
        return NAMES.get(node.attr)
    if isinstance(node, ast.Constant) and node.value in list(PlanPhase):
        return PlanPhase(node.value)
    return None


def parts_of(node: ast.AST) -> Iterator[list[ast.expr | None]]:
    """Yield the elements of a collection, the alternatives of a match, or the operands of a condition."""
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        yield list(node.elts)
    elif isinstance(node, ast.Dict):
        yield list(node.keys)
        yield list(node.values)
    elif isinstance(node, ast.BoolOp):
        compared = (one for one in ast.walk(node) if isinstance(one, ast.Compare))
        yield [side for one in compared for side in (one.left, *one.comparators)]
    elif isinstance(node, ast.MatchOr):
        yield [one.value for one in node.patterns if isinstance(one, ast.MatchValue)]


def lists_in(source: str) -> list[str]:
    """Return where a module names two or more phases together."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for parts in parts_of(node):
            phases = {phase for part in parts if (phase := phase_of(part)) is not None}
            if len(phases) > 1:
                found.append(f"line {getattr(node, 'lineno', 0)}: {', '.join(sorted(phases))}")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_lists_phases(package: str) -> None:
    """Tests may: they state which course a plan is to take."""
    modules = sorted((CHECKOUT / package).rglob("*.py"))
    assert modules
    found = {str(path.relative_to(CHECKOUT)): lists_in(path.read_text()) for path in modules}
    assert {path: lists for path, lists in found.items() if lists} == {}, "ask schemas.plan_life instead"


def test_no_page_names_a_phase() -> None:
    """The server gives pages the facts of each phase."""
    assert len(PAGES) > 15
    found = {path.name: [match[0] for match in NAMED_ON_A_PAGE.finditer(path.read_text())] for path in PAGES}
    assert {name: named for name, named in found.items() if named} == {}, "ask the store for facts(phase) instead"


@pytest.mark.parametrize(
    "source",
    [
        "ENDED = frozenset({PlanPhase.COMPLETED, PlanPhase.ABORTED})",
        "x = phase in (PlanPhase.COMPLETED, PlanPhase.ABORTED)",
        "LIMITS = {PlanPhase.PREPARING: 1, PlanPhase.DRAINING: 2}",
        "PHASE_FOR = {'approve': PlanPhase.PROPOSED, 'cancel': PlanPhase.PREPARING}",
        "x = phase is PlanPhase.COMPLETED or phase is PlanPhase.ABORTED",
        "x = phase is PlanPhase.PROPOSED or (is_cancel and phase is PlanPhase.PREPARING)",
        "x = plan['phase'] not in ('aborting', 'aborted')",
        "match phase:\n    case PlanPhase.COMPLETED | PlanPhase.ABORTED:\n        pass",
    ],
)
def test_a_list_of_phases_is_found(source: str) -> None:
    assert lists_in(source)


@pytest.mark.parametrize("source", ["x = phase is PlanPhase.COMPLETED", "x = {'refused': 1, 'moves': 2}"])
def test_a_single_phase_is_not_a_list(source: str) -> None:
    assert lists_in(source) == []


@pytest.mark.parametrize("text", ['plan.phase === "verifying"', "{ proposed: 1 }", "['aborted']"])
def test_a_phase_on_a_page_is_found(text: str) -> None:
    assert NAMED_ON_A_PAGE.search(text)
