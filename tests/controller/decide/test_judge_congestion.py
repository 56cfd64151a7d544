"""Congested brokers and links get no more load, on a tree, a ring and a structured cyclic overlay."""

from dataclasses import replace

import msgspec
import pytest

from regraft.controller.decide.choose_proposals import plan_of, recheck_plan
from regraft.controller.decide.judge_congestion import judge_congestion, judge_waiting
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.scot.scot_kind import ScotKind
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.hot_spots import HotSpots, hot_spots
from regraft.schemas.plan import ClientMove, Proposal, Verdict
from regraft.schemas.state import QueueState
from tests.controller.choose_all import choose_proposals
from tests.controller.decide.test_judge_proposals import CALM, STATE, TREE, proposal_of
from tests.controller.kinds.test_scot_kind import INVENTORY as SCOT_INVENTORY
from tests.controller.kinds.test_scot_kind import STATE as SCOT_STATE
from tests.controller.ring_situations import GOOD_IDS, TO_ROOT, only, situation_of
from tests.controller.scripted_windows import closed_window
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of

SETTINGS = DecisionSettings()


def queue(broker: str, peer: str, congestion: float) -> QueueState:
    return QueueState(broker, peer, 5.0, 5.0, 5.0, 1.0, 1.0, 0.1, 0, 2, congestion, 1000)


def windows_with(*measures: float, broker: str = "b00", peer: str = "") -> list[ClosedWindow]:
    """Return windows in which one queue has had these congestion measures."""
    return [
        replace(closed_window(TREE.brokers, [], 1000 * place), queues=(queue(broker, peer, measured),))
        for place, measured in enumerate(measures)
    ]


def test_a_broker_stays_hot_until_its_measure_has_halved() -> None:
    """Without this hysteresis a queue near the threshold would let changes pass in every other window."""
    assert not hot_spots(windows_with(10.0), SETTINGS)
    assert hot_spots(windows_with(10.1), SETTINGS).brokers == {"b00": 10.1}
    assert hot_spots(windows_with(10.1, 5.1), SETTINGS).brokers == {"b00": 5.1}
    assert not hot_spots(windows_with(10.1, 5.0, 9.9), SETTINGS)


def test_a_link_is_hot_when_either_end_is() -> None:
    """It is named in the order of links, with the larger measure; messages in transit allow a link a longer queue."""
    (window,) = windows_with(120.0, broker="b03", peer="b01")
    both = replace(window, queues=(*window.queues, queue("b01", "b03", 150.0), queue("b00", "b01", 100.0)))
    assert hot_spots([both], SETTINGS) == HotSpots({("b01", "b03"): 150.0}, {}, {("b03", "b01"): 1, ("b01", "b03"): 1})


def test_the_duration_of_a_links_congestion_is_known() -> None:
    """Counted in consecutive windows, for each end; a calm window restarts the count."""
    windows = windows_with(120.0, 20.0, 120.0, 60.0, 120.0, broker="b01", peer="b03")
    counts = [hot_spots(windows[:count], SETTINGS).ends.get(("b01", "b03"), 0) for count in range(6)]
    assert counts == [0, 1, 0, 1, 2, 3]


def test_no_plan_saves_cost_while_long_queues_hide_deliveries() -> None:
    """The brokers behind such a queue seem to want nothing; evacuations are still planned, and 0 disables the rule."""
    slow = msgspec.structs.replace(queue("b02", "b03", 20.0), wait_ms_mean=1_001.0)
    newest = replace(CALM.state.newest, queues=(queue("b01", "b02", 20.0), slow))
    situation = replace(CALM, state=TreeState(TREE, STATE.inventory, (*CALM.state.windows[:-1], newest)))
    verdict, reason = verdict_of(proposal_of(), HotSpots(), situation)
    assert verdict is Verdict.CONGESTED
    assert reason.startswith("messages wait 1,001 ms at b02>b03, limit 1,000 ms: deliveries behind it")
    evacuation = msgspec.structs.replace(proposal_of(), planner=EVACUATION)
    assert verdict_of(evacuation, HotSpots(), situation)[0] is Verdict.ACCEPTED
    for limit_ms in (1_001.0, 0.0):
        assert judge_waiting(newest, DecisionSettings(queue_wait_ms_max=limit_ms)) is None


def test_zero_turns_the_veto_off() -> None:
    """Whatever the queues measure."""
    assert not hot_spots(windows_with(1e6), DecisionSettings(broker_congestion_max=0))


def verdict_of(proposal: Proposal, hot: HotSpots, situation: Situation = CALM) -> tuple[Verdict, str]:
    choice = choose_proposals([proposal], replace(situation, hot=hot), 1, SETTINGS)
    (judged,) = choice.chosen + choice.refused
    return judged.verdict, judged.verdict_reason


def test_a_swap_that_loads_a_congested_link_is_refused() -> None:
    """All 50 notifications/s would cross b00-b04, which carried none; every other link would carry less."""
    verdict, reason = verdict_of(proposal_of(), HotSpots(links={("b00", "b04"): 150.0}))
    assert verdict is Verdict.CONGESTED
    assert reason == "link b00-b04 is congested (150) and would carry 50/s instead of 0/s"
    assert verdict_of(proposal_of(), HotSpots(links={("b02", "b03"): 150.0}))[0] is Verdict.ACCEPTED


@pytest.mark.parametrize("broker", TREE.brokers)
def test_a_change_that_relieves_a_congested_broker_is_accepted(broker: str) -> None:
    """The two ends serve as much as before, the brokers between them nothing any more."""
    assert verdict_of(proposal_of(), HotSpots(brokers={broker: 150.0}))[0] is Verdict.ACCEPTED


def test_a_swap_that_loads_a_congested_broker_is_refused() -> None:
    """It would forward what b00 and b02 want, and wants none of it itself."""
    windows = tuple(closed_window(TREE.brokers, [{"b00", "b02"}] * 50, 1000 * place) for place in range(3))
    inventory = inventory_of(TREE, {("b00", "b04"): 0.0, ("b03", "b04"): 0.0, ("b02", "b03"): 0.0})
    situation = replace(CALM, state=TreeState(TREE, inventory, windows), kind=tree_kind(inventory, 4))
    over_b04 = proposal_of(("b01", "b02"), ("b00", "b04"))
    verdict, reason = verdict_of(over_b04, HotSpots(brokers={"b04": 12.5}), situation)
    assert verdict is Verdict.CONGESTED
    assert reason == "broker b04 is congested (12.5) and would carry 50/s instead of 0/s"


@pytest.mark.parametrize(
    ("hot", "what"),
    [
        (
            HotSpots(links={("b00", "b02"): 150.0}),
            "link b00-b02 is congested (150) and would carry 10/s instead of 0/s",
        ),
        (HotSpots(brokers={"b00": 20.0}), "broker b00 is congested (20) and would carry 30/s instead of 10/s"),
    ],
    ids=["link", "broker"],
)
def test_a_ring_change_that_loads_congested_parts_is_refused(hot: HotSpots, what: str) -> None:
    """The exchange of IDs makes b00 the root of the topic; a user that leaves b00 reduces its load."""
    refused = only(GOOD_IDS, situation_of(hot=hot))
    assert (refused.verdict, refused.verdict_reason) == (Verdict.CONGESTED, what)
    assert only(TO_ROOT, situation_of(hot=hot)).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("hot", "what"),
    [
        (HotSpots(links={("b02", "b03"): 150.0}), "link b02-b03 is congested (150) and would carry 8/s instead of 0/s"),
        (HotSpots(brokers={"b03": 20.0}), "broker b03 is congested (20) and would carry 8/s instead of 0/s"),
    ],
    ids=["link", "broker"],
)
def test_a_cyclic_overlay_change_that_loads_congested_parts_is_refused(hot: HotSpots, what: str) -> None:
    """If p publishes at b03, its notifications pass b03 and cross to the other cluster there."""
    before = ScotKind(SCOT_INVENTORY, 5).reached(SCOT_STATE)
    after = before.after(Proposal("by hand", (), (), 2.0, 1.0, 0.0, "", moves=(ClientMove("p", "b00", "b03"),)))
    assert judge_congestion(ScotKind(SCOT_INVENTORY, 5), hot, before, after) == (Verdict.CONGESTED, what)
    assert judge_congestion(ScotKind(SCOT_INVENTORY, 5), hot, after, before) is None


def test_a_plan_in_review_is_dropped_when_a_link_that_it_loads_becomes_congested() -> None:
    """It was made on earlier windows."""
    plan = plan_of(choose_proposals([proposal_of()], CALM, 1, SETTINGS), STATE)
    assert recheck_plan(plan, CALM) is None
    against = recheck_plan(plan, replace(CALM, hot=HotSpots(links={("b00", "b04"): 150.0})))
    assert against is not None
    assert against[0] is Verdict.CONGESTED


def test_an_evacuation_may_load_congested_links() -> None:
    """An operator ordered the evacuation."""
    by_order = msgspec.structs.replace(proposal_of(), planner=EVACUATION)
    assert verdict_of(by_order, HotSpots(links={("b00", "b04"): 150.0}))[0] is Verdict.ACCEPTED
