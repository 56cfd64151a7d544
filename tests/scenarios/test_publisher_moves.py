"""A publisher changes its home while it publishes: nothing is lost or repeated, all in order, and quickly."""

import random

import numpy as np
import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.emulator.emulate_overlay import OverlayTiming
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.overlay.small_overlays import line_of
from tests.producers.drive_plan import answered, drive_plan, random_swaps, send_phase

ALL: Filter = (Predicate("symbol", Operator.EQ, "A"),)
CONTENT = {"symbol": "A"}
LINK_MS = 20.0
SERVICE_MS = 1.0
PUBLISH_EVERY_MS = 3.0


def line_overlay(count: int) -> VirtualOverlay:
    """Return a line of brokers, a subscriber at each, and a publisher at b00 that publishes for two seconds."""
    tree = line_of(count)
    link_cost = np.full((count, count), LINK_MS)
    np.fill_diagonal(link_cost, 0.0)
    inventory = Inventory(tree.brokers, np.full(count, SERVICE_MS), link_cost, count, tree)
    timing = OverlayTiming(
        lambda _, message: SERVICE_MS if isinstance(message, Notification) else 0.0, lambda *_: LINK_MS
    )
    virtual = VirtualOverlay(inventory, settings=VirtualSettings(timing=timing, flush_ms=None))
    virtual.overlay.advertise("p", "b00", ALL)
    for broker in tree.brokers:
        virtual.overlay.subscribe(f"s-{broker}", broker, ALL)
    virtual.run_for(1.0)
    while not virtual.overlay.is_quiet:
        virtual.run_for(10.0)
    for at in range(round(2_000.0 / PUBLISH_EVERY_MS)):
        publish = virtual.env.timeout(at * PUBLISH_EVERY_MS)
        publish.callbacks.append(lambda _: virtual.overlay.publish("p", CONTENT, 100))
    return virtual


def next_epoch(virtual: VirtualOverlay) -> TreeConfiguration:
    present = virtual.overlay.inventory.bootstrap
    return TreeConfiguration(1, present.brokers, present.links)


def assert_clean(account: LedgerSnapshot, expected_min: int) -> None:
    assert account.final
    assert account.is_clean, account
    assert account.expected >= expected_min


def test_a_move_over_ten_hops_takes_no_longer_than_a_drain_of_the_old_path() -> None:
    """From the first activate until all have drained takes no longer than a marker takes over the ten links."""
    virtual = line_overlay(11)
    virtual.run_for(200.0)
    target, move = next_epoch(virtual), ClientMove("p", "b00", "b10")
    send_phase(virtual, target, CommandPhase.PREPARE, (move,))
    while answered(virtual, target, Outcome.PREPARED) < set(target.brokers):
        virtual.run_for(1.0)
    activated_ms = virtual.now_ms
    send_phase(virtual, target, CommandPhase.ACTIVATE)
    while answered(virtual, target, Outcome.DRAINED) < set(target.brokers):
        virtual.run_for(1.0)
    path_ms = 10 * (LINK_MS + SERVICE_MS)
    assert virtual.now_ms - activated_ms <= path_ms + 1.0  # The drive looks once in a millisecond.
    send_phase(virtual, target, CommandPhase.RETIRE)
    virtual.run_for(2_000.0)
    assert_clean(virtual.finish(), 11 * 600)
    moves = virtual.overlay.publishers.moves
    assert (moves.moved, moves.wait_ms_max) == (1, 0.0)
    assert virtual.overlay.publishers.home_of("p") == "b10"
    assert {core.routing.interests.advertisements["p"].home for core in virtual.cores.values()} == {"b10"}
    registered = virtual.clients.connected["p"]
    assert registered.home == "b10"


def test_notifications_published_between_two_homes_wait_at_the_publisher() -> None:
    """Until the new home has activated, the publisher keeps what it publishes, and then hands it over."""
    virtual = line_overlay(4)
    slow_ms = {"b03": 300.0}
    object.__setattr__(virtual.settings, "command_delay_ms", lambda command: slow_ms.get(command.broker, 0.0))
    drive_plan(virtual, next_epoch(virtual), (ClientMove("p", "b00", "b03"),))
    virtual.run_for(2_000.0)
    assert_clean(virtual.finish(), 4 * 600)
    moves = virtual.overlay.publishers.moves
    assert moves.wait_ms_max == pytest.approx(300.0, abs=2 * SERVICE_MS)
    assert moves.notifications_waited == pytest.approx(100, abs=2)


def test_a_publisher_that_ends_between_two_homes_hands_over_everything_first() -> None:
    """Its last notifications come from the new home, and then no broker knows it."""
    virtual = line_overlay(4)
    object.__setattr__(virtual.settings, "command_delay_ms", lambda command: 300.0 if command.broker == "b03" else 0.0)
    stop = virtual.env.timeout(450.0)
    drive = [False]

    def end(_: object) -> None:
        drive[0] = virtual.overlay.publishers.is_any_moving
        virtual.overlay.publishers.disconnect("p")
        virtual.overlay.publish = lambda *_: None  # type: ignore[method-assign]

    stop.callbacks.append(end)
    drive_plan(virtual, next_epoch(virtual), (ClientMove("p", "b00", "b03"),))
    virtual.run_for(2_000.0)
    assert drive[0], "the publisher was to end between two homes"
    assert_clean(virtual.finish(), 4 * 100)
    assert not any(core.routing.interests.advertisements for core in virtual.cores.values())


def test_a_move_of_a_publisher_that_is_elsewhere_is_refused() -> None:
    """Subscriptions would lead to the wrong place: the publisher's actual home refuses, and nothing changes."""
    virtual = line_overlay(4)
    target = next_epoch(virtual)
    send_phase(virtual, target, CommandPhase.PREPARE, (ClientMove("p", "b01", "b03"),))
    virtual.run_for(10.0)
    refused = [result for result in virtual.results.results if result.outcome is Outcome.REFUSED]
    assert {result.reason for result in refused} == {"publisher p is at b00, not at b01"}
    assert {result.broker for result in refused} == set(target.brokers)


def test_a_move_of_a_publisher_that_has_left_is_harmless() -> None:
    """A plan that moves a publisher that has left meanwhile is executed without it."""
    virtual = line_overlay(4)
    drive_plan(virtual, next_epoch(virtual), (ClientMove("gone", "b01", "b03"),))
    virtual.run_for(2_000.0)
    assert_clean(virtual.finish(), 4 * 600)
    assert virtual.overlay.publishers.moves.moved == 0


@pytest.mark.parametrize("seed", range(12))
def test_publishers_move_with_links_under_real_traffic(seed: int) -> None:
    """Stock quotes, churn, and five transitions that exchange links and move publishers at once: a clean account."""
    rng = random.Random(seed)
    inventory = place_overlay(20, 5, rng)
    workload = WorkloadSettings(publisher_count=12, interested_broker_count=5, lifetime_s_mean=4.0)
    jitter = random.Random(seed + 1)
    virtual = VirtualOverlay(
        inventory,
        workload,
        VirtualSettings(seed=seed, flush_ms=None, command_delay_ms=lambda _: jitter.uniform(1.0, 150.0)),
    )
    virtual.run_for(5_000.0)
    target, moved = inventory.bootstrap, 0
    for _ in range(5):
        target = random_swaps(target, rng.randint(0, 3), inventory.degree_max, rng)
        homes = {
            name: virtual.overlay.publishers.home_of(name)
            for name in next(iter(virtual.cores.values())).routing.interests.advertisements
        }
        chosen = rng.sample(sorted(homes), 4)
        moves = tuple(
            ClientMove(name, str(homes[name]), rng.choice([one for one in inventory.brokers if one != homes[name]]))
            for name in sorted(chosen)
        )
        drive_plan(virtual, target, moves)
        moved += len(moves)
        virtual.run_for(1_000.0)
    assert_clean(virtual.finish(), 1_000)
    assert virtual.overlay.publishers.moves.moved == moved


@pytest.mark.parametrize("dies_after_ms", [0.0, 5.0, 40.0, 130.0])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_only_bounded_losses_occur_if_the_old_home_dies(dies_after_ms: float, is_prepared: bool) -> None:
    """Lost is at most what the dead broker had or what had to cross it; nothing is repeated or out of order.

    Before all are prepared the publisher has no home, as without a plan. Afterwards it continues at the new home, and
    brokers that the dead one does not cut off get everything.
    """
    virtual = line_overlay(7)  # p is at b00 and moves to b03; b00 has no broker behind it.
    virtual.run_for(100.0)
    target, move = next_epoch(virtual), ClientMove("p", "b00", "b03")
    send_phase(virtual, target, CommandPhase.PREPARE, (move,))
    if is_prepared:
        while answered(virtual, target, Outcome.PREPARED) < set(target.brokers):
            virtual.run_for(1.0)
        send_phase(virtual, target, CommandPhase.ACTIVATE)
        if dies_after_ms:
            virtual.run_for(dies_after_ms)
    before = virtual.ledger.snapshot().published
    virtual.overlay.kill("b00", notice_ms=50.0)
    virtual.run_for(2_500.0)
    account = virtual.finish()
    assert account.final
    assert (account.repeated, account.out_of_order, account.unexpected, account.outstanding) == (0, 0, 0, 0)
    assert account.excused == account.lost
    survivors = [core for name, core in virtual.cores.items() if name != "b00"]
    assert not any(core.state.held for core in survivors)
    if is_prepared:
        assert virtual.overlay.publishers.home_of("p") == "b03"
        assert account.published > before + 500
        assert {core.phase for core in survivors} == {"drained"}
        # What was in the home's queue, for every subscriber, and what was on its way to the home's own one.
        in_transit = 3 * (LINK_MS + SERVICE_MS) / PUBLISH_EVERY_MS
        assert account.lost <= 7 + in_transit
    else:
        assert account.published == before


def test_the_others_continue_if_a_broker_in_the_middle_of_the_path_dies() -> None:
    """Each side gets what is published on it; what had to cross the dead broker is lost with that reason."""
    virtual = line_overlay(7)
    virtual.run_for(100.0)
    target, move = next_epoch(virtual), ClientMove("p", "b00", "b06")
    send_phase(virtual, target, CommandPhase.PREPARE, (move,))
    while answered(virtual, target, Outcome.PREPARED) < set(target.brokers):
        virtual.run_for(1.0)
    send_phase(virtual, target, CommandPhase.ACTIVATE)
    virtual.run_for(5.0)
    virtual.overlay.kill("b03", notice_ms=50.0)
    virtual.run_for(2_500.0)
    account = virtual.finish()
    assert account.final
    assert (account.repeated, account.out_of_order, account.unexpected, account.outstanding) == (0, 0, 0, 0)
    assert account.excused == account.lost > 0
    assert virtual.overlay.publishers.home_of("p") == "b06"
    assert {core.phase for name, core in virtual.cores.items() if name != "b03"} == {"drained"}
