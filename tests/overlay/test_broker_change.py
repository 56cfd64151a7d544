"""Brokers that join, leave or are lost: the later overlay, on a tree and on a ring, and the earlier one back."""

from __future__ import annotations

import pytest

from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.ring.chord_configuration import RingConfiguration, id_moves_between
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.schemas.plan import OFF_RING, IdMove, Plan, PlanPhase

LINE = TreeConfiguration.of(3, "abcd", [("a", "b"), ("b", "c"), ("c", "d")], {"p": "b", "q": "d"})
RING = RingConfiguration.of(3, 8, {"a": 10, "b": 70, "c": 130, "d": 200}, {"u": "b", "v": "d"})


def _plan(target: OverlayConfiguration, present: OverlayConfiguration, *lost: str) -> Plan:
    plan = Plan(
        "plan-4", 3, 4, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PROPOSED, (), brokers_lost=lost
    )  # fmt: skip
    return target.as_target(plan, present)


def test_a_lost_broker_takes_its_links_and_publishers_along() -> None:
    """Its links need not be named, and its publishers have no home afterwards."""
    target = LINE.replaced(4, [], [("a", "c")], change=BrokerChange(lost=frozenset("b")))
    assert target == TreeConfiguration.of(4, "acd", [("a", "c"), ("c", "d")], {"q": "d"})


def test_a_broker_that_leaves_names_its_links() -> None:
    """A leaving broker is alive and takes part in each change of its links."""
    change = BrokerChange(left=frozenset("d"))
    assert LINE.replaced(4, [("c", "d")], [], change=change).brokers == ("a", "b", "c")
    with pytest.raises(ValueError, match="3 links over 3 brokers"):
        LINE.replaced(4, [], [], change=change)


def test_a_plan_of_a_tree_gives_both_overlays_even_if_a_lost_broker_returns() -> None:
    """All links of a broker that is lost and in the target are new, even those between the same two brokers."""
    target = TreeConfiguration.of(4, "abce", [("a", "b"), ("b", "c"), ("c", "e")])
    plan = _plan(target, LINE, "b", "d")
    assert plan.links_removed == (("a", "b"), ("b", "c"), ("c", "d"))
    assert plan.links_added == (("a", "b"), ("b", "c"), ("c", "e"))
    change = BrokerChange.between(LINE.brokers, plan.brokers_target, plan.brokers_lost)
    assert change == BrokerChange(frozenset("be"), frozenset(), frozenset("bd"))
    assert LINE.replaced(4, plan.links_removed, plan.links_added, change=change).with_homes({}) == target
    assert LINE.target_of(plan) == target
    assert target.origin_of(plan, LINE.home_of) == LINE


def test_a_plan_of_a_ring_gives_both_overlays() -> None:
    """A broker that is on only one of the two rings has no ID on the other."""
    target = RingConfiguration.of(4, 8, {"a": 10, "c": 131, "d": 200, "e": 5})
    plan = _plan(target, RING, "b")
    assert plan.id_moves == (IdMove("b", 70, OFF_RING), IdMove("c", 130, 131), IdMove("e", OFF_RING, 5))
    change = BrokerChange.between(RING.brokers, plan.brokers_target, plan.brokers_lost)
    assert RING.replaced(4, plan.id_moves, change=change).with_homes({}) == target
    assert RING.replaced(4, plan.id_moves, change=change).home_of == {"v": "d"}
    assert RING.target_of(plan) == target
    assert target.origin_of(plan, RING.home_of) == RING


def test_a_broker_that_joins_a_ring_needs_an_id() -> None:
    """A broker that is on the ring already cannot join again."""
    with pytest.raises(ValueError, match="e would have no ring ID"):
        RING.replaced(4, [], change=BrokerChange(joined=frozenset("e")))
    with pytest.raises(ValueError, match="a cannot join"):
        RING.replaced(4, [], change=BrokerChange(joined=frozenset("a")))
    moves = id_moves_between(RING, RingConfiguration.of(4, 8, RING.id_of | {"e": 10 + 1}))
    assert RING.replaced(4, moves, change=BrokerChange(joined=frozenset("e"))).id_of["e"] == 11
