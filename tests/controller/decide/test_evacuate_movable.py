"""Where clients stay, those with an agent leave a broker in maintenance: by name, and each client as a whole."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from regraft.controller.decide.choose_proposals import judge_together, recheck_plan
from regraft.controller.decide.decide_plan import Decision, decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.place_moved import MovedSubscribers
from regraft.controller.decide.verify_gain import observed_gains_per_s, verify_gain
from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.find_homes import configuration_after, configuration_before
from regraft.schemas.plan import ClientMove, Plan, Proposal, Verdict
from tests.controller.decide.test_decide_moves import INVENTORY, moving, situation_of, swap_first
from tests.controller.scripted_overlay import settings_of

STAYING = replace(INVENTORY, clients_stay=True)
WHY = {"b02": "in maintenance, by ada: new disks"}
MOVABLE = {"east.c1.1": "b02", "east.c1.2~1": "b02", "east.c2.1": "b02", "east.c3.1": "b04"}


def registering(movable: Mapping[str, str], staying: int = 2, *left: str) -> Situation:
    """Return a situation in which brokers ``left`` (b02) are evacuated, and some of its subscribers have no agent."""
    base = situation_of(STAYING)
    counts = {"b02": staying}
    for home in movable.values():
        counts[home] = counts.get(home, 0) + 1
    windows = (*base.state.windows[:-1], replace(base.state.newest, movable=movable, subscribers_at=counts))
    state = base.kind.state_of(base.state.configuration, windows)
    why = dict.fromkeys(left or ("b02",), WHY["b02"])
    return replace(base, state=state, maintained=why, evacuated=frozenset(why))


def decided(situation: Situation, users_per_plan_max: int = 500) -> Decision:
    """Return the decision without planners."""
    return decide_plan(situation, (), 7, settings_with(users_per_plan_max))


def settings_with(users_per_plan_max: int) -> ControllerSettings:
    settings = settings_of()
    return replace(settings, decision=replace(settings.decision, users_per_plan_max=users_per_plan_max))


def planned(situation: Situation, users_per_plan_max: int = 500) -> Plan:
    """Return the plan that is made."""
    plan = decided(situation, users_per_plan_max).plan
    assert plan is not None
    return plan


def test_exactly_those_that_may_move_do_so_in_one_proposal() -> None:
    """They go to the nearest broker, at no cost that anybody knows; the others stay."""
    plan = planned(registering(MOVABLE))
    names = ("east.c1.1", "east.c1.2~1", "east.c2.1")
    assert plan.moves == tuple(ClientMove(name, "b02", "b00") for name in names)
    (proposal,) = plan.proposals
    assert (proposal.planner, proposal.subscribers_moved, plan.links_added) == (EVACUATION, (), ())
    assert plan.cost_predicted_per_s == plan.cost_before_per_s
    told = "of its 5 subscribers 3 move to b00, the nearest broker, 0 in later plans, and 2 stay"
    assert proposal.reason == f"clients leave b02: {told}"


def test_the_limit_of_a_plan_never_splits_a_client() -> None:
    """Of a client with two subscriptions and one with one, a plan of two moves one; the other follows."""
    first = planned(registering(MOVABLE), 2)
    assert [move.client for move in first.moves] == ["east.c1.1", "east.c1.2~1"]
    assert "2 move to b00, the nearest broker, 1 in later plans, and 2 stay" in first.proposals[0].reason
    moved = MOVABLE | {move.client: move.home_to for move in first.moves}
    assert [move.client for move in planned(registering(moved), 2).moves] == ["east.c2.1"]
    assert [move.client for move in planned(registering(MOVABLE), 1).moves] == ["east.c2.1"]


def test_brokers_left_together_share_the_limit() -> None:
    """Each gets its own proposal; nothing moves from one to the other."""
    both = registering(MOVABLE, 2, "b02", "b04")
    plan = planned(both)
    assert {move.home_from: move.home_to for move in plan.moves} == {"b02": "b00", "b04": "b00"}
    assert [len(proposal.moves) for proposal in plan.proposals] == [3, 1]
    assert {move.home_from for move in planned(both, 3).moves} == {"b02"}
    assert decided(both, 3).refused == ()


def test_a_client_with_more_subscriptions_than_a_plan_may_move_stays_with_a_reason() -> None:
    """It is neither split nor kept silently."""
    decision = decided(registering({name: "b02" for name in MOVABLE if "c1" in name}), 1)
    assert decision.plan is None
    (refused,) = decision.refused
    assert refused.verdict is Verdict.CHANGES_PER_PLAN
    assert refused.verdict_reason == "the plan already moves 0 subscribers, and this would add 2, but the limit is 1"


def reaching(reaches: Mapping[str, tuple[str, ...]]) -> Situation:
    """Return the situation of three that may move, with the brokers that their agents reach."""
    base = registering(MOVABLE)
    windows = (*base.state.windows[:-1], replace(base.state.newest, reaches=reaches))
    return replace(base, state=base.kind.state_of(base.state.configuration, windows))


def test_each_client_goes_to_the_nearest_broker_that_its_agent_reaches() -> None:
    """Of an agent that reports no brokers, any may be reached; brokers in maintenance are none."""
    plan = planned(reaching({"east.c1": ("b02", "b04")}))
    assert {move.client: move.home_to for move in plan.moves} == {
        "east.c1.1": "b04", "east.c1.2~1": "b04", "east.c2.1": "b00",
    }  # fmt: skip
    told = "2 move to b04 and 1 move to b00, the nearest that their agents reach, 0 in later plans, and 2 stay"
    assert told in plan.proposals[0].reason


def test_a_client_whose_agent_reaches_no_open_broker_stays_and_the_plan_says_so() -> None:
    """Once the others have left, the refusal names it, and the brokers that its agent reaches."""
    situation = reaching({"east.c1": ("b02",)})
    plan = planned(situation)
    assert [move.client for move in plan.moves] == ["east.c2.1"]
    told = "and 4 stay, 2 of them because their agents reach no broker that is open"
    assert plan.proposals[0].reason.endswith(told)
    newest = replace(situation.state.newest, movable=MOVABLE | {"east.c2.1": "b00"})
    rest = situation.kind.state_of(situation.state.configuration, (*situation.state.windows[:-1], newest))
    left = decided(replace(situation, state=rest))
    assert left.plan is None
    (refused,) = left.refused
    assert refused.verdict is Verdict.CLIENTS_STAY
    assert refused.verdict_reason == "the agent of east.c1 cannot take it to b00: it reaches only b02"
    assert "2 may move, but their agents reach no broker that is open" in refused.reason


@pytest.mark.parametrize("movable", [{}, {"east.c3.1": "b04"}])
def test_without_agents_there_is_no_plan(movable: dict[str, str]) -> None:
    """The subscribers of the broker stay, as before."""
    assert decided(registering(movable)).plan is None


def test_without_clients_that_stay_all_subscribers_move_together() -> None:
    """An agent beside some changes nothing."""
    situation = registering(MOVABLE)
    movers = replace(situation, kind=situation_of().kind, state=replace(situation.state, inventory=INVENTORY))
    plan = planned(movers)
    assert [(move.home_from, move.home_to) for move in plan.subscribers_moved] == [("b02", "b00")]
    assert {move.client for move in plan.moves} == {"r"}


@pytest.mark.parametrize(
    ("moves", "verdict"),
    [
        ((ClientMove("east.c2.1", "b02", "b01"), ClientMove("s", "b02", "b01")), Verdict.CLIENTS_STAY),
        ((ClientMove("p", "b00", "b01"),), Verdict.CLIENTS_STAY),
        ((ClientMove("east.c1.1", "b02", "b01"),), Verdict.CONFLICT),
        ((ClientMove("east.c1.1", "b02", "b01"), ClientMove("east.c1.2~1", "b02", "b03")), Verdict.CONFLICT),
        ((ClientMove("east.c2.1", "b04", "b01"),), Verdict.WRONG_HOME),
    ],
)
def test_any_other_move_is_refused(moves: tuple[ClientMove, ...], verdict: Verdict) -> None:
    """Of a client without an agent, of part of a client, to two brokers, or from where it is not."""
    proposal = structs.replace(moving(*moves), planner=EVACUATION)

    def planner(*_: object) -> list[Proposal]:
        return [proposal]

    idle = replace(registering(MOVABLE), evacuated=frozenset())
    decision = decide_plan(idle, (planner,), 7, settings_of())
    assert decision.plan is None
    assert [refused.verdict for refused in decision.refused] == [verdict]


def test_links_are_exchanged_in_the_same_plan() -> None:
    """The planners continue on the overlay after the evacuation."""
    plan = decide_plan(registering(MOVABLE), (swap_first,), 7, settings_of()).plan
    assert plan is not None
    assert (len(plan.moves), plan.links_added) == (3, (("b00", "b04"),))


def test_a_plan_in_review_is_stale_once_a_client_has_moved_or_subscribed() -> None:
    """One that has left is no obstacle."""
    plan = planned(registering(MOVABLE))
    assert recheck_plan(plan, registering(MOVABLE)) is None
    assert recheck_plan(plan, registering({name: at for name, at in MOVABLE.items() if "c2" not in name})) is None
    moved = recheck_plan(plan, registering(MOVABLE | {"east.c2.1": "b03"}))
    assert moved is not None
    assert "subscriber east.c2.1 would leave b02, but its home is b03" in moved[1]
    more = recheck_plan(plan, registering(MOVABLE | {"east.c1.3": "b02"}))
    assert more == (Verdict.CONFLICT, "east.c1 would be at b00, but its subscription east.c1.3 at b02")


def test_other_clients_do_not_matter() -> None:
    """Nor does another home of the same client's name, which another agent may have."""
    moves = (ClientMove("east.c2.1", "b02", "b01"),)
    assert judge_together(moves, MOVABLE | {"east.c2.9": "b03"}) is None
    assert judge_together((ClientMove("p", "b02", "b01"),), MOVABLE) is None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_such_a_plan_saves_is_unknown(is_restarted: bool) -> None:
    """No broker reports the moved subscribers: nothing is observed of them, even if one has moved on since."""
    situation = registering(MOVABLE)
    plan = planned(situation)
    after = configuration_after(plan, situation.state.configuration)
    before = configuration_before(plan, after)
    moved = MOVABLE | {move.client: move.home_to for move in plan.moves} | {"east.c2.1": "b04"}
    handed = {("p", "b00"): 3}
    windows = [replace(window, movable=moved, local_deliveries=handed) for window in situation.state.windows]
    came = MovedSubscribers.of(plan, lambda *_: () if is_restarted else ("east.c1.1",), moved)
    assert came.names == {"east.c1.1", "east.c1.2~1"}
    assert not came.are_reported(windows)
    assert observed_gains_per_s(plan, before, windows, situation.kind, came) == [None]
    assert verify_gain(plan, before, after, windows, situation.kind, None, came).gain_per_s == 0
    quiet = [replace(window, local_deliveries={}) for window in windows]
    assert observed_gains_per_s(plan, before, quiet, situation.kind, came) == [0.0]
