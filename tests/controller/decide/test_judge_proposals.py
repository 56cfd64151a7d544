"""Every verdict of the judge, and their order."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from regraft.controller.decide.gain_noise import MeanGain
from regraft.controller.decide.judge_proposals import Situation, gain_shares, judge_change, transition_price_per_s
from regraft.controller.decide.recent_changes import RecentChanges
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.plan import Proposal, Verdict
from tests.controller.choose_all import choose_proposals
from tests.controller.scripted_windows import closed_window
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of

# A line of five whose ends want the same: joining them directly saves most of the cost.
TREE = line_of(5)
INVENTORY = inventory_of(TREE, {("b00", "b04"): 2.0})
WANTED = [{"b00", "b04"}] * 50
SETTINGS = DecisionSettings(cool_down_windows=2)
STATE = TreeState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, WANTED, start_ms) for start_ms in (0, 1000, 2000)))
CALM = Situation(STATE, now_ms=3500, kind=tree_kind(INVENTORY, 4), price_per_s=1.0)
GOOD = LinkSwap(("b01", "b02"), ("b00", "b04"))
GAIN_PER_S = STATE.tree_costs.gain_per_s(GOOD)


def proposal_of(removed: Link = GOOD.removed, added: Link = GOOD.added) -> Proposal:
    return Proposal("swap_links_ci", (removed,), (added,), 0.0, 0.0, 0.0, "because")


def verdict_of(
    proposal: Proposal, situation: Situation = CALM, settings: DecisionSettings = SETTINGS
) -> tuple[Verdict, str]:
    choice = choose_proposals([proposal], situation, 1, settings)
    (judged,) = choice.chosen + choice.refused
    return judged.verdict, judged.verdict_reason


def test_good_swap_is_accepted_with_its_price() -> None:
    """A swap that saves much is accepted; the judge records its true costs and price."""
    (judged,) = choose_proposals([proposal_of()], CALM, 1, SETTINGS).chosen
    assert judged.verdict is Verdict.ACCEPTED
    assert judged.price_per_s == 1.0
    assert judged.gain_per_s == pytest.approx(GAIN_PER_S)


def test_running_plan_refuses_everything() -> None:
    """While a plan runs nothing is accepted, and the reason names the plan."""
    verdict, reason = verdict_of(proposal_of(), replace(CALM, plan_running="plan-3"))
    assert verdict is Verdict.PLAN_RUNNING
    assert "plan-3" in reason


def with_newest(**changes: object) -> Situation:
    newest = replace(STATE.newest, **changes)  # type: ignore[arg-type]
    return replace(CALM, state=TreeState(TREE, INVENTORY, (*STATE.windows[:-1], newest)))


def test_an_incomplete_state_refuses_and_lists_what_is_missing() -> None:
    """A swap on an incomplete window is refused with the brokers whose batches are missing."""
    verdict, reason = verdict_of(proposal_of(), with_newest(error="too few batches of b02 (3 of 4)"))
    assert verdict is Verdict.INCOMPLETE_STATE
    assert "b02 (3 of 4)" in reason


@pytest.mark.parametrize(
    "situation",
    [
        replace(CALM, now_ms=3001 + SETTINGS.window_age_ms_max),
        replace(CALM, now_ms=2999 - SETTINGS.window_age_ms_max),
        with_newest(epoch_min=1, epoch_max=1),
        with_newest(epoch_max=1),
    ],
)
def test_stale_state_refuses(situation: Situation) -> None:
    """A window that is too old, from the future, of another epoch or of two epochs is stale."""
    assert verdict_of(proposal_of(), situation)[0] is Verdict.STALE_STATE


EARLIER = {"b00": 0, "b01": 1, "b02": 0, "b03": 1, "b04": 0}


def test_brokers_at_another_epoch_are_named() -> None:
    """Only if the window began long enough after the last transition; earlier batches may have been in transit."""
    situation = with_newest(epoch_min=0, epoch_max=1, epochs=EARLIER)
    verdict, reason = verdict_of(proposal_of(), situation)
    assert verdict is Verdict.EPOCH_MISMATCH
    assert "epoch 0 is in force, but b01, b03 at epoch 1" in reason
    assert verdict_of(proposal_of(), replace(situation, transition_ended_ms=1000))[0] is Verdict.EPOCH_MISMATCH
    assert verdict_of(proposal_of(), replace(situation, transition_ended_ms=1001))[0] is Verdict.STALE_STATE


def test_the_window_of_a_transition_shows_the_traffic_unless_it_has_moved_subscriptions() -> None:
    """All brokers must have come to the epoch in force: what they deliver depends neither on links nor on homes."""
    there = dict.fromkeys(TREE.brokers, 0)
    ended = replace(with_newest(epoch_min=-1, epoch_max=0, epochs=there), transition_ended_ms=2500)
    assert verdict_of(proposal_of(), ended, DecisionSettings())[0] is Verdict.ACCEPTED
    moved = replace(ended, moves_interests=True)
    assert verdict_of(proposal_of(), moved, DecisionSettings())[0] is Verdict.STALE_STATE
    behind = replace(with_newest(epoch_min=-1, epoch_max=0, epochs=there | {"b03": -1}), transition_ended_ms=2500)
    assert verdict_of(proposal_of(), behind, DecisionSettings())[0] is Verdict.STALE_STATE


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        (("b00", "b01"), ("b01", "b03")),
        (("b00", "b02"), ("b00", "b03")),
        (("b00", "b01"), ("b01", "b02")),
        (("b00", "b01"), ("b00", "nobody")),
    ],
)
def test_a_swap_that_gives_no_tree_is_refused(removed: Link, added: Link) -> None:
    """A cut overlay, an absent link to remove, a present link to add and an unknown broker do not give a tree."""
    assert verdict_of(proposal_of(removed, added))[0] is Verdict.NOT_A_TREE


def test_a_broker_at_its_cap_gets_no_more_links() -> None:
    """A swap that would give a broker more links than the cap is refused; a broker above the cap keeps those it has."""
    verdict, reason = verdict_of(
        proposal_of(("b02", "b03"), ("b01", "b03")), replace(CALM, kind=tree_kind(INVENTORY, 2))
    )
    assert verdict is Verdict.DEGREE
    assert "b01 would have 3 links, but the limit is 2" in reason
    assert verdict_of(proposal_of(), replace(CALM, kind=tree_kind(INVENTORY, 1)))[0] is Verdict.DEGREE
    assert verdict_of(proposal_of(), replace(CALM, kind=tree_kind(INVENTORY, 2)))[0] is Verdict.ACCEPTED


def test_proposals_of_a_muted_planner_are_refused() -> None:
    """While a planner is muted its proposals are refused."""
    muted = replace(CALM, muted_until_ms={"swap_links_ci": 4000})
    assert verdict_of(proposal_of(), muted)[0] is Verdict.MUTED
    assert verdict_of(proposal_of(), replace(muted, now_ms=4000))[0] is Verdict.ACCEPTED


def test_cool_down_is_counted_in_windows() -> None:
    """This many windows must close after a plan; before the first plan there is no cool-down."""
    assert verdict_of(proposal_of(), replace(CALM, windows_since_plan=1))[0] is Verdict.COOL_DOWN
    assert verdict_of(proposal_of(), replace(CALM, windows_since_plan=2))[0] is Verdict.ACCEPTED


def test_a_broker_at_its_capacity_gets_no_more_load() -> None:
    """A swap that sends more through a broker than it can pass is refused; one above its cap may keep its load."""
    wanted = [{"b00", "b02"}] * 50
    windows = tuple(closed_window(TREE.brokers, wanted, 1000 * place) for place in range(3))
    over_b04 = proposal_of(("b01", "b02"), ("b00", "b04"))

    def situation(limit_per_s: float) -> Situation:
        limits = np.array([1000.0, 1000.0, 1000.0, 1000.0, limit_per_s])
        inventory = replace(
            inventory_of(TREE, {("b00", "b04"): 0.0, ("b03", "b04"): 0.0, ("b02", "b03"): 0.0}), load_max_per_s=limits
        )
        return replace(CALM, state=TreeState(TREE, inventory, windows), kind=tree_kind(inventory, 4))

    verdict, reason = verdict_of(over_b04, situation(49.0))
    assert verdict is Verdict.CAPACITY
    assert "b04 would pass 50 notifications/s, but the limit is 49" in reason
    assert verdict_of(over_b04, situation(50.0))[0] is not Verdict.CAPACITY


def test_gain_must_exceed_the_price() -> None:
    """A plan that saves no more than the transition costs is refused."""
    assert verdict_of(proposal_of(), replace(CALM, price_per_s=GAIN_PER_S * 1.001))[0] is Verdict.GAIN_BELOW_PRICE
    assert verdict_of(proposal_of(), replace(CALM, price_per_s=GAIN_PER_S * 0.999))[0] is Verdict.ACCEPTED


def test_gain_must_exceed_the_dead_band() -> None:
    """A gain below the configured share of the cost is not worth a change, however certain; a loss never is."""
    share = GAIN_PER_S / STATE.tree_costs.cost_per_s
    assert verdict_of(proposal_of(), settings=DecisionSettings(gain_share_min=share * 1.001))[0] is (
        Verdict.GAIN_WITHIN_NOISE
    )
    assert verdict_of(proposal_of(), settings=DecisionSettings(gain_share_min=share * 0.999))[0] is Verdict.ACCEPTED
    inner = TreeState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, [{"b00", "b01"}], at) for at in (0, 1000)))
    assert inner.tree_costs.gain_per_s(LinkSwap(("b00", "b01"), ("b00", "b03"))) < 0
    loss = proposal_of(("b00", "b01"), ("b00", "b03"))
    assert verdict_of(loss, replace(CALM, state=inner, now_ms=2500))[0] is Verdict.GAIN_WITHIN_NOISE


def shares_of(windows: tuple[ClosedWindow, ...]) -> MeanGain:
    before = tree_kind(INVENTORY, 4).reached(TreeState(TREE, INVENTORY, windows))
    return gain_shares(before, before.after(proposal_of()), None)


JUMPING = tuple(
    closed_window(TREE.brokers, part, 1000 * place)
    for place, part in enumerate([[{"b00", "b04"}] * 60, [{"b00", "b01"}, {"b01", "b02"}] * 40, [{"b00", "b04"}] * 2])
)


def test_gain_must_exceed_the_noise() -> None:
    """If the gains of single windows vary widely, their mean is uncertain."""
    noisy = replace(CALM, state=TreeState(TREE, INVENTORY, JUMPING))
    assert shares_of(JUMPING).mean > 0
    verdict, reason = verdict_of(proposal_of(), noisy)
    assert verdict is Verdict.GAIN_WITHIN_NOISE
    assert "chance alone accounts for" in reason
    assert judged_change(noisy, SETTINGS, is_alone=True) is not None
    assert judged_change(noisy, SETTINGS) is None
    assert verdict_of(proposal_of(), noisy, DecisionSettings(noise_factor=0.0))[0] is Verdict.ACCEPTED


def test_growing_traffic_is_not_noise() -> None:
    """Of ten times as much of the same traffic the same share is saved."""
    growing = tuple(closed_window(TREE.brokers, WANTED * (1 + 3 * at), 1000 * at) for at in range(3))
    assert shares_of(growing).error == pytest.approx(0.0, abs=1e-12)
    assert verdict_of(proposal_of(), replace(CALM, state=TreeState(TREE, INVENTORY, growing)))[0] is Verdict.ACCEPTED


def test_one_window_of_busy_publishers_is_enough() -> None:
    """It is cut into slices of time, over which a steady gain is the same."""
    single = replace(CALM, state=TreeState(TREE, INVENTORY, STATE.windows[-1:]))
    assert len(single.state.spans) == 16
    assert verdict_of(proposal_of(), single)[0] is Verdict.ACCEPTED


def test_one_window_with_few_notifications_shows_no_spread() -> None:
    """It cannot be cut, so every gain is within the noise."""
    window = closed_window(TREE.brokers, WANTED[:3], 2000)
    single = replace(CALM, state=TreeState(TREE, INVENTORY, (window,)))
    assert shares_of((window,)).error == math.inf
    assert verdict_of(proposal_of(), single)[0] is Verdict.GAIN_WITHIN_NOISE


def test_links_and_homes_have_the_same_dead_band() -> None:
    """A change must save a share of the whole cost, whatever it changes."""
    share = GAIN_PER_S / STATE.tree_costs.cost_per_s
    assert verdict_of(proposal_of(), settings=DecisionSettings(change_share_min=share * 0.999))[0] is Verdict.ACCEPTED
    verdict, reason = verdict_of(proposal_of(), settings=DecisionSettings(change_share_min=share * 1.001))
    assert verdict is Verdict.GAIN_WITHIN_NOISE
    assert "but must save at least" in reason


def test_verdicts_have_an_order() -> None:
    """If several rules are violated the first one in the order is reported."""
    worst = replace(CALM, plan_running="plan-3", windows_since_plan=0, muted_until_ms={"swap_links_ci": 9999})
    bad = proposal_of(("b00", "b01"), ("b01", "b03"))
    assert verdict_of(bad, worst)[0] is Verdict.PLAN_RUNNING
    assert verdict_of(bad, replace(worst, plan_running=""))[0] is Verdict.MUTED
    assert verdict_of(bad, replace(worst, plan_running="", muted_until_ms={}))[0] is Verdict.COOL_DOWN
    assert verdict_of(bad, CALM)[0] is Verdict.NOT_A_TREE


def test_price_grows_with_the_messages_of_earlier_plans() -> None:
    """Before the first plan the markers are counted, then what plans actually sent; a longer pay-back lowers it."""
    first = transition_price_per_s(tree_kind(INVENTORY), TREE, None, 10.0)
    assert first == pytest.approx((4 * 5 + 2 * 4) * 10.0 / 10.0)
    assert transition_price_per_s(tree_kind(INVENTORY), TREE, 100.0, 10.0) == pytest.approx((4 * 5 + 100) * 10.0 / 10.0)
    assert transition_price_per_s(tree_kind(INVENTORY), TREE, None, 20.0) == pytest.approx(first / 2)


def test_the_price_is_earned_within_lifetimes() -> None:
    """If subscriptions are short-lived, a plan has less time to earn its transition cost."""
    settings = DecisionSettings(pay_back_s=300.0, pay_back_lifetimes=4.0)
    assert settings.pay_back_within_s(18.0) == 72.0
    assert settings.pay_back_within_s(3600.0) == 300.0
    assert settings.pay_back_within_s(None) == 300.0


def test_a_recent_change_is_undone_only_for_a_larger_gain() -> None:
    """A gain that suffices for a change does not suffice to undo a recent one, until the traffic changes."""
    state = TreeState(TREE, INVENTORY, JUMPING)
    before = tree_kind(INVENTORY, 4).reached(state)
    shares = gain_shares(before, before.after(proposal_of()), 10.0)
    assert shares.limit(0.05) < shares.mean < shares.limit(2.0, alternatives=25)
    settings = DecisionSettings(change_noise_factor=0.05, noise_factor=2.0, tabu_lifetimes=2.0)
    calm = replace(CALM, state=state, subscription_lifetime_s=10.0)
    recent = RecentChanges(links={GOOD.removed: 2000})
    assert judged_change(calm, settings) is judged_change(calm, settings, is_alone=True) is None
    tabu = replace(calm, recent=recent)
    assert judged_change(tabu, settings) is not None
    assert judged_change(replace(tabu, changed_since_ms=2500), settings) is None
    assert judged_change(replace(calm, recent=RecentChanges(links={GOOD.removed: -18_000})), settings) is None
    assert judged_change(replace(tabu, state=STATE), settings) is None  # beyond all chance


def test_a_gain_that_most_publishers_share_passes_however_long_the_look_back() -> None:
    """It varies too much in time, over longer than subscriptions live; yet publishers agree."""
    wanted = [WANTED, [*WANTED, *[{"b01", "b02"}] * 20]] * 6
    starts, lifetime_s = range(0, 12_000, 1000), 10.0
    homes = {f"p{start_ms}": "b00" for start_ms in starts}
    windows = tuple(
        replace(closed_window(TREE.brokers, sets, start_ms), homes={f"p{start_ms}": "b00"})
        for start_ms, sets in zip(starts, wanted, strict=True)
    )
    state = TreeState(TREE.with_homes(homes), INVENTORY, windows)
    before = tree_kind(INVENTORY, 4).reached(state)
    assert before.spans[-1][1] - before.spans[0][0] > lifetime_s
    over_time = gain_shares(before, before.after(proposal_of()), lifetime_s)
    assert over_time.mean < over_time.limit(SETTINGS.noise_factor)
    calm = replace(CALM, state=state, now_ms=12_500, subscription_lifetime_s=lifetime_s)
    assert verdict_of(proposal_of(), calm)[0] is Verdict.ACCEPTED
    assert judged_change(calm, DecisionSettings(change_noise_factor=2.0), is_alone=True) is None


def test_while_traffic_is_new_a_plan_may_rest_on_the_present_subscriptions() -> None:
    """What one publisher publishes varies, so windows look alike in nothing; but who wants it now is certain."""
    wanted = [WANTED, [*WANTED, *[{"b01", "b02"}] * 20]] * 6
    windows = tuple(closed_window(TREE.brokers, sets, 1000 * place) for place, sets in enumerate(wanted))
    seen = replace(CALM, state=TreeState(TREE, INVENTORY, windows), now_ms=12_500, subscription_lifetime_s=15.0)
    new = replace(seen, changed_since_ms=0)
    assert verdict_of(proposal_of(), seen)[0] is Verdict.GAIN_WITHIN_NOISE
    assert verdict_of(proposal_of(), new)[0] is Verdict.ACCEPTED
    assert verdict_of(proposal_of(), replace(new, changed_since_ms=-4_000))[0] is Verdict.GAIN_WITHIN_NOISE
    saved_per_s = choose_proposals([proposal_of()], new, 1, SETTINGS).chosen[0].gain_per_s
    share = 15.0 / SETTINGS.pay_back_within_s(15.0)
    assert verdict_of(proposal_of(), replace(new, price_per_s=share * saved_per_s * 0.99))[0] is Verdict.ACCEPTED
    dear = replace(new, price_per_s=share * saved_per_s * 1.01)
    assert verdict_of(proposal_of(), dear)[0] is Verdict.GAIN_WITHIN_NOISE


def judged_change(
    situation: Situation, settings: DecisionSettings, *, is_alone: bool = False
) -> tuple[Verdict, str] | None:
    before = situation.kind.reached(situation.state)
    after = before.after(proposal_of())
    costs = {"cost_before_per_s": before.cost_per_s, "cost_after_per_s": after.cost_per_s}
    proposal = msgspec.structs.replace(proposal_of(), **costs)
    return judge_change(proposal, before, after, situation, settings, is_alone=is_alone)
