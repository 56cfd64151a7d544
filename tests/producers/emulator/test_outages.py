"""Brokers that die, hang and return, links that are slow or cut, and the resulting account of the ledger."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from regraft.controller.execute.transition import SendCommand, Transition, TransitionEffect
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.judge_losses import BROKER_WAS_DEAD, LOST_WITH_BROKER, IncarnationEnd
from regraft.producers.emulator.ledger import UNEXPLAINED
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, Plan, PlanPhase
from tests.producers.ring_overlays import RingRun
from tests.scenarios.run_plan import QUICK
from tests.scenarios.step_by_step import ALL

NAMES = ("a", "b", "c", "d")
HOP_MS = 10.0
PUBLISH_EVERY_MS = 5.0


def line(flush_ms: float | None = None) -> VirtualOverlay:
    """Return a - b - c - d with links of 10 ms; p publishes at a every 5 ms from 1 s to 3 s; s-NAME everywhere."""
    tree = TreeConfiguration.of(0, NAMES, [("a", "b"), ("b", "c"), ("c", "d")])
    cost = HOP_MS * (1.0 - np.eye(4))
    inventory = Inventory(NAMES, np.full(4, 0.1), cost, 3, tree)
    virtual = VirtualOverlay(inventory, settings=VirtualSettings(start_ms=0.0, flush_ms=flush_ms))
    virtual.overlay.advertise("p", "a", ALL)
    for name in NAMES:
        virtual.overlay.subscribe(f"s-{name}", name, ALL)
    virtual.run_until(1_000.0)
    for number in range(400):
        event = virtual.env.timeout(number * PUBLISH_EVERY_MS)
        event.callbacks.append(lambda _: virtual.overlay.publish("p", {"symbol": "A"}, 1))
    return virtual


def repair(
    virtual: VirtualOverlay, target: TreeConfiguration, change: BrokerChange, moves: Iterable[ClientMove] = ()
) -> None:
    """Bring the living brokers to ``target``."""
    present = next(
        core.state.tables[target.epoch - 1].configuration
        for core in virtual.cores.values()
        if core.epoch == target.epoch - 1
    )
    plan = Plan(
        f"plan-{target.epoch}", target.epoch - 1, target.epoch, 0, (), (), (), target.links, 0.0, 0.0,
        PlanPhase.PREPARING, (), moves=tuple(moves), brokers_lost=tuple(sorted(change.lost)),
    )  # fmt: skip
    transition = Transition(target.as_target(plan, present), target, QUICK, change=change)

    def follow(effects: Iterable[TransitionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendCommand):
                virtual.send_command(effect.command)

    virtual.results.results.clear()
    follow(transition.start(int(virtual.now_ms)))
    for _ in range(2_000):
        virtual.run_for(5.0)
        while virtual.results.results:
            follow(transition.on_result(virtual.results.results.popleft(), int(virtual.now_ms)))
        follow(transition.on_tick(int(virtual.now_ms)))
        if transition.plan.phase is PlanPhase.VERIFYING:
            return
    raise AssertionError(f"{transition.plan.phase}, waiting for {transition.waiting_for}")


def test_a_suspended_broker_loses_nothing_and_reports_nothing() -> None:
    """Messages wait in its queue meanwhile; it sends no telemetry."""
    virtual = line(flush_ms=250.0)
    virtual.run_until(1_500.0)
    virtual.overlay.suspend("b")
    virtual.telemetry.batches.clear()
    virtual.run_until(2_500.0)
    assert {batch.broker for batch in virtual.telemetry.batches} == {"a", "c", "d"}
    assert len(virtual.overlay.brokers["b"].queue) > 100
    virtual.overlay.resume("b")
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert account.is_clean
    assert account.delivered == 1_600
    assert account.delivery_ms_max > 900.0


def test_a_broker_resumed_within_a_message_serves_it_once() -> None:
    """The service that was under way at the suspension is not begun twice."""
    virtual = line()
    for number in range(1_000):
        act = virtual.overlay.suspend if number % 2 == 0 else virtual.overlay.resume
        virtual.env.timeout(500.0 + 0.37 * number).callbacks.append(lambda _, act=act: act("b"))  # type: ignore[misc]
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert account.is_clean
    assert account.delivered == 1_600


def test_slow_and_cut_links_lose_nothing() -> None:
    """Messages sent over a cut link arrive in order once it is restored."""
    virtual = line(flush_ms=250.0)
    virtual.run_until(1_500.0)
    virtual.overlay.link_faults.slow("b", "c", 20.0, 500.0)
    virtual.overlay.link_faults.cut("a", "b", 700.0)
    virtual.telemetry.batches.clear()
    virtual.run_until(2_000.0)
    probes = {(batch.broker, probe.peer): probe.rtt_ms for batch in virtual.telemetry.batches for probe in batch.probes}
    assert ("a", "b") not in probes
    assert probes["b", "c"] > 300.0
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert account.is_clean
    assert account.delivered == 1_600
    assert 700.0 < account.delivery_ms_max < 1_000.0


def test_a_subscription_that_ends_behind_a_suspended_broker_may_get_more() -> None:
    """d waits for c before it releases the subscription, for twice the settle time; that is not an error."""
    virtual = line()
    virtual.overlay.advertise("q", "d", ALL)
    virtual.run_until(3_500.0)
    virtual.overlay.suspend("c")
    virtual.overlay.cancel("s-d")
    for number in range(240):
        event = virtual.env.timeout(1.0 + number * 500.0)
        event.callbacks.append(lambda _: virtual.overlay.publish("q", {"symbol": "A"}, 1))
    virtual.run_for(2 * virtual.settings.settle_ms)
    virtual.overlay.resume("c")
    virtual.run_for(virtual.settings.settle_ms + 5_000.0)
    assert "s-d" not in virtual.ledger._lives
    account = virtual.finish()
    assert account.is_clean, account
    assert account.concurrent == 240


def test_a_death_excuses_only_what_was_in_the_broker_or_had_to_cross_it() -> None:
    """c dies at 2 s: s-c and s-d miss what was published later, and what had not left c by then."""
    virtual = line()
    virtual.run_until(2_000.0)
    virtual.overlay.kill("c", notice_ms=100.0)
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert account.is_clean
    assert (account.repeated, account.out_of_order, account.outstanding) == (0, 0, 0)
    in_transit = round(2 * HOP_MS / PUBLISH_EVERY_MS)
    assert (
        account.lost_by_reason[BROKER_WAS_DEAD] == 201
    )  # Only for s-d, as s-c is cancelled; one was published at that moment.
    assert 2 * in_transit - 2 <= account.lost_by_reason[LOST_WITH_BROKER] <= 2 * in_transit + 2
    assert account.lost == account.excused == sum(account.lost_by_reason.values())


def test_a_later_death_does_not_excuse_what_another_broker_dropped() -> None:
    """c drops notifications for d while d is alive; the later death of d excuses only those on their way to it."""
    virtual = line()
    virtual.run_until(1_200.0)
    del virtual.cores["c"].state.tables[0].entries["s-d"]
    virtual.cores["c"].state.tables[0].index.remove("s-d")
    virtual.run_until(2_000.0)
    virtual.overlay.kill("d", notice_ms=100.0)
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert account.lost_by_reason[UNEXPLAINED] == account.lost - account.excused > 150
    assert account.excused < 10


def test_clients_of_a_dead_broker_reconnect_once_a_plan_admits_it_again() -> None:
    """A publisher whose home is dead keeps what it would publish; none of it is lost."""
    virtual = line()
    virtual.run_until(1_500.0)
    virtual.overlay.kill("a", notice_ms=20.0)
    virtual.run_until(1_700.0)
    present = virtual.overlay.inventory.bootstrap
    assert isinstance(present, TreeConfiguration)
    without = present.replaced(1, (), (), change=BrokerChange(lost=frozenset("a")))
    repair(virtual, without, BrokerChange(lost=frozenset("a")))
    assert virtual.overlay.publishers.waiting_count == 1
    virtual.overlay.restart_broker("a")
    install(virtual, "a", without)
    joined = without.replaced(2, (), [("a", "d")], change=BrokerChange(joined=frozenset("a")))
    repair(virtual, joined, BrokerChange(joined=frozenset("a")))
    virtual.run_until(6_000.0)
    account = virtual.finish()
    assert virtual.overlay.publishers.waiting_count == virtual.overlay.subscribers.waiting_count == 0
    assert account.is_clean, account
    assert account.published == 400
    assert account.delivered + account.lost == account.expected > 1_200
    assert account.lost < 20
    assert virtual.overlay.publishers.reconnected_count == virtual.overlay.subscribers.reconnected_count == 1


def test_returning_publishers_do_not_flood_brokers_with_what_they_kept() -> None:
    """Ten of them publish 20 a second each; no queue exceeds 500, and the slowest broker serves 330 a second."""
    tree = TreeConfiguration.of(0, NAMES, [("a", "b"), ("b", "c"), ("c", "d")])
    inventory = Inventory(NAMES, np.array([1.0, 2.0, 3.0, 1.0]), HOP_MS * (1.0 - np.eye(4)), 3, tree)
    virtual = VirtualOverlay(inventory, settings=VirtualSettings(start_ms=0.0, flush_ms=None, queue_length_max=500))
    publishers = [f"p{number}" for number in range(10)]
    for name in publishers:
        virtual.overlay.advertise(name, "a", ALL)
    virtual.overlay.subscribe("s", "d", ALL)
    virtual.run_until(1_000.0)
    for number in range(20 * 300):
        event = virtual.env.timeout(number * 50.0)
        event.callbacks.append(lambda _: [virtual.overlay.publish(name, {"symbol": "A"}, 1) for name in publishers])
    virtual.run_until(2_000.0)
    virtual.overlay.kill("a", notice_ms=20.0)
    virtual.run_until(3_000.0)
    without = tree.replaced(1, (), (), change=BrokerChange(lost=frozenset("a")))
    repair(virtual, without, BrokerChange(lost=frozenset("a")))
    virtual.run_until(62_000.0)
    virtual.overlay.restart_broker("a")
    install(virtual, "a", without)
    joined = without.replaced(2, (), [("a", "b")], change=BrokerChange(joined=frozenset("a")))
    repair(virtual, joined, BrokerChange(joined=frozenset("a")))
    assert virtual.overlay.publishers.kept_count > 11_000
    virtual.run_until(302_000.0)
    assert virtual.overlay.publishers.kept_count == virtual.overlay.overflow_count == 0
    account = virtual.finish()
    assert account.is_clean, account
    assert account.published == len(publishers) * 20 * 300


def test_a_publisher_whose_stay_is_ended_continues_in_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It misses the command to leave for c, and the wait for it ends; what it publishes then is not lost."""
    monkeypatch.setattr("regraft.producers.brokers.epoch_change.CLIENT_WAIT_MS_MAX", 500.0)
    virtual = line()
    virtual.run_until(1_500.0)
    monkeypatch.setattr(virtual.overlay.publishers, "leave", lambda *_: None)
    present = virtual.overlay.inventory.bootstrap
    assert isinstance(present, TreeConfiguration)
    repair(virtual, present.at_epoch(1), BrokerChange(), [ClientMove("p", "a", "c")])
    virtual.run_until(4_000.0)
    account = virtual.finish()
    assert virtual.overlay.publishers.reconnected_count == 1
    assert (account.published, account.lost) == (400, 0)
    assert account.is_clean, account


def test_a_publisher_refused_by_a_broker_outside_connects_once_a_plan_admits_that() -> None:
    """It may publish from then on."""
    virtual = line()
    virtual.overlay.cancel("s-d")
    virtual.run_until(1_500.0)
    present = virtual.overlay.inventory.bootstrap
    assert isinstance(present, TreeConfiguration)
    without = present.replaced(1, [("c", "d")], (), change=BrokerChange(left=frozenset("d")))
    repair(virtual, without, BrokerChange(left=frozenset("d")))
    virtual.overlay.advertise("q", "d", ALL)
    virtual.run_for(100.0)
    assert virtual.overlay.publishers.waiting_count == 1
    joined = without.replaced(2, (), [("a", "d")], change=BrokerChange(joined=frozenset("d")))
    repair(virtual, joined, BrokerChange(joined=frozenset("d")))
    virtual.run_for(100.0)
    virtual.overlay.publish("q", {"symbol": "A"}, 1)
    account = virtual.finish()
    assert virtual.overlay.publishers.waiting_count == 0
    assert (account.published, account.lost) == (401, 0)
    assert account.is_clean, account


def test_a_publisher_of_a_dead_broker_continues_where_the_repair_puts_it() -> None:
    """It connects in a new stay once the repair is active there."""
    virtual = line()
    virtual.run_until(1_500.0)
    virtual.overlay.kill("a", notice_ms=20.0)
    virtual.run_until(1_700.0)
    present = virtual.overlay.inventory.bootstrap
    assert isinstance(present, TreeConfiguration)
    change = BrokerChange(lost=frozenset("a"))
    repair(virtual, present.replaced(1, (), (), {"p": "d"}, change), change, [ClientMove("p", "a", "d")])
    virtual.run_until(6_000.0)
    account = virtual.finish()
    assert account.is_clean, account
    assert account.published == 400
    assert virtual.overlay.publishers.home_of("p") == "d"


def test_a_publisher_sent_to_a_living_broker_that_counts_as_dead_waits_for_a_home() -> None:
    """Its home does not know yet; the next one, alive and linked, gets no command to accept it any more."""
    virtual = line()
    virtual.run_until(1_500.0)
    digest = virtual.overlay.inventory.bootstrap.at_epoch(1).digest
    for name in NAMES:
        moves = (ClientMove("p", "a", "d"),)
        virtual.send_command(Command("plan-1", CommandPhase.PREPARE, name, 0, 1, digest=digest, moves=moves))
    virtual.run_for(200.0)
    virtual.overlay.suspend("d")
    for name, lost in (("b", ("d",)), ("c", ("d",)), ("a", ())):
        virtual.send_command(Command("plan-1", CommandPhase.ACTIVATE, name, 0, 1, digest=digest, lost_brokers=lost))
        virtual.run_for(100.0)
    publishers = virtual.overlay.publishers
    assert (publishers.home_of("p"), publishers.waiting_count, publishers.is_any_moving) == ("d", 1, False)
    assert virtual.cores["d"].live_neighbours


def test_brokers_that_one_plan_loses_and_lets_join_take_part_again() -> None:
    """All look new, as after an emulation was restarted: their clients wait for them until they take part."""
    virtual = line()
    virtual.run_until(1_500.0)
    digest = virtual.overlay.inventory.bootstrap.at_epoch(1).digest
    judge = virtual.overlay.judge
    for phase in (CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.PREPARE):  # The last one is a repetition.
        links = tuple(virtual.overlay.inventory.bootstrap.links)
        all_of_it = {"lost_brokers": tuple(NAMES), "brokers_joined": tuple(NAMES), "links_added": links}
        given = all_of_it if phase is CommandPhase.PREPARE else {}
        for name in NAMES:
            command = Command("plan-1", phase, name, 0, 1, digest=digest, **given)  # type: ignore[arg-type]
            for lost in judge.note_command(command):
                judge.end_incarnation(lost, IncarnationEnd(1_500.0, set(), is_alive=True))
    assert [name for name in NAMES if not judge.participates(name, 1)] == []
    assert [name for name in NAMES if judge.participates(name, 0)] == []


def test_a_repair_restores_subscriptions_without_any_client() -> None:
    """b dies in the middle: what is published after the repair reaches both sides."""
    virtual = line()
    virtual.run_until(1_500.0)
    virtual.overlay.kill("b", notice_ms=20.0)
    virtual.run_until(1_700.0)
    present = virtual.overlay.inventory.bootstrap
    assert isinstance(present, TreeConfiguration)
    change = BrokerChange(lost=frozenset("b"))
    repair(virtual, present.replaced(1, (), [("a", "c")], change=change), change)
    lost_until_now = virtual.ledger.snapshot().delivered
    virtual.run_until(6_000.0)
    account = virtual.finish()
    assert account.is_clean, account
    assert account.delivered > lost_until_now + 3 * 150


@pytest.mark.parametrize("seed", range(4))
def test_users_of_a_ring_wait_for_their_home_and_nothing_unexcused_is_lost(seed: int) -> None:
    """Whatever crosses the dead broker, up to the rendezvous or down from it, is excused; all else is delivered."""
    run = RingRun(12, 8, 40, seed)
    run.live(6_000.0, every_ms=4.0)
    run.virtual.run_for(2_000.0)
    dead = run.rng.choice(run.ring.brokers)
    run.overlay.kill(dead, notice_ms=20.0)
    run.virtual.run_for(5_000.0)
    account = run.virtual.finish()
    assert account.is_clean, account
    assert 0 < account.lost < account.expected / 2


def install(virtual: VirtualOverlay, broker: str, present: TreeConfiguration) -> None:
    """Let a returned broker hold the epoch in force from outside the overlay."""
    digest = virtual.cores["b"].state.fence.digest_of(present.epoch)
    virtual.send_command(
        Command(
            f"plan-{present.epoch}", CommandPhase.INSTALL, broker, present.epoch, present.epoch,
            links_added=present.links, digest=digest, brokers_joined=present.brokers, term=1,
        )
    )  # fmt: skip
    virtual.run_for(50.0)
    assert {one.outcome for one in virtual.results.results if one.broker == broker} == {Outcome.INSTALLED}
