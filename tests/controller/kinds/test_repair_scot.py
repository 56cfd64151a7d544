"""A structured cyclic overlay over other brokers: others stand in for absent ones, joining ones get their own place."""

import random
from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.kinds.repair import RepairTask
from regraft.controller.kinds.scot.repair_scot import repaired_scot
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import ClientMove, HomeMove
from tests.controller.published_windows import window_of
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, publishers_of

NAMES = brokers_named(9)
CAP = 8  # links of a broker; more than any broker gets
FLEET: Inventory = inventory_of(line_of(14), {})
# three regions in a line, of three brokers each
SCOT = ScotConfiguration(0, (NAMES[0:3], NAMES[3:6], NAMES[6:9]), ((0, 1), (1, 2)), (("p", "b04"), ("q", "b00")))


def test_a_neighbour_in_the_cluster_stands_in_for_a_dead_broker() -> None:
    """It then has both places; the dead broker's publisher moves to it."""
    repair = repaired_scot(SCOT, RepairTask(BrokerChange(lost=frozenset({"b04"})), FLEET), CAP)
    assert isinstance(repair.target, ScotConfiguration)
    assert repair.target.regions == (NAMES[0:3], ("b03", "b01", "b05"), NAMES[6:9])
    assert repair.target.cluster_neighbours("b01") == ("b07",)
    assert repair.moves == (ClientMove("p", "b04", "b01"),)
    assert repair.target.home_of == {"p": "b01", "q": "b00"}


def test_clients_of_real_brokers_do_not_move() -> None:
    """Neither publishers of a dead broker nor clients of a leaving one move if clients stay; slots go to a stand-in."""
    for change in (BrokerChange(lost=frozenset({"b04"})), BrokerChange(left=frozenset({"b04"}))):
        for stay in (False, True):
            repair = repaired_scot(SCOT, RepairTask(change, replace(FLEET, clients_stay=stay)), CAP)
            assert isinstance(repair.target, ScotConfiguration)
            assert repair.target.regions == (NAMES[0:3], ("b03", "b01", "b05"), NAMES[6:9])
            assert bool(repair.moves) is not stay
            assert bool(repair.subscribers_moved) is (not stay and bool(change.left))


def test_the_stand_in_keeps_its_cap_if_possible() -> None:
    """b02 dies in a line of four regions: b00 at the end gets 3 links, b06 would get 4; a cap of 2 is exceeded."""
    line = ScotConfiguration(0, tuple(zip(NAMES[0:8:2], NAMES[1:8:2], strict=True)), ((0, 1), (1, 2), (2, 3)))
    lost = BrokerChange(lost=frozenset({"b02"}))
    kept = repaired_scot(line, RepairTask(lost, FLEET), 3)
    assert isinstance(kept.target, ScotConfiguration)
    assert kept.target.slots["b00"] == [(0, 0), (1, 0)]
    assert kept.exceeded == ()
    above = repaired_scot(line, RepairTask(lost, FLEET), 2)
    assert above.exceeded == ("b00 has 3 links, but its limit is 2",)
    assert "above their caps: b00 has 3 links, but its limit is 2" in above.reason


def test_publishers_of_a_dead_broker_move_where_caps_are_kept() -> None:
    """p has 8/s, wanted at b03. b01 stands in for b04; if it may pass only 4/s, p publishes at its neighbour."""
    window = window_of(0, publishers_of(SCOT.brokers, {"p": ("b04", [{"b03"}] * 8)}), {"p": "b04"})
    caps = np.full(len(FLEET.brokers), 100.0)
    caps[1] = 4.0
    lost = BrokerChange(lost=frozenset({"b04"}))
    kept = repaired_scot(SCOT, RepairTask(lost, replace(FLEET, load_max_per_s=caps), (window,)), CAP)
    assert kept.moves == (ClientMove("p", "b04", "b00"),)
    assert kept.exceeded == ()
    tight = replace(FLEET, load_max_per_s=np.full(len(FLEET.brokers), 4.0))
    above = repaired_scot(SCOT, RepairTask(lost, tight, (window,)), CAP)
    assert above.moves == (ClientMove("p", "b04", "b01"),)
    assert above.exceeded == tuple(
        f"{broker} passes 8 notifications/s, but its limit is 4" for broker in NAMES[:2] + NAMES[3:4]
    )


def test_a_returning_broker_has_its_place_and_a_joining_one_takes_a_stand_ins() -> None:
    """After two deaths one place goes to a joining broker; a broker that returns at once keeps its place."""
    gone = repaired_scot(SCOT, RepairTask(BrokerChange(lost=frozenset({"b04", "b08"})), FLEET), CAP).target
    assert isinstance(gone, ScotConfiguration)
    back = repaired_scot(gone, RepairTask(BrokerChange(joined=frozenset({"b09"})), FLEET), CAP).target
    assert isinstance(back, ScotConfiguration)
    assert len(back.slots["b09"]) == 1
    assert sum(len(places) > 1 for places in back.slots.values()) == 1
    same = repaired_scot(SCOT, RepairTask(BrokerChange(frozenset({"b04"}), lost=frozenset({"b04"})), FLEET), CAP).target
    assert isinstance(same, ScotConfiguration)
    assert same.regions == SCOT.regions


def test_a_broker_that_joins_a_full_overlay_begins_a_region() -> None:
    """Brokers of the adjacent region stand in there."""
    repair = repaired_scot(SCOT, RepairTask(BrokerChange(joined=frozenset({"b09"})), FLEET), CAP)
    assert isinstance(repair.target, ScotConfiguration)
    assert len(repair.target.regions) == 4
    assert sorted(repair.target.regions[3]) == sorted({"b09"} | (set(repair.target.regions[3]) & set(NAMES)))


def test_subscribers_of_a_leaving_broker_move_to_its_stand_in() -> None:
    """As publishers do."""
    repair = repaired_scot(SCOT, RepairTask(BrokerChange(left=frozenset({"b00"})), FLEET), CAP)
    assert repair.subscribers_moved == (HomeMove("b00", "b03"),)
    assert repair.moves == (ClientMove("q", "b00", "b03"),)


def test_a_cluster_without_brokers_is_removed() -> None:
    """The other clusters are renumbered; clients stay in their region. A broker that joins keeps the cluster."""
    lost = BrokerChange(lost=frozenset({"b01", "b04", "b07"}))
    repair = repaired_scot(SCOT, RepairTask(lost, FLEET), CAP)
    assert isinstance(repair.target, ScotConfiguration)
    assert repair.target.regions == (("b00", "b02"), ("b03", "b05"), ("b06", "b08"))
    assert repair.target.home_of == {"p": "b03", "q": "b00"}
    plan = repair.plan(SCOT, 1, 0)
    assert SCOT.replaced(1, plan.id_moves, plan.links_removed, plan.links_added, lost).digest == repair.target.digest
    joined = BrokerChange(joined=frozenset({"b09"}), lost=lost.lost)
    kept = repaired_scot(SCOT, RepairTask(joined, FLEET), CAP).target
    assert isinstance(kept, ScotConfiguration)
    assert [region[1] for region in kept.regions] == ["b09"] * 3


@pytest.mark.parametrize("seed", range(20))
def test_any_changes_give_a_valid_overlay_and_a_plan_that_leads_there(seed: int) -> None:
    """Brokers die, leave, return and join; a broker that applies the plan's change gets the same overlay."""
    draw, overlay = random.Random(seed), SCOT
    for epoch in range(1, 9):
        present, absent = list(overlay.brokers), sorted(set(FLEET.brokers) - set(overlay.brokers))
        lost = frozenset(draw.sample(present, draw.randrange(0, 2)))
        left = frozenset(draw.sample(sorted(set(present) - lost), draw.randrange(0, 2)))
        joined = frozenset(draw.sample(absent, min(draw.randrange(0, 3), len(absent))))
        back = lost if draw.random() < 0.3 else frozenset[str]()
        change = BrokerChange(joined | back, left, lost)
        repair = repaired_scot(overlay, RepairTask(change, FLEET), CAP)
        plan = repair.plan(overlay, epoch, 0)
        target = overlay.target_of(plan)
        assert set(target.brokers) == change.of(overlay.brokers)
        exchanged = plan.links_removed, plan.links_added
        assert overlay.replaced(epoch, plan.id_moves, *exchanged, change).digest == target.digest
        assert target.origin_of(plan, {}) == replace(overlay, homes=())
        overlay = target
