"""The entire model on the virtual clock: nothing is lost, repeated or out of order, even while links are swapped."""

import random

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.brokers.tree_change import TreeChange
from regraft.producers.emulator.emulate_overlay import OverlayTiming, inventory_timing
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import Command, CommandPhase
from tests.producers.drive_plan import drive_plan, random_swaps

BRISK = WorkloadSettings(publisher_count=12, interested_broker_count=5, lifetime_s_mean=4.0)


def small_inventory(seed: int, broker_count: int = 12) -> Inventory:
    """Twelve PlanetLab hosts in a random tree."""
    return place_overlay(broker_count, 5, random.Random(seed))


@pytest.mark.parametrize("seed", range(2))
def test_steady_overlay_with_churn_and_regime_change_is_clean(seed: int) -> None:
    """Subscriptions come and go, interests shift, and every notification arrives exactly once and in order."""
    shifting = WorkloadSettings(publisher_count=20, lifetime_s_mean=5.0, regime_change_s=10.0)
    virtual = VirtualOverlay(small_inventory(seed, 20), shifting, VirtualSettings(seed=seed))
    virtual.run_for(20_000)
    account = virtual.finish()
    assert account.final
    assert account.is_clean
    assert account.expected == account.delivered > 5_000
    assert virtual.workload is not None
    assert virtual.workload.regime_changed_ms == virtual.settings.start_ms + 10_000
    for core in virtual.cores.values():
        assert not core.state.held


@pytest.mark.parametrize("seed", range(3))
def test_link_swaps_under_traffic_are_clean(seed: int) -> None:
    """Plans of several swaps, with commands that overtake each other, lose, repeat and reorder nothing."""
    rng = random.Random(seed)
    inventory = small_inventory(seed)
    settings = VirtualSettings(seed=seed, command_delay_ms=lambda _: rng.uniform(0, 3_000))
    virtual = VirtualOverlay(inventory, BRISK, settings)
    virtual.run_for(3_000)
    configuration = inventory.bootstrap
    for _ in range(4):
        configuration = random_swaps(configuration, rng.randint(1, 4), 5, rng)
        drive_plan(virtual, configuration)
    account = virtual.finish()
    assert account.final
    assert account.is_clean
    assert account.delivered > 1_000
    assert {core.epoch for core in virtual.cores.values()} == {4}
    assert all(sorted(core.state.tables) == [4] for core in virtual.cores.values())


@pytest.mark.parametrize("seed", range(2))
def test_random_service_times_and_delays_only_delay(seed: int) -> None:
    """Slow brokers and jitter on links delay deliveries and change nothing else."""
    rng = random.Random(seed)
    inventory = small_inventory(seed, 8)
    timing = OverlayTiming(lambda *_: rng.expovariate(0.5), lambda *_: rng.expovariate(0.02))
    virtual = VirtualOverlay(inventory, BRISK, VirtualSettings(seed=seed, timing=timing))
    virtual.run_for(4_000)
    drive_plan(virtual, random_swaps(inventory.bootstrap, 3, 5, rng))
    account = virtual.finish()
    assert account.final
    assert account.is_clean


def test_equal_seeds_give_equal_telemetry() -> None:
    """A run is reproducible: same batches, same account."""
    runs = []
    for _ in range(2):
        virtual = VirtualOverlay(small_inventory(7), BRISK, VirtualSettings(seed=7))
        virtual.run_for(5_000)
        runs.append((virtual.finish(), list(virtual.telemetry.batches)))
    assert runs[0] == runs[1]


def test_an_unfinished_transition_leaves_the_account_open() -> None:
    """While deliveries are held back the account is not final."""
    inventory = small_inventory(1)
    virtual = DeafOverlay(inventory, BRISK, VirtualSettings(seed=1))
    virtual.deaf = inventory.bootstrap.links[0][0]
    virtual.run_for(3_000)
    target = random_swaps(inventory.bootstrap, 3, 5, random.Random(1))
    with pytest.raises(AssertionError, match="stuck before drained"):
        drive_plan(virtual, target, wait_ms_max=5_000)
    account = virtual.finish(drain_ms_max=2_000)
    assert not account.final
    assert account.outstanding > 0
    assert account.lost == 0


class DeafOverlay(VirtualOverlay):
    """An overlay in which one broker never gets the command to activate."""

    deaf = ""

    def send_command(self, command: Command) -> None:
        if (command.broker, command.phase) != (self.deaf, CommandPhase.ACTIVATE):
            super().send_command(command)


def test_without_holding_back_the_ledger_reports_disorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is independent of the protocol: without the hold it detects disorder at once."""
    monkeypatch.setattr(TreeChange, "must_hold", lambda change, delivery: False)
    out_of_order = 0
    for seed in range(6):
        rng = random.Random(seed)
        inventory = small_inventory(seed)
        settings = VirtualSettings(seed=seed, command_delay_ms=lambda _, rng=rng: rng.uniform(0, 3_000))  # type: ignore[misc]
        virtual = VirtualOverlay(inventory, BRISK, settings)
        virtual.run_for(3_000)
        drive_plan(virtual, random_swaps(inventory.bootstrap, 4, 5, rng))
        account = virtual.finish()
        assert account.lost == account.repeated == account.unexpected == 0
        out_of_order += account.out_of_order
        if out_of_order:
            break
    assert out_of_order > 0


def test_queue_overflow_is_lost_with_its_reason() -> None:
    """Notifications that find a full queue are lost and counted separately from unexplained losses."""
    inventory = small_inventory(2, 6)
    fast = inventory_timing(inventory, 0.05)
    timing = OverlayTiming(lambda b, m: 40.0 * fast.service_ms(b, m), fast.link_delay_ms)
    busy = WorkloadSettings(publisher_count=20, notifications_per_s=10.0, interested_broker_count=4)
    virtual = VirtualOverlay(inventory, busy, VirtualSettings(seed=2, timing=timing, queue_length_max=20))
    virtual.run_for(10_000)
    account = virtual.finish()
    assert account.final
    assert account.lost_by_reason.keys() == {"queue_overflow"}
    assert account.lost == account.expected - account.delivered > 0
    assert account.repeated == account.out_of_order == account.unexpected == 0
    assert virtual.overlay.overflow_count > 0
