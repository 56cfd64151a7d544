"""Restarting brokers begin at the overlay of the last committed plan, and continue as if nothing had happened."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration, plan_digest
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.emulator.starting_point import is_undecided, starting_point
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal
from regraft.schemas.plan import ClientMove, IdMove, Plan, PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.producers.drive_plan import random_swaps

TREE = place_overlay(8, 4, random.Random(1))
RING = place_ring(8, random.Random(1))
STOCKS = WorkloadSettings(publisher_count=10, interested_broker_count=3, lifetime_s_mean=2.0)
CHECKINS = CheckinSettings(user_count=40, connect_spread_s=0.5, linger_days=None)
COMMITTED = [phase for phase, facts in LIFE.items() if facts.is_committed]


def next_overlay(present: OverlayConfiguration, rng: random.Random) -> OverlayConfiguration:
    """Return another overlay of the next epoch: two links, or two brokers' IDs, are exchanged."""
    if isinstance(present, TreeConfiguration):
        return random_swaps(present, 2, 4, rng)
    assert isinstance(present, RingConfiguration)
    one, other = rng.sample(present.brokers, 2)
    id_of = present.id_of
    moves = [IdMove(one, id_of[one], id_of[other]), IdMove(other, id_of[other], id_of[one])]
    return present.replaced(present.epoch + 1, moves)


def plan_to(
    target: Any, present: Any, phase: PlanPhase = PlanPhase.COMPLETED, moves: tuple[ClientMove, ...] = (), term: int = 1
) -> Plan:
    """Return a plan from one overlay to the next."""
    name = f"plan-{target.epoch}"
    plan = Plan(name, present.epoch, target.epoch, 0, (), (), (), (), 1.0, 1.0, phase, (), moves=moves, term=term)
    removed = tuple(sorted(set(present.links) - set(target.links)))
    added = tuple(sorted(set(target.links) - set(present.links)))
    if isinstance(target, TreeConfiguration):
        plan = msgspec.structs.replace(plan, links_removed=removed, links_added=added)
    return target.as_target(plan, present)  # type: ignore[no-any-return]


def command_of(plan: Plan, digest: str, phase: CommandPhase, broker: str, term: int) -> Command:
    """Return a leader's command of one phase to a broker."""
    return Command(
        plan.plan, phase, broker, plan.epoch_from, plan.epoch_to, plan.links_removed, plan.links_added, digest,
        id_moves=plan.id_moves, term=term,
    )  # fmt: skip


def ask(virtual: VirtualOverlay, plan: Plan, digest: str, phase: CommandPhase, term: int = 9) -> list[Outcome]:
    """Command all brokers one phase and return the last answer of each."""
    before = len(virtual.results.results)
    for broker in virtual.overlay.brokers:
        virtual.send_command(command_of(plan, digest, phase, broker, term))
    virtual.run_for(5_000)
    last = {result.broker: result.outcome for result in list(virtual.results.results)[before:]}
    return [last[broker] for broker in virtual.overlay.brokers]


@pytest.mark.parametrize("phase", list(PlanPhase))
def test_brokers_begin_at_the_last_committed_plan(phase: PlanPhase) -> None:
    """Its phase may be any from ACTIVATING on; a plan in any other leaves them at the overlay before it."""
    rng = random.Random(2)
    first = next_overlay(TREE.bootstrap, rng)
    second = next_overlay(first, rng)
    earlier = plan_to(first, TREE.bootstrap, moves=(ClientMove("p", "b1", "b2"), ClientMove("q", "b1", "b3")))
    newest = plan_to(second, first, phase, moves=(ClientMove("p", "b2", "b4"),), term=3)
    found = starting_point(TREE, [newest, earlier])
    target, plan = (second, newest) if phase in COMMITTED else (first, earlier)
    assert found.configuration == target
    assert (found.plan, found.digest, found.term) == (plan.plan, plan_digest(plan, target), 3)
    assert found.homes == {"p": "b4" if phase in COMMITTED else "b2", "q": "b3"}
    assert is_undecided(newest) is (phase is PlanPhase.PREPARING)


def test_without_plans_brokers_begin_at_the_bootstrap_overlay() -> None:
    """Clients connect where their workload draws them."""
    found = starting_point(TREE, [])
    assert (found.configuration, found.plan, found.term) == (TREE.bootstrap, "", 0)
    assert found.first_home("p", "b5") == "b5"


def test_plans_of_another_kind_of_overlay_are_refused() -> None:
    """Brokers of a tree cannot begin at a ring."""
    target = next_overlay(RING.bootstrap, random.Random(3))
    with pytest.raises(ValueError, match="use the inventory that it was made for"):
        starting_point(TREE, [plan_to(target, RING.bootstrap)])


@pytest.mark.parametrize(("inventory", "workload"), [(TREE, STOCKS), (RING, CHECKINS)], ids=["tree", "ring"])
@pytest.mark.parametrize("phase", COMMITTED)
def test_restarted_brokers_continue(
    inventory: Inventory, workload: WorkloadSettings | CheckinSettings, phase: PlanPhase
) -> None:
    """They answer for the plan under way, refuse other plans and older terms, and execute the next; nothing is lost."""
    rng = random.Random(4)
    present = next_overlay(inventory.bootstrap, rng)
    plan = plan_to(present, inventory.bootstrap, phase, term=5)
    start = starting_point(inventory, [plan])
    virtual = VirtualOverlay(inventory, workload, VirtualSettings(start=start))
    virtual.run_for(2_000)
    everybody = len(inventory.brokers)
    for command, outcome in ((CommandPhase.ACTIVATE, Outcome.DRAINED), (CommandPhase.RETIRE, Outcome.RETIRED)):
        assert ask(virtual, plan, start.digest, command) == [outcome] * everybody
    for digest, term, refusal in (("another", 9, Refusal.PLAN), (start.digest, 4, Refusal.TERM)):
        assert set(ask(virtual, plan, digest, CommandPhase.ACTIVATE, term)) == {Outcome.REFUSED}
        assert virtual.results.results[-1].refusal is refusal
    target = next_overlay(present, rng)
    following = plan_to(target, present)
    digest = plan_digest(following, target)
    for command, outcome in (
        (CommandPhase.PREPARE, Outcome.PREPARED),
        (CommandPhase.ACTIVATE, Outcome.DRAINED),
        (CommandPhase.RETIRE, Outcome.RETIRED),
    ):
        assert ask(virtual, following, digest, command) == [outcome] * everybody
    account = virtual.finish()
    assert account.is_clean
    assert account.delivered > 100
    assert {broker.core.epoch for broker in virtual.overlay.brokers.values()} == {2}


def test_the_term_is_known_from_the_start() -> None:
    """Even before the first command, a leader with a lower term than the plan's is refused."""
    present = next_overlay(TREE.bootstrap, random.Random(4))
    plan = plan_to(present, TREE.bootstrap, PlanPhase.DRAINING, term=5)
    start = starting_point(TREE, [plan])
    virtual = VirtualOverlay(TREE, None, VirtualSettings(start=start))
    assert set(ask(virtual, plan, start.digest, CommandPhase.ACTIVATE, term=4)) == {Outcome.REFUSED}
    assert ask(virtual, plan, start.digest, CommandPhase.ACTIVATE, term=5)[0] is Outcome.DRAINED


def test_clients_connect_where_plans_have_put_them() -> None:
    """This holds for a publisher's and, on a ring, a user's first connection; other clients are drawn."""
    for inventory, workload in ((TREE, STOCKS), (RING, replace(CHECKINS, user_count=40))):
        usual = VirtualOverlay(inventory, workload)
        usual.run_for(2_000)
        homes = {client.client: client.home for client in usual.clients.connected.values()}
        moved = next(name for name in sorted(homes) if inventory is TREE or name.startswith("u"))
        home = next(broker for broker in inventory.brokers if broker != homes[moved])
        present = next_overlay(inventory.bootstrap, random.Random(5))
        plan = plan_to(present, inventory.bootstrap, moves=(ClientMove(moved, homes[moved], home),))
        again = VirtualOverlay(inventory, workload, VirtualSettings(start=starting_point(inventory, [plan])))
        again.run_for(2_000)
        assert {client.client: client.home for client in again.clients.connected.values()}[moved] == home
