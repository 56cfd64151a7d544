"""Clients leave a broker that an operator has put into maintenance: for the best homes elsewhere, whatever it costs."""

from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.decide.choose_proposals import subscribers_moved_of
from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.tree.evacuate_publishers import publishers_leaving
from regraft.controller.state.planner_interface import emptying_proposal
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import ClientMove, HomeMove, PlanPhase, Verdict
from tests.controller.decide.test_decide_moves import HOMES, INVENTORY, TREE, situation_of
from tests.controller.scripted_overlay import settings_of
from tests.controller.scripted_ring import RING, TOPIC, ScriptedRing, publisher, ring_inventory, user

WHY = {"b00": "in maintenance, by ada: new disks"}
SETTINGS = settings_of()


def evacuating(inventory: Inventory = INVENTORY) -> Situation:
    """Return a situation with p and q at b00, which is in maintenance, and complete, calm windows."""
    return replace(situation_of(inventory), maintained=WHY, evacuated=frozenset({"b00"}))


def test_publishers_move_to_their_cheapest_other_home() -> None:
    """p is wanted only at b04, q at both ends: as q's own end is in maintenance, the next broker is as good."""
    situation = evacuating()
    found = publishers_leaving(situation.state, WHY, {"b00"}, 24)
    assert [proposal.moves for proposal in found] == [
        (ClientMove("p", "b00", "b04"),),
        (ClientMove("q", "b00", "b01"),),
    ]
    assert all("in maintenance" in proposal.reason for proposal in found)
    costs = [cost for proposal in found for cost in (proposal.cost_before_per_s, proposal.cost_after_per_s)]
    assert costs[1] == costs[2]  # a sequence: each is costed after the earlier ones


def test_a_move_that_costs_is_chosen_because_it_was_ordered() -> None:
    """r is wanted where it is; leaving its broker costs more, and the plan is made all the same."""
    base = situation_of()
    why = {"b02": "in maintenance, by ada: new disks"}
    asked = replace(base, maintained=why, evacuated=frozenset({"b02"}))
    decision = decide_plan(asked, (), 7, SETTINGS)
    assert decision.plan is not None
    assert decision.plan.moves == (ClientMove("r", "b02", decision.plan.moves[0].home_to),)
    assert decision.plan.cost_predicted_per_s > decision.plan.cost_before_per_s
    assert decide_plan(replace(base, maintained=why), (), 7, SETTINGS).plan is None  # in maintenance, but not evacuated


def test_caps_of_load_apply_to_evacuations_too() -> None:
    """Elsewhere r would add to another broker's load, and all exceed their caps already: it stays."""
    tight = replace(INVENTORY, load_max_per_s=np.full(5, 1e-3))
    assert publishers_leaving(evacuating(tight).state, {"b02"}, {"b02"}, 24) == []


def test_no_more_clients_move_than_the_limit_of_a_plan() -> None:
    """The others follow with the next plan."""
    found = publishers_leaving(evacuating().state, WHY, {"b00"}, 1)
    assert [move.client for proposal in found for move in proposal.moves] == ["p"]


def test_a_move_to_a_broker_in_maintenance_is_refused() -> None:
    """p would be best at b04; during its maintenance p may not move there, and the reason names who ordered it."""
    from tests.controller.decide.test_decide_moves import TO_THE_END, moving

    barred = replace(situation_of(), maintained={"b04": "in maintenance, by ada: new disks"})
    decision = decide_plan(barred, (lambda *_: [moving(TO_THE_END)],), 7, SETTINGS)
    assert decision.plan is None
    assert decision.refused[0].verdict is Verdict.MAINTENANCE
    assert "ada" in decision.refused[0].verdict_reason


def test_other_moves_of_the_same_proposal_are_accepted() -> None:
    """Of two moves in one proposal, the one to the broker in maintenance is left out, which the reason says."""
    from tests.controller.decide.test_decide_moves import TO_THE_END, moving

    both = moving(TO_THE_END, ClientMove("r", "b02", "b03"))
    barred = replace(situation_of(), maintained={"b03": "in maintenance"})
    decision = decide_plan(barred, (lambda *_: [both],), 7, SETTINGS)
    assert decision.plan is not None
    assert decision.plan.moves == (TO_THE_END,)
    assert "1 moves to brokers in maintenance left out" in decision.plan.proposals[0].reason


def test_nothing_moves_if_homes_are_unknown() -> None:
    """Windows without the telemetry of publishers' homes do not say where publishers are."""
    bare = TreeConfiguration.of(0, TREE.brokers, TREE.links, {})
    state = situation_of().state.with_configuration(bare)
    assert HOMES
    assert publishers_leaving(state, WHY, {"b00"}, 24) == []


def test_users_of_a_ring_leave_and_the_plan_is_not_rolled_back() -> None:
    """They move to where their topics are already subscribed to and do not return; the loss is not a failure."""
    ring = ScriptedRing(
        ring_inventory(RING), lambda _: [], settings_of(planner="place_users_dynatops", user_load_max=8.0)
    )
    ring.counts = {TOPIC: 40}
    ring.connect(publisher(TOPIC, "b07", TOPIC))
    ring.connect(*(user(f"u{n}", home, TOPIC) for n, home in enumerate(("b01", "b01", "b02", "b05"))))
    ring.run_windows(2)
    ring.ports.orders.records.append(Order("b01", OrderKind.MAINTAIN, "ada", "new disks", ring.now_ms, 0, True))
    ring.run_windows(10)
    assert set(ring.homes().values()) == {"b02", "b05"}
    evacuation = next(plan for plan in ring.plans if plan.proposals[0].planner == EVACUATION)
    assert evacuation.phase is PlanPhase.COMPLETED
    assert not any(plan.undoes for plan in ring.plans)


@pytest.mark.parametrize("left", [(), ("b03",)])
def test_a_broker_without_clients_needs_no_evacuation(left: tuple[str, ...]) -> None:
    """No broker to leave, or no known clients: nothing is proposed."""
    assert publishers_leaving(situation_of().state, left, left, 24) == []


def with_subscribers(counts: dict[str, int] | None, inventory: Inventory = INVENTORY) -> Situation:
    """Return a situation in which the register knows how many subscribers each broker has."""
    base = evacuating(inventory)
    windows = tuple(replace(window, subscribers_at=counts) for window in base.state.windows)
    return replace(base, state=base.kind.state_of(base.state.configuration, windows))


def test_subscribers_of_a_tree_move_together_to_the_nearest_broker() -> None:
    """The plan that moves the publishers moves them; if the broker leaves, the plan that removes it does."""
    situation = with_subscribers({"b00": 7, "b04": 2})
    plan = decide_plan(situation, (), 7, SETTINGS).plan
    assert plan is not None
    assert plan.subscribers_moved == (HomeMove("b00", "b01"),)
    assert "7 subscribers" in plan.proposals[-1].reason
    assert {move.home_from for move in plan.moves} == {"b00"}
    leaving = decide_plan(replace(situation, leaving=frozenset({"b00"})), (), 7, SETTINGS).plan
    assert leaving is not None
    assert not leaving.subscribers_moved


@pytest.mark.parametrize("counts", [None, {}, {"b04": 3}])
def test_without_known_subscribers_none_move(counts: dict[str, int] | None) -> None:
    """The register has not been read yet, or has none there."""
    situation = with_subscribers(counts)
    assert situation.kind.evacuate_subscribers(situation.state, WHY, {"b00"}, 500) == []


def test_a_broker_with_more_subscribers_than_a_plan_may_move_keeps_them_with_a_reason() -> None:
    """The register counts them."""
    decision = decide_plan(with_subscribers({"b00": 501}), (), 7, SETTINGS)
    assert decision.plan is not None
    assert not decision.plan.subscribers_moved
    (refused,) = decision.refused
    assert refused.verdict is Verdict.CHANGES_PER_PLAN
    assert "and this would add 501, but the limit is 500" in refused.verdict_reason


def test_subscribers_do_not_move_if_clients_stay() -> None:
    """Those of a real broker connect where they like."""
    situation = with_subscribers({"b00": 7}, replace(INVENTORY, clients_stay=True))
    assert decide_plan(situation, (), 7, SETTINGS).plan is None


def test_successive_moves_of_subscribers_become_one_in_the_plan() -> None:
    """From b00 to b01, then all of b01 to b02: the plan sends both groups to b02 at once."""
    first, then = (
        emptying_proposal("p", moves, 1.0, 1.0, "") for moves in ((HomeMove("b00", "b01"),), (HomeMove("b01", "b02"),))
    )
    assert subscribers_moved_of((first, then)) == (HomeMove("b00", "b02"), HomeMove("b01", "b02"))
    back = emptying_proposal("p", (HomeMove("b01", "b00"),), 1.0, 1.0, "")
    assert subscribers_moved_of((first, back)) == (HomeMove("b01", "b00"),)
