"""Plans on a structured cyclic overlay: slots and region links exchanged, publishers moved, nothing lost."""

import random
from dataclasses import replace

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.build_tree import random_tree
from regraft.producers.emulator.emulate_overlay import inventory_timing
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.plan import ClientMove, HomeMove, PlanPhase
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of
from tests.scenarios.run_plan import PlanOnTheClock
from tests.scenarios.test_scot_routing import congest, cores_of

NAMES = brokers_named(12)
SCOT = ScotConfiguration(0, (NAMES[0:3], NAMES[3:6], NAMES[6:9], NAMES[9:12]), ((0, 1), (1, 2), (1, 3)))
INVENTORY: Inventory = replace(inventory_of(line_of(12), {}), bootstrap=SCOT)
BUSY = WorkloadSettings(publisher_count=12, notifications_per_s=8.0, lifetime_s_mean=5.0)


def running(seed: int) -> VirtualOverlay:
    timing = inventory_timing(INVENTORY, 0.05)
    return VirtualOverlay(INVENTORY, BUSY, VirtualSettings(seed=seed, timing=timing, flush_ms=None))


def another(present: ScotConfiguration, draw: random.Random) -> ScotConfiguration:
    """Return an overlay of the next epoch: brokers exchange slots, or regions are linked otherwise, or neither."""
    regions = [list(region) for region in present.regions]
    links = present.region_links
    if draw.random() < 0.6:
        slots = [(number, cluster) for number, region in enumerate(regions) for cluster in range(len(region))]
        for _ in range(draw.randrange(1, 4)):
            (a, b), (c, d) = draw.sample(slots, 2)
            regions[a][b], regions[c][d] = regions[c][d], regions[a][b]
    if draw.random() < 0.5:
        tree = random_tree([str(number) for number in range(len(regions))], 3, draw)
        links = tuple(sorted((int(a), int(b)) for a, b in tree.links))
    return ScotConfiguration(present.epoch + 1, tuple(map(tuple, regions)), links)


def random_moves(virtual: VirtualOverlay, draw: random.Random) -> tuple[ClientMove, ...]:
    """Return moves of some publishers to any brokers."""
    homes = {name: core.broker for core in cores_of(virtual) for name in core.state.tables[core.epoch].hosted}
    chosen = draw.sample(sorted(homes), draw.randrange(0, 5))
    moves = [ClientMove(name, homes[name], draw.choice(NAMES)) for name in chosen]
    return tuple(sorted(move for move in moves if move.home_from != move.home_to))


@pytest.mark.parametrize("seed", range(4))
def test_plans_lose_nothing_and_keep_order(seed: int) -> None:
    """Nothing is congested: subscriptions come and go, and half a dozen plans follow each other."""
    draw, virtual, present = random.Random(seed), running(seed), SCOT
    virtual.run_for(3_000)
    moved = 0
    for _ in range(6):
        target, moves = another(present, draw), random_moves(virtual, draw)
        plan = PlanOnTheClock(virtual, moves, target)
        plan.run_until(PlanPhase.VERIFYING)
        virtual.run_for(draw.choice([0, 500, 2_000]))
        present, moved = target, moved + len(moves)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.expected > 1_000
    assert virtual.overlay.publishers.moves.moved == moved > 0
    assert {core.state.tables[core.epoch].configuration.digest for core in cores_of(virtual)} == {present.digest}


@pytest.mark.parametrize("seed", range(4))
def test_subscribers_move_in_order_under_real_traffic(seed: int) -> None:
    """Each plan empties two brokers of subscribers, while slots and publishers change, too."""
    draw, virtual, present = random.Random(seed), running(seed), SCOT
    virtual.run_for(3_000)
    for _ in range(6):
        target, moves = another(present, draw), random_moves(virtual, draw)
        emptied = sorted(draw.sample(NAMES, 2))
        homes = tuple(HomeMove(home, draw.choice([one for one in NAMES if one != home])) for home in emptied)
        PlanOnTheClock(virtual, moves, target, emptied=homes).run_until(PlanPhase.VERIFYING)
        virtual.run_for(draw.choice([0, 500, 2_000]))
        present = target
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert virtual.overlay.subscribers.moved_count > 20


@pytest.mark.parametrize("seed", range(3))
def test_plans_lose_and_repeat_nothing_while_links_are_congested(seed: int) -> None:
    """Notifications take detours in the old epoch and in the new; order is what detours cost."""
    draw, virtual, present = random.Random(seed), running(seed), SCOT
    virtual.run_for(2_000)
    for _ in range(5):
        target, moves = another(present, draw), random_moves(virtual, draw)
        plan = PlanOnTheClock(virtual, moves, target)
        while plan.phase is not PlanPhase.VERIFYING:
            for core in cores_of(virtual):
                congest(core, draw)
            virtual.run_for(20)
            plan.look()
        present = target
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.expected > 500
    assert sum(core.links.diverted for core in cores_of(virtual)) > 0


def test_an_aborted_plan_leaves_no_trace() -> None:
    """A broker refuses a move to a broker that does not exist; all continue as before, and the next plan succeeds."""
    virtual = running(1)
    virtual.run_for(2_000)
    home = next(core for core in cores_of(virtual) if core.state.tables[0].hosted)
    publisher = min(home.state.tables[0].hosted)
    plan = PlanOnTheClock(virtual, (ClientMove(publisher, home.broker, "b99"),), SCOT.at_epoch(1))
    plan.run_until(PlanPhase.ABORTED)
    assert all(set(core.state.tables) == {0} for core in cores_of(virtual))
    after = PlanOnTheClock(virtual, (), SCOT.at_epoch(2), epoch=2)
    after.run_until(PlanPhase.VERIFYING)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
