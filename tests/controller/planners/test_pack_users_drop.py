"""Packing users of a tree: brokers close if that saves, within what plans may move and brokers may pass."""

import random
from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.overlay_kind import OVERLOAD
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.pack_users_drop import PackingSettings, pack_drop
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.prices import Prices
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, HomeMove, Verdict
from tests.controller.scripted_overlay import settings_of
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of, publishers_of

TREE = line_of(4)
BROKERS = TREE.brokers
PRICES = Prices(
    "USD",
    np.array([[0.0, 2.0, 2.0, 2.0], [2.0, 0.0, 2.0, 2.0], [2.0, 2.0, 0.0, 2.0], [2.0, 2.0, 2.0, 0.0]]),
    np.array([9.0, 9.0, 9.0, 15.0]),
    message_bytes=1000.0,
)
COUNTS = {"b00": 3, "b02": 2, "b03": 2}
CALM = PackingSettings(escape_words_max=0)


def state_of(inventory: Inventory, counts: dict[str, int] | None = COUNTS, windows: int = 1) -> TreeState:
    """Return a state in which p publishes at b00 what b00, b02 and b03 want; each subscriber gets each notification."""
    sets = publishers_of(BROKERS, {"p": ("b00", [{"b00", "b02", "b03"}] * 40)})
    handed = {("p", broker): 40 * count for broker, count in (counts or {}).items()}
    found = tuple(
        ClosedWindow(
            1000 * at,
            1000 * at + 1000,
            sets,
            epoch_min=0,
            epoch_max=0,
            homes={"p": "b00"},
            local_deliveries=handed,
            subscribers_at=counts,
        )
        for at in range(windows)
    )
    return TreeState(TreeConfiguration.of(0, BROKERS, TREE.links, {"p": "b00"}), inventory.charged, found)


def inventory_with(prices: Prices | None = PRICES, **changes: object) -> Inventory:
    return replace(inventory_of(TREE, {}), prices=prices, **changes)


def moves_of_subscribers(state: TreeState, **context: int) -> list[HomeMove]:
    found = pack_drop(state, CALM, TreeContext(**context), random.Random(1))
    return [move for proposal in found for move in proposal.subscribers_moved]


def test_users_leave_the_most_expensive_access_first_and_end_at_one_broker() -> None:
    """b03 charges 15 for access, and three links lead there: its users move first. In the end all are at one broker."""
    moves = moves_of_subscribers(state_of(inventory_with()))
    assert moves[0].home_from == "b03"
    ends = {broker: broker for broker in COUNTS}
    for move in moves:
        ends = {first: move.home_to if now == move.home_from else now for first, now in ends.items()}
    assert len(set(ends.values())) == 1


def test_subscribers_move_up_to_the_limit_of_a_plan_and_only_if_their_number_is_known() -> None:
    """With room for two, one broker is closed; without a register no users move."""
    assert moves_of_subscribers(state_of(inventory_with()), subscribers_max=2) == [HomeMove("b03", "b00")]
    assert moves_of_subscribers(state_of(inventory_with()), subscribers_max=1) == []
    assert moves_of_subscribers(state_of(inventory_with(), None)) == []


def test_without_prices_the_path_to_another_broker_costs_as_much_as_the_link_it_saves() -> None:
    """Each of two subscribers would take the path that one copy takes now: nobody moves."""
    assert moves_of_subscribers(state_of(inventory_with(None))) == []


def test_no_subscriber_moves_farther_than_the_settings_allow() -> None:
    """A link of 1 ms is too far if 0.5 ms are allowed."""
    found = pack_drop(
        state_of(inventory_with()), PackingSettings(0.5, escape_words_max=0), TreeContext(), random.Random(1)
    )
    assert not any(proposal.subscribers_moved for proposal in found)


def test_subscribers_leave_a_broker_that_passes_more_than_its_cap_whatever_it_costs() -> None:
    """b03 may pass 10/s and passes 40/s. Elsewhere access is more expensive, and they move all the same."""
    caps = np.array([1000.0, 1000.0, 1000.0, 10.0])
    expensive = replace(PRICES, access_per_gb=np.array([90.0, 90.0, 90.0, 1.0]))
    state = state_of(inventory_with(expensive, load_max_per_s=caps))
    first = pack_drop(state, CALM, TreeContext(), random.Random(1))[0]
    assert first.planner == OVERLOAD
    assert first.cost_after_per_s > first.cost_before_per_s
    assert [move.home_from for move in first.subscribers_moved] == ["b03"]
    assert "b03 passes 40/s, but its limit is 10/s" in first.reason
    plan = decided(state, expensive, caps).plan
    assert plan is not None
    assert plan.subscribers_moved


def test_no_broker_gets_more_than_its_cap() -> None:
    """Every broker on the path already passes all 40/s, so one that has room for less gets no users."""
    caps = np.array([1000.0, 1000.0, 30.0, 1000.0])
    tight = moves_of_subscribers(state_of(inventory_with(load_max_per_s=caps), {"b00": 3, "b03": 2}))
    assert all(move.home_to != "b02" for move in tight)


def decided(state: TreeState, prices: Prices = PRICES, caps: np.ndarray | None = None):  # type: ignore[no-untyped-def]
    inventory = inventory_with(prices, load_max_per_s=caps).charged
    situation = Situation(state, now_ms=1500, kind=tree_kind(inventory), price_per_s=0.0)
    return decide_plan(situation, (lambda s, c, r: pack_drop(s, CALM, c, r),), 7, settings_of())


def test_the_judge_finds_the_same_saving_and_makes_one_plan() -> None:
    """What the planner promises without processing equals the one cost; the plan names who moves where."""
    state = state_of(inventory_with())
    first = pack_drop(state, CALM, TreeContext(), random.Random(1))[0]
    decision = decided(state)
    assert decision.plan is not None
    judged = decision.plan.proposals[0]
    assert judged.verdict is Verdict.ACCEPTED
    assert judged.gain_per_s == pytest.approx(first.gain_per_s)
    assert {move.home_from for move in decision.plan.subscribers_moved} >= {"b03"}
    assert all(isinstance(move, ClientMove) for move in decision.plan.moves)


def test_a_shadow_moves_no_subscribers() -> None:
    """Windows show subscribers at their real homes, so it could never verify such a move; it does move publishers."""
    state, inventory = state_of(inventory_with()), inventory_with().charged
    kind = tree_kind(inventory)
    shadow = ShadowPlanner(
        "pack_drop", (lambda s, c, r: pack_drop(s, CALM, c, r),), state.configuration, kind, settings_of()
    )
    shadow.add_window(state.newest, 1500, lambda _: {})
    assert shadow.decide(Situation(state, now_ms=1500, kind=kind, price_per_s=0.0), lambda _: 0.0)
    assert shadow.errors == 0
    assert not any(plan.subscribers_moved for plan in shadow.plans)
