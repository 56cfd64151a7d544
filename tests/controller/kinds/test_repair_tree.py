"""A tree over other brokers: dead ones removed, fragments joined, new ones as leaves, everything else unchanged."""

from __future__ import annotations

import random
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.repair import RepairTask
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import MEMBERSHIP, REPAIR, ClientMove
from tests.controller.kinds.drawn_repairs import DrawnRepair, drawn_repair
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import NO_CAP, brokers_named, inventory_of, line_of, publishers_of

LINE = line_of(5)
FLEET = inventory_of(LINE, {("b00", "b03"): 2.0, ("b01", "b03"): 3.0, ("b01", "b04"): 1.0})


def kept_links(drawn: DrawnRepair) -> set[tuple[str, str]]:
    gone = drawn.task.change.lost | drawn.task.change.left
    return {pair for pair in drawn.present.links if gone.isdisjoint(pair)}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_any_change_of_brokers_leads_to_a_tree_over_exactly_the_target_brokers(seed: int) -> None:
    """Every link that can stay stays, clients are at present brokers, and the plan gives their old and new homes."""
    drawn = drawn_repair(random.Random(seed))
    present, change = drawn.present, drawn.task.change
    repair = tree_kind(drawn.task.fleet, drawn.degree_max).repaired(present, drawn.task)
    assert repair.target.brokers == tuple(sorted(change.of(present.brokers)))
    assert kept_links(drawn) <= set(repair.target.links)
    assert {move.client for move in repair.moves} == {
        name for name, home in present.homes if home not in repair.target.brokers
    }
    plan = repair.plan(present, 9, 2000)
    assert present.target_of(plan) == repair.target.at_epoch(9).with_homes({})
    assert repair.target.origin_of(plan, {}).links == present.links
    assert plan.brokers_lost == tuple(sorted(change.lost))
    assert plan.proposals[0].planner == (REPAIR if change.lost else MEMBERSHIP)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_caps_are_kept_if_possible(seed: int) -> None:
    """A cap is exceeded only if the fragments do not have two ends with room for each link that joins them."""
    drawn = drawn_repair(random.Random(seed))
    target = tree_kind(drawn.task.fleet, drawn.degree_max).repaired(drawn.present, drawn.task).target
    kept = nx.Graph()
    kept.add_nodes_from(broker for broker in target.brokers if broker in drawn.present.brokers)
    kept.add_nodes_from([] if kept else target.brokers)
    kept.add_edges_from(kept_links(drawn))
    room = [
        sum(max(drawn.degree_max - kept.degree(broker), 0) for broker in part) for part in nx.connected_components(kept)
    ]
    missing = sum(max(0, 1 - rest) for rest in room) if len(room) > 1 else 0
    missing += max(0, 2 * (len(room) - 1) - sum(max(rest, 1) for rest in room))
    over = {broker: len(peers) - drawn.degree_max for broker, peers in target.neighbours.items()}
    before = {broker: kept.degree(broker) - drawn.degree_max if broker in kept else 0 for broker in over}
    assert sum(max(0, over[broker] - max(before[broker], 0)) for broker in over) == missing


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_a_repair_is_costed_by_the_last_traffic_on_the_new_tree(seed: int) -> None:
    """Publishers are at their new homes; what only absent brokers wanted costs nothing any more."""
    drawn = drawn_repair(random.Random(seed))
    repair = tree_kind(drawn.task.fleet, drawn.degree_max).repaired(drawn.present, drawn.task)
    if not drawn.task.windows:
        assert repair.cost_before_per_s == repair.cost_after_per_s == 0
        return
    target = repair.target
    assert isinstance(target, TreeConfiguration)
    whole = drawn.task.fleet.brokers
    sets = DeliverySets.joined(window.sets.over(whole).at_homes(target.home_of) for window in drawn.task.windows)
    inventory = drawn.task.fleet.restricted_to(target.brokers)
    np.testing.assert_allclose(
        repair.cost_after_per_s, overlay_cost(target, inventory, sets.over(target.brokers)).total_per_s
    )


def test_a_death_in_the_middle_is_bridged_by_the_cheapest_link() -> None:
    """The line b00-b01 | b03-b04 is joined by b01-b04, which costs least, and nothing else changes."""
    task = RepairTask(BrokerChange(lost=frozenset({"b02"})), FLEET)
    repair = tree_kind(FLEET).repaired(LINE, task)
    assert repair.target.links == (("b00", "b01"), ("b01", "b04"), ("b03", "b04"))
    assert repair.reason == "b02 lost; 2 fragments are joined by b01-b04"


def test_the_reason_of_a_large_repair_names_only_some() -> None:
    """A plan is stored at every phase, so it must stay small."""
    names = brokers_named(40)
    star = TreeConfiguration.of(0, names, [("b00", broker) for broker in names[1:]])
    fleet = inventory_of(star, {})
    repair = tree_kind(fleet).repaired(star, RepairTask(BrokerChange(lost=frozenset({"b00"})), fleet))
    assert repair.reason.startswith("b00 lost; 39 fragments are joined by b01-b02, ")
    assert repair.reason.endswith(" and 26 more")


def test_a_full_broker_gets_no_more_links() -> None:
    """With at most two links per broker, only the ends of both fragments have room."""
    task = RepairTask(BrokerChange(lost=frozenset({"b02"})), FLEET)
    cheap = replace(FLEET, link_cost=np.where(FLEET.link_cost == 2.0, 0.5, FLEET.link_cost))
    ends = replace(task, fleet=cheap)
    assert ("b00", "b03") in tree_kind(cheap, 2).repaired(LINE, ends).target.links
    closed = replace(ends, avoided={"b00"})
    assert ("b01", "b04") in tree_kind(cheap, 2).repaired(LINE, closed).target.links


def test_a_cap_that_permits_no_tree_is_exceeded_as_little_as_possible() -> None:
    """The hub of a star dies: four leaves with a cap of 1 cannot form a tree, so two of them get a second link."""
    star = TreeConfiguration.of(0, LINE.brokers, [("b02", broker) for broker in LINE.brokers if broker != "b02"])
    repair = tree_kind(FLEET, 1).repaired(star, RepairTask(BrokerChange(lost=frozenset({"b02"})), FLEET))
    assert sorted(len(peers) for peers in repair.target.neighbours.values()) == [1, 1, 2, 2]
    assert "above their caps, as few as possible" in repair.reason
    assert all("links, but its limit is 1" in one for one in repair.exceeded)


def test_a_new_broker_joins_as_a_leaf_at_the_cheapest_place_with_room() -> None:
    """b04 joins the line of the other four: b01 is nearest, but full if two links are the limit."""
    change = BrokerChange(joined=frozenset({"b04"}))
    line = line_of(4)
    for degree_max, peer in ((NO_CAP, "b01"), (2, "b00")):
        repair = tree_kind(FLEET, degree_max).repaired(line, RepairTask(change, FLEET))
        assert set(repair.target.links) - set(line.links) == {(peer, "b04")}


def test_publishers_of_a_dead_broker_move_where_they_cost_least() -> None:
    """p is wanted only at b04 and moves there; s has been silent and moves to the broker nearest to its old one."""
    sets = publishers_of(LINE.brokers, {"p": ("b02", [{"b04"}] * 3)})
    window = ClosedWindow(0, 1000, sets, epoch_min=0, epoch_max=0, homes={"p": "b02", "s": "b02"})
    task = RepairTask(BrokerChange(lost=frozenset({"b02"})), FLEET, (window,))
    repair = tree_kind(FLEET).repaired(LINE, task)
    assert repair.moves == (ClientMove("p", "b02", "b04"), ClientMove("s", "b02", "b00"))
    assert repair.cost_after_per_s == 3.0  # p is published and wanted at b04: 1 per notification


def test_clients_of_real_brokers_do_not_move() -> None:
    """Neither publishers of a dead broker nor subscribers of a leaving one move if clients stay."""
    sets = publishers_of(LINE.brokers, {"p": ("b02", [{"b04"}] * 3)})
    window = ClosedWindow(0, 1000, sets, epoch_min=0, epoch_max=0, homes={"p": "b02"})
    for change in (BrokerChange(lost=frozenset({"b02"})), BrokerChange(left=frozenset({"b02"}))):
        for stay in (False, True):
            fleet = replace(FLEET, clients_stay=stay)
            repair = tree_kind(fleet).repaired(LINE, RepairTask(change, fleet, (window,)))
            assert bool(repair.moves) is not stay
            assert bool(repair.subscribers_moved) is (not stay and bool(change.left))


def test_only_the_busiest_publishers_of_a_dead_broker_move_where_they_cost_least() -> None:
    """q publishes less than p and moves to the broker nearest to its old one; r exceeds the limit of moves."""
    wanted = {name: ("b02", [{"b04"}] * count) for name, count in (("p", 3), ("q", 2), ("r", 1))}
    window = ClosedWindow(
        0, 1000, publishers_of(LINE.brokers, wanted), epoch_min=0, epoch_max=0, homes=dict.fromkeys("pqr", "b02")
    )
    task = RepairTask(BrokerChange(lost=frozenset({"b02"})), FLEET, (window,), moves_max=2, priced_max=1)
    assert tree_kind(FLEET).repaired(LINE, task).moves == (
        ClientMove("p", "b02", "b04"),
        ClientMove("q", "b02", "b00"),
    )


def test_no_publisher_moves_where_the_load_would_exceed_the_cap_unless_there_is_no_room() -> None:
    """b04 may pass no more, so p publishes next to it; if no broker has room, b04 is the cheapest again."""
    sets = publishers_of(LINE.brokers, {"p": ("b02", [{"b04"}] * 3), "q": ("b04", [{"b04"}] * 3)})
    window = ClosedWindow(0, 1000, sets, epoch_min=0, epoch_max=0, homes={"p": "b02", "q": "b04"})
    for caps, home in (([9.0, 9.0, 9.0, 9.0, 6.0], "b04"), ([1.0, 1.0, 1.0, 1.0, 1.0], "b04")):
        fleet = replace(FLEET, load_max_per_s=np.array(caps))
        task = RepairTask(BrokerChange(lost=frozenset({"b02"})), fleet, (window,))
        assert tree_kind(fleet).repaired(LINE, task).moves == (ClientMove("p", "b02", home),)


def test_a_broker_with_unknown_costs_is_named() -> None:
    """Nothing can be planned for it, nor for a single broker."""
    with pytest.raises(ValueError, match="the cost of links to z9 is unknown"):
        tree_kind(FLEET).repaired(LINE, RepairTask(BrokerChange(joined=frozenset({"z9"})), FLEET))
    with pytest.raises(ValueError, match="0 brokers would be left, but an overlay needs at least 2"):
        tree_kind(FLEET).repaired(LINE, RepairTask(BrokerChange(lost=frozenset(LINE.brokers)), FLEET))
