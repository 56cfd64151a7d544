"""A client beside an agent moves as one, with what it publishes; planner, judge and verification price it alike."""

import random
from dataclasses import replace

import msgspec
import pytest

from regraft.controller.decide.place_moved import MovedSubscribers
from regraft.controller.decide.verify_gain import observed_gains_per_s, verify_gain
from regraft.controller.kinds.tree.reached_tree import ReachedTree
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.place_clients_cost import PlaceClientsSettings, place_clients_cost
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.registered_clients import RegisteredClients
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.schemas.client import Client, Role
from regraft.schemas.part_blocks import number_of_subscriber
from regraft.schemas.plan import ClientMove, Plan, PlanPhase, Proposal
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.overlay.small_overlays import inventory_of, line_of

LINE = line_of(4)
BROKERS = LINE.brokers
CLIENT, QUIET = "east.1-1", "east.1-2"
SUBSCRIPTIONS = (f"{CLIENT}.1~a-1", f"{CLIENT}.2~a-2")
STAND_IN = f"{QUIET}.1~a-3"
WINDOW_S = 5
INVENTORY = inventory_of(LINE, {("b01", "b03"): 30.0})


def publisher_at(home: str, client: str) -> str:
    return f"{home}.17.p.{client}"


def window_of(home: str, at: int) -> ClosedWindow:
    """Return a window with a client at ``home`` that wants all of b03 twice, and publishes what b03 wants; and another
    one, which only publishes that.
    """
    cells = {broker: DeliveryCells(60) for broker in BROKERS}
    cells[home].report_separately(CLIENT, number_of_subscriber(CLIENT), 0.0)
    rng = random.Random(at)
    published = [
        ("b03.17", "b03", 300, 0),
        (publisher_at(home, CLIENT), home, 200, 1),
        (publisher_at(home, QUIET), home, 100, 1),
    ]
    for publisher, source, count, wanted_at_b03 in published:
        for sequence in range(at * count, (at + 1) * count):
            one = Notification(publisher, sequence, at * 5_000 + rng.uniform(0, 4_999), source, 0, {}, 10)
            cells[source].note_published(one)
            if wanted_at_b03:
                cells["b03"].note_delivered(one, 1)
            else:
                cells[home].note_delivered(one, 2)
                cells[home].note_parts(one, [CLIENT, CLIENT])
    aggregator = ReferenceAggregator(WINDOW_S * 1_000, 0)
    for sent, (broker, own) in enumerate(cells.items()):
        aggregator.take(msgspec.to_builtins(TelemetryBatch(broker, 1, sent, at * 5_000 + 4_999, 0, own.pop_changed())))
    (closed,) = aggregator.finish()
    taken = gather_deliveries(closed.rows, BROKERS, WINDOW_S)
    return ClosedWindow(
        at * 5_000, at * 5_000 + 5_000, taken.sets, homes=taken.homes, local_deliveries=taken.local_deliveries,
        parts=taken.parts, epoch_min=0, epoch_max=0,
    )  # fmt: skip


def known(window: ClosedWindow, home: str, nearest: str = "") -> ClosedWindow:
    """Return the window with what the register says of both clients."""
    register = RegisteredClients()
    for name in (*SUBSCRIPTIONS, STAND_IN):
        register.put(Client(name, Role.SUBSCRIBER, home, (), 0.0, 0, may_move=True, nearest=nearest))
    single = register.named(window.parts.received)
    return replace(window, single=single, movable=register.movable, nearest=register.nearest)


def state_of(nearest: str = "", inventory: Inventory = INVENTORY) -> TreeState:
    windows = [known(window_of("b01", at), "b01", nearest) for at in range(2)]
    configuration = TreeConfiguration.of(0, BROKERS, LINE.links, windows[-1].homes)
    return TreeState(configuration, replace(inventory, clients_stay=True), tuple(windows))


def proposals_on(state: TreeState) -> list[Proposal]:
    context = TreeContext(single_max=500)
    return place_clients_cost(state, PlaceClientsSettings(), context, random.Random(1))


def test_all_of_a_client_moves_to_where_it_costs_least_at_the_price_of_the_judge() -> None:
    """Both subscriptions in one proposal; the client that only publishes by its stand-in."""
    state = state_of(inventory=inventory_of(LINE, {}))
    proposals = proposals_on(state)
    assert {move.client for one in proposals for move in one.moves} == {*SUBSCRIPTIONS, STAND_IN}
    reached = ReachedTree(state)
    for proposal in proposals:
        assert {move.home_to for move in proposal.moves} != {"b01"}
        after = reached.after(proposal)
        assert reached.cost_per_s - after.cost_per_s == pytest.approx(proposal.gain_per_s)
        reached = after
    homes = reached.configuration.home_of
    assert homes[publisher_at("b01", CLIENT)] == homes[publisher_at("b01", QUIET)] == "b03"
    assert dict(reached.state.newest.movable) == dict.fromkeys((*SUBSCRIPTIONS, STAND_IN), "b03")
    assert not proposals_on(reached.state)


def test_clients_that_may_no_longer_move_are_not_proposed() -> None:
    """Brokers report them for a while after that."""
    state = state_of()
    windows = tuple(replace(one, movable={}) for one in state.windows)
    assert not proposals_on(TreeState(state.configuration, state.inventory, windows))


@pytest.mark.parametrize("nearest", ["", "b01", "b03"])
def test_what_the_move_saves_is_verified_under_the_publishers_new_name(nearest: str) -> None:
    """The windows after it show what the client receives as a part, and it publishes as a client of its new home."""
    state = state_of(nearest)
    moves = tuple(ClientMove(name, "b01", "b03") for name in (*SUBSCRIPTIONS, STAND_IN))
    proposal = Proposal("place_clients_cost", (), (), 1.0, 0.5, 0.0, "", moves=moves)
    saved = ReachedTree(state).cost_per_s - ReachedTree(state).after(proposal).cost_per_s
    windows = [known(window_of("b03", at), "b03", nearest) for at in range(2, 4)]
    kind = TreeKind(state.inventory, 4)
    after = TreeConfiguration.of(1, BROKERS, LINE.links, windows[-1].homes)
    plan = Plan(
        "plan-1", 0, 1, 10_000, (proposal,), (), (), LINE.links, 1.0, 0.5, PlanPhase.VERIFYING, (), moves=moves
    )  # fmt: skip
    moved = MovedSubscribers.of(plan, lambda _from, _to: (), windows[-1].movable)
    verification = verify_gain(plan, after, after, windows, kind, None, moved)
    assert verification.gain_per_s == pytest.approx(saved, rel=0.05)
    (gain,) = observed_gains_per_s(plan, after, windows, kind, moved)
    assert gain == pytest.approx(verification.gain_per_s)


def test_a_client_goes_to_the_nearest_broker_if_that_pays() -> None:
    """Both clients are near b02, so away from home: the way there counts, for the judge as for the planner."""
    state = state_of("b02")
    ways_per_s = ReachedTree(state).cost_per_s - ReachedTree(state_of()).cost_per_s
    assert ways_per_s == pytest.approx((2 * 300 + 200 + 100) / WINDOW_S * INVENTORY.cost_of_link("b01", "b02"))
    reached, homes = ReachedTree(state), {}
    for proposal in proposals_on(state):
        after = reached.after(proposal)
        homes |= {move.client: move.home_to for move in proposal.moves}
        assert reached.cost_per_s - after.cost_per_s == pytest.approx(proposal.gain_per_s)
        reached = after
    assert {homes[name] for name in SUBSCRIPTIONS} == {"b02"}


def test_a_client_whose_way_would_be_longer_than_what_it_saves_stays() -> None:
    """It is at the nearest broker; the way from there to where its messages come from is longer than the links'."""
    for proposal in proposals_on(state_of("b01")):
        assert not {move.client for move in proposal.moves} & {*SUBSCRIPTIONS}


def test_a_client_goes_only_where_its_agent_can_take_it() -> None:
    """Of the brokers where it would cost less than now, the cheapest that its agent reaches; a plan elsewhere fails."""
    free = {move.client: move.home_to for one in proposals_on(state_of("b02")) for move in one.moves}
    assert {free[name] for name in SUBSCRIPTIONS} == {"b02"}
    base = state_of("b02")
    reaches = dict.fromkeys(base.movers, ("b01", "b03"))
    windows = (*base.windows[:-1], replace(base.newest, reaches=reaches))
    bound = proposals_on(TreeState(base.configuration, base.inventory, windows))
    assert {move.home_to for one in bound for move in one.moves} == {"b03"}
    nowhere = (*base.windows[:-1], replace(base.newest, reaches=dict.fromkeys(base.movers, ("b01",))))
    assert not proposals_on(TreeState(base.configuration, base.inventory, nowhere))
