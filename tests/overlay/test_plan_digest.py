"""The digest of a plan distinguishes it from every other plan and includes the digest of its overlay."""

import msgspec
import pytest

from regraft.overlay.overlay_configuration import OverlayConfiguration, overlay_digest, plan_digest
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, PhaseChange, Plan, PlanPhase
from tests.controller.scripted_ring import RING

TREE = TreeConfiguration.of(1, ("a", "b", "c"), [("a", "b"), ("b", "c")])
MOVES = (ClientMove("p", "a", "b"), ClientMove("q", "b", "c"))
PLAN = Plan(
    "plan-1", 0, 1, 5_000, (), (), (), TREE.links, 10.0, 8.0, PlanPhase.PREPARING, (), moves=MOVES, begun_by="one"
)


@pytest.mark.parametrize(
    "change",
    [
        {"moves": ()},
        {"moves": MOVES[:1]},
        {"moves": (ClientMove("p", "a", "c"), MOVES[1])},
        {"moves": (ClientMove("p", "c", "b"), MOVES[1])},
        {"epoch_from": -1},
        {"begun_by": "two"},
        {"brokers_lost": ("c",)},
    ],
)
@pytest.mark.parametrize("target", [TREE, RING], ids=["tree", "ring"])
def test_different_plans_to_one_overlay_have_different_digests(
    target: OverlayConfiguration, change: dict[str, object]
) -> None:
    """The digest covers the moves, the starting epoch, who began the plan, and the lost brokers."""
    other = msgspec.structs.replace(PLAN, **change)
    assert plan_digest(other, target) != plan_digest(PLAN, target)
    assert overlay_digest(plan_digest(other, target)) == overlay_digest(plan_digest(PLAN, target)) == target.digest


def test_a_plan_keeps_its_digest_through_all_phases() -> None:
    """Phase, term and the order of moves are not part of it, so a successor means the same plan."""
    later = msgspec.structs.replace(
        PLAN, phase=PlanPhase.DRAINING, history=(PhaseChange(PlanPhase.DRAINING, 7, ""),), term=9, moves=MOVES[::-1]
    )
    assert plan_digest(later, TREE) == plan_digest(PLAN, TREE)


def test_another_overlay_has_another_digest() -> None:
    other = TreeConfiguration.of(1, TREE.brokers, [("a", "c"), ("b", "c")])
    assert plan_digest(PLAN, other) != plan_digest(PLAN, TREE)
