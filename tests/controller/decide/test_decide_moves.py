"""Publishers move in the same plans as links: chosen, judged, verified, rolled back, simulated by shadow planners."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.decide.choose_proposals import moves_of
from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.decide.verify_gain import observed_gains_per_s, plan_undoing, verify_gain
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.planner_registry import planner_of
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import configuration_before
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.state.planner_interface import Planner
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, PhaseChange, Plan, PlanPhase, Proposal, Verdict
from tests.controller.choose_all import choose_proposals
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of, publishers_of

TREE = line_of(5)
INVENTORY = inventory_of(TREE, {})
KIND = tree_kind(INVENTORY)
HOMES = {"p": "b00", "q": "b00", "r": "b02"}
TO_THE_END = ClientMove("p", "b00", "b04")
SETTINGS = ControllerSettings(bootstrap="nowhere:1", inventory_path=Path("unused"))


def window_of(
    start_ms: int, homes: dict[str, str] | None = None, epoch: int = 0, p_wanted: str = "b04"
) -> ClosedWindow:
    """Return a window in which p is wanted at ``p_wanted``, q at both ends, r at its home."""
    homes = homes or HOMES
    wanted = {"p": [{p_wanted}] * 30, "q": [{"b00", "b04"}] * 30, "r": [{"b02"}] * 30}
    sets = publishers_of(TREE.brokers, {name: (home, wanted[name]) for name, home in homes.items()})
    return ClosedWindow(start_ms, start_ms + 1000, sets, epoch_min=epoch, epoch_max=epoch, homes=homes)


def situation_of(inventory: Inventory = INVENTORY) -> Situation:
    placed = TreeConfiguration.of(0, TREE.brokers, TREE.links, HOMES)
    state = TreeState(placed, inventory, tuple(window_of(1000 * at) for at in range(3)))
    return Situation(state, now_ms=3500, kind=tree_kind(inventory), price_per_s=0.0)


def moving(*moves: ClientMove) -> Proposal:
    return Proposal("move", (), (), 0.0, 0.0, 0.0, "because", moves=moves)


def swapping(removed: Link, added: Link) -> Proposal:
    return Proposal("swap", (removed,), (added,), 0.0, 0.0, 0.0, "because")


def test_a_move_is_costed_and_judged_like_any_change() -> None:
    """Moving p to its only subscriber saves four links and four brokers for each of its notifications."""
    choice = choose_proposals([moving(TO_THE_END)], situation_of(), 7, DecisionSettings())
    (chosen,) = choice.chosen
    assert chosen.gain_per_s == pytest.approx(30 * (4 * 10 + 4))
    assert choice.target.home_of == HOMES | {"p": "b04"}
    assert (choice.target.epoch, choice.target.links) == (7, TREE.links)


def test_a_useless_move_is_within_the_dead_band_of_its_publisher() -> None:
    """q is wanted at both ends, so every broker between them costs the same: no gain, however little r publishes."""
    choice = choose_proposals([moving(ClientMove("q", "b00", "b04"))], situation_of(), 7, DecisionSettings())
    assert choice.refused[0].verdict is Verdict.GAIN_WITHIN_NOISE


def test_a_small_move_is_accepted_but_not_as_a_whole_plan() -> None:
    """A move below the dead band of the whole overlay is accepted alone, but refused as a whole plan."""
    wide = DecisionSettings(gain_share_min=0.5)
    choice = choose_proposals([moving(TO_THE_END)], situation_of(), 7, wide)
    assert choice.chosen == ()
    assert choice.refused[0].verdict is Verdict.GAIN_WITHIN_NOISE
    assert "all of the plan saves" in choice.refused[0].verdict_reason


def test_a_publisher_that_is_elsewhere_is_refused_by_name() -> None:
    """The reason names the publisher, its supposed home and its actual one."""
    choice = choose_proposals([moving(ClientMove("p", "b03", "b04"))], situation_of(), 7, DecisionSettings())
    assert choice.refused[0].verdict is Verdict.WRONG_HOME
    assert choice.refused[0].verdict_reason == "publisher p would leave b03, but its home is b00"


def test_moves_keep_the_cap_of_load() -> None:
    """A move that would overload a broker is refused; one within the cap is chosen."""
    caps = replace(INVENTORY, load_max_per_s=INVENTORY.processing_cost * 0 + 40.0)
    assert choose_proposals([moving(TO_THE_END)], situation_of(caps), 7, DecisionSettings()).chosen
    other = moving(ClientMove("r", "b02", "b04"))
    (refused,) = choose_proposals([other], situation_of(caps), 7, DecisionSettings()).refused
    assert refused.verdict is Verdict.CAPACITY


def test_no_more_publishers_move_than_the_limit_of_a_plan() -> None:
    """Links do not count against the limit of moves, nor moves against the limit of links."""
    settings = DecisionSettings(moves_per_plan_max=1, changes_per_plan_max=1)
    swap = swapping(link("b01", "b02"), link("b00", "b04"))
    second = moving(ClientMove("q", "b00", "b02"))
    choice = choose_proposals([swap, moving(TO_THE_END), second], situation_of(), 7, settings)
    assert [one.planner for one in choice.chosen] == ["swap", "move"]
    assert choice.refused[0].verdict is Verdict.CHANGES_PER_PLAN
    assert "the plan already moves 1 publishers" in choice.refused[0].verdict_reason


def test_clients_of_real_brokers_are_not_moved() -> None:
    """With real brokers a move is refused with its own verdict, and links are still exchanged."""
    swap = swapping(link("b01", "b02"), link("b00", "b04"))
    situation = situation_of(replace(INVENTORY, clients_stay=True))
    choice = choose_proposals([swap, moving(TO_THE_END)], situation, 7, DecisionSettings())
    assert [one.planner for one in choice.chosen] == ["swap"]
    assert [one.verdict for one in choice.refused] == [Verdict.CLIENTS_STAY]


def swap_first(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    return [swapping(link("b01", "b02"), link("b00", "b04"))]


def swap_to_nothing(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    return [swapping(link("b01", "b02"), link("b01", "b02"))]


def move_p_next_to_its_subscriber(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """Propose to move p to the last broker before b04 on the current tree."""
    near = state.configuration.path("b00", "b04")[-1]
    return [moving(ClientMove("p", state.configuration.home_of["p"], near))]


def test_the_second_planner_sees_the_first_ones_accepted_changes() -> None:
    """After an accepted swap the next planner gets the new tree, after a refused one the present tree."""
    seen: list[tuple[Link, ...]] = []

    def recording(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
        seen.append(state.configuration.links)
        return move_p_next_to_its_subscriber(state, context, rng)

    plan = decide_plan(situation_of(), [swap_first, recording], 4, SETTINGS).plan
    assert plan is not None
    assert ("b00", "b04") in seen[0]
    assert (plan.links_added, plan.moves) == ((("b00", "b04"),), (TO_THE_END,))
    first, second = plan.proposals
    assert second.cost_before_per_s == first.cost_after_per_s
    assert plan.cost_predicted_per_s == second.cost_after_per_s
    decide_plan(situation_of(), [swap_to_nothing, recording], 4, SETTINGS)
    assert seen[1] == TREE.links


def executed_plan(phase: PlanPhase = PlanPhase.VERIFYING) -> Plan:
    plan = decide_plan(situation_of(), [move_p_next_to_its_subscriber], 1, SETTINGS).plan
    assert plan is not None
    return Plan(**{name: getattr(plan, name) for name in plan.__struct_fields__} | {"phase": phase})


def test_the_gain_of_a_move_is_verified_on_later_windows() -> None:
    """The observed gain compares the traffic after the plan at the new home with the same traffic at the old one."""
    plan = executed_plan()
    after = TreeConfiguration.of(1, TREE.brokers, TREE.links, {"p": "b04"})
    before = configuration_before(plan, after)
    assert before.home_of == {"p": "b00"}
    moved = HOMES | {"p": "b04"}
    windows = [window_of(4000 + 1000 * at, moved, epoch=1) for at in range(2)]
    found = verify_gain(plan, before, after, windows, KIND)
    assert found.gain_per_s == pytest.approx(30 * 44)
    assert observed_gains_per_s(plan, before, windows, KIND) == pytest.approx([30 * 44])
    turned = [window_of(4000 + 1000 * at, moved, epoch=1, p_wanted="b00") for at in range(2)]
    worse = verify_gain(plan, before, after, turned, KIND)
    assert worse.gain_per_s == pytest.approx(-30 * 44)
    undo = plan_undoing(plan, before, after, 2, worse, turned[-1])
    assert undo.moves == (ClientMove("p", "b04", "b00"),)
    assert undo.links_target == TREE.links


def test_the_move_of_a_publisher_that_falls_silent_is_verified() -> None:
    """Without traffic the move saves nothing."""
    plan = executed_plan()
    after = TreeConfiguration.of(1, TREE.brokers, TREE.links, {"p": "b04"})
    others = {"q": "b00", "r": "b02"}
    windows = [window_of(4000 + 1000 * at, others, epoch=1) for at in range(2)]
    before = configuration_before(plan, after)
    assert verify_gain(plan, before, after, windows, KIND).gain_per_s == 0
    assert observed_gains_per_s(plan, before, windows, KIND) == [0.0]


@pytest.mark.parametrize(
    "planner",
    [
        planner_of("relocate_publishers_joint", grape_notifications_min=1),
    ],
)
def test_publishers_stay_if_homes_are_unknown(planner: Planner) -> None:
    """The same state with homes yields a move."""
    state = situation_of().state
    assert [one.moves for one in planner(state, TreeContext(), random.Random(1))] != []
    unknown = replace(state, configuration=TREE)
    assert planner(unknown, TreeContext(), random.Random(1)) == []


def test_the_log_knows_present_and_original_homes_of_publishers() -> None:
    """Homes accumulate over plans; the origin is the home before the first executed plan."""
    change = PhaseChange(PlanPhase.PREPARING, 1, "")
    first = Plan(
        "plan-1", 0, 1, 0, (), (), (), TREE.links, 0.0, 0.0, PlanPhase.COMPLETED, (change,), moves=(TO_THE_END,)
    )
    moves = (ClientMove("p", "b04", "b02"), ClientMove("q", "b00", "b01"))
    second = Plan("plan-2", 1, 2, 0, (), (), (), TREE.links, 0.0, 0.0, PlanPhase.COMPLETED, (change,), moves=moves)
    third = Plan("plan-3", 2, 3, 0, (), (), (), TREE.links, 0.0, 0.0, PlanPhase.ABORTED, (change,),
                 moves=(ClientMove("r", "b02", "b03"),))  # fmt: skip
    log = PlanLog(INVENTORY, [first, second, third])
    assert log.present.home_of == {"p": "b02", "q": "b01"}
    assert log.homes_origin == {"p": "b00", "q": "b00"}


def test_a_plan_moves_each_publisher_once() -> None:
    """Several proposals may move the same publisher further; one that returns to its home does not move."""
    steps = [
        moving(ClientMove("p", "b00", "b01"), ClientMove("q", "b00", "b03")),
        moving(ClientMove("p", "b01", "b04"), ClientMove("r", "b02", "b03")),
        moving(ClientMove("r", "b03", "b02")),
    ]
    assert moves_of(steps) == (ClientMove("p", "b00", "b04"), ClientMove("q", "b00", "b03"))


def no_moves(epoch: int) -> dict[str, str]:
    return {}


def test_a_shadow_keeps_its_own_homes() -> None:
    """Moves of the acting planner do not change the homes of an idle shadow planner, nor the other way round."""

    def idle(*_: object) -> list[Proposal]:
        return []

    still = ShadowPlanner("still", [idle], TREE, KIND, SETTINGS)
    mover = ShadowPlanner("mover", [move_p_next_to_its_subscriber], TREE, KIND, SETTINGS)
    for at in range(3):
        before = window_of(1000 * at)
        costs = [shadow.add_window(before, 1000 * at + 1000, no_moves) for shadow in (still, mover)]
    assert costs[0] == costs[1]
    acting = situation_of()
    assert all(shadow.decide(acting, lambda _: 0.0) for shadow in (still, mover))
    assert (mover.moved["publishers"], mover.homes_moved) == (1, {"p": "b04"})
    moved = window_of(4000, HOMES | {"p": "b04", "q": "b01"}, epoch=1)
    stayed = window_of(4000)
    assert still.add_window(moved, 5000, no_moves) == pytest.approx(costs[0])
    assert mover.add_window(stayed, 5000, no_moves) == pytest.approx(costs[0] - 30 * 44)
