"""Ring IDs and users go into plans as links and publishers do: proposed, judged, chosen and priced."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from regraft.controller.decide.choose_proposals import plan_of
from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import transition_price_per_s
from regraft.controller.kinds.ring.ring_state import RingContext, RingState
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.find_homes import configuration_after
from regraft.schemas.plan import ClientMove, Proposal, RingId, Verdict
from tests.controller.choose_all import choose_proposals
from tests.controller.ring_situations import (
    GOOD_IDS,
    KIND,
    TO_NEW_ROOT,
    TO_ROOT,
    Users,
    only,
    situation_of,
    windows_of,
)
from tests.controller.scripted_ring import (
    BROKERS,
    RING,
    TOPIC,
    placing,
    reassigning,
    ring_inventory,
)
from tests.controller.small_kinds import ring_kind
from tests.overlay.small_overlays import NO_CAP

INVENTORY = ring_inventory()
SETTINGS = ControllerSettings(bootstrap="nowhere:1", inventory_path=Path("unused"), verify_windows=2)


def test_ids_and_users_change_in_one_plan() -> None:
    """Each proposal is costed on the ring that the previous one leaves; the plan names the whole target."""
    situation = situation_of()
    choice = choose_proposals([GOOD_IDS, TO_NEW_ROOT], situation, 7, DecisionSettings())
    first, second = choice.chosen
    assert (first.cost_before_per_s, first.cost_after_per_s) == (150.0, 60.0)
    assert (second.cost_before_per_s, second.cost_after_per_s) == (60.0, 40.0)
    plan = plan_of(choice, situation.state)
    assert (plan.epoch_from, plan.epoch_to, plan.links_target, plan.links_added) == (0, 7, (), ())
    assert plan.id_moves == tuple(sorted(GOOD_IDS.id_moves))
    assert plan.ring_target == tuple(RingId(*pair) for pair in choice.target.id_of.items())
    assert plan.moves == (ClientMove("u4", "b04", "b00"),)
    assert configuration_after(plan, RING) == choice.target
    assert (choice.target.id_of["b00"], choice.target.home_of) == (1, {"u4": "b00"})
    assert plan.cost_predicted_per_s == second.cost_after_per_s


def test_the_next_planner_sees_accepted_ids_and_homes() -> None:
    """The costs of its own proposals are relative to the state that it is given."""
    seen: list[RingState] = []

    def first(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
        return [GOOD_IDS, TO_NEW_ROOT]

    def second(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
        seen.append(state)
        return []

    plan = decide_plan(situation_of(), [first, second], 1, SETTINGS).plan
    assert plan is not None
    (state,) = seen
    assert state.traffic is not None
    assert state.traffic.configuration == state.configuration
    assert state.configuration.home_of == {"u4": "b00"}
    assert state.traffic.interests.homes[state.traffic.interests.position_of["u4"]] == 0
    assert state.traffic.cost.total_per_s() == plan.cost_predicted_per_s


@pytest.mark.parametrize(
    ("proposal", "verdict"),
    [
        (reassigning(("b00", 5, 6)), Verdict.WRONG_ID),
        (reassigning(("b00", 0, 1)), Verdict.WRONG_ID),
        (placing(("u0", "b03", "b01")), Verdict.WRONG_HOME),
        (Proposal("p", (("b00", "b01"),), (("b00", "b02"),), 0.0, 0.0, 0.0, ""), Verdict.NOT_A_TREE),
    ],
)
def test_a_proposal_that_does_not_fit_the_ring_has_a_verdict(proposal: Proposal, verdict: Verdict) -> None:
    """IDs that are taken or not as claimed, users elsewhere, links: refused with a reason, without an exception."""
    assert only(proposal, situation_of()).verdict is verdict


def test_a_ring_with_unknown_users_is_not_decided_on() -> None:
    """The state as a whole is refused, and no planner is called."""
    state = RingState(RING, INVENTORY, tuple(window.without_interests() for window in windows_of()))
    decision = decide_plan(replace(situation_of(), state=state), [_raising], 1, SETTINGS)
    assert decision.state_verdict is Verdict.INCOMPLETE_STATE
    assert "does not know the users' subscriptions" in decision.state_reason


def _raising(*_: object) -> list[Proposal]:
    raise AssertionError("nobody should have asked")


def test_a_move_may_not_overload_a_broker() -> None:
    """Four subscriptions over eight brokers are half a one each: at a cap of twice the mean a broker may have one."""
    capped = situation_of(kind=ring_kind(INVENTORY, user_load_max=2.0))
    refused = only(placing(("u0", "b00", "b02")), capped)
    assert refused.verdict is Verdict.CAPACITY
    assert refused.verdict_reason == (
        "b02 would serve 50.00% of all subscriptions, but the limit is 25.00%, 2 times the mean"
    )
    assert only(TO_ROOT, capped).verdict is Verdict.ACCEPTED
    assert only(GOOD_IDS, capped).verdict is Verdict.ACCEPTED


def test_a_broker_above_the_cap_may_stay_so_but_gets_no_more_users() -> None:
    """b00 has three of four users: it may give one away or keep all, though it stays above twice the mean."""
    crowd: Users = {f"u{number}": ("b00", [TOPIC]) for number in range(3)} | {"u6": ("b06", [TOPIC])}
    capped = situation_of(crowd, kind=ring_kind(INVENTORY, user_load_max=2.0))
    assert only(placing(("u6", "b06", "b00")), capped).verdict is Verdict.CAPACITY
    assert only(placing(("u6", "b06", "b01")), capped).verdict is Verdict.ACCEPTED
    assert only(placing(("u0", "b00", "b01")), capped).verdict is not Verdict.CAPACITY


def test_users_have_their_own_limit_and_ids_have_none() -> None:
    """Six IDs are one change; the second user is one too many for this plan."""
    settings = DecisionSettings(changes_per_plan_max=1, moves_per_plan_max=1, users_per_plan_max=1)
    choice = choose_proposals([GOOD_IDS, TO_NEW_ROOT, placing(("u2", "b02", "b00"))], situation_of(), 7, settings)
    assert [len(one.id_moves) + len(one.moves) for one in choice.chosen] == [6, 1]
    (refused,) = choice.refused
    assert refused.verdict is Verdict.CHANGES_PER_PLAN
    assert refused.verdict_reason == "the plan already moves 1 users, and this would add 1, but the limit is 1"


def test_all_users_of_a_proposal_are_one_choice_and_ids_are_many() -> None:
    """IDs are picked by what windows cost, one choice per changed ID; users follow similar interests."""
    many = placing(*((f"x{number}", "b00", "b01") for number in range(100)))
    both = msgspec.structs.replace(many, id_moves=GOOD_IDS.id_moves)
    assert KIND.choices_in(many) == 1
    assert KIND.choices_in(both) == 1 + len(GOOD_IDS.id_moves)
    assert KIND.alternatives_to(many) == 1
    assert KIND.alternatives_to(both) == KIND.alternatives_to(GOOD_IDS) == len(BROKERS) ** 2


def test_the_dead_band_of_a_ring_is_a_share_of_its_whole_cost() -> None:
    """A move that saves 50 of 150 is worth it up to a dead band of a third."""
    saved = only(TO_ROOT, situation_of())
    share = saved.gain_per_s / 150.0
    assert only(TO_ROOT, situation_of(), DecisionSettings(gain_share_min=share * 0.999)).verdict is Verdict.ACCEPTED
    refused = only(TO_ROOT, situation_of(), DecisionSettings(gain_share_min=share * 1.001))
    assert refused.verdict is Verdict.GAIN_WITHIN_NOISE


def test_the_price_of_a_ring_counts_messages() -> None:
    """Before the first plan: commands, and a message each way over 20 links; afterwards what plans actually sent."""
    assert len(RING.links) == 20
    assert transition_price_per_s(KIND, RING, None, 10.0) == pytest.approx((4 * 8 + 2 * 20) / 10)
    assert transition_price_per_s(KIND, RING, 100.0, 10.0) == pytest.approx((4 * 8 + 100) / 10)


def test_brokers_of_the_ring_are_those_of_the_inventory() -> None:
    """The script follows the example of Zhao13, Fig. 2: eight brokers with IDs 0 to 7."""
    assert (INVENTORY.bootstrap, INVENTORY.degree_max, len(BROKERS)) == (RING, NO_CAP, 8)
