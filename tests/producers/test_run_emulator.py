"""The emulator on the wall clock with ports in memory: same model, a status file, an account at the end."""

import json
import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.overlay.inventory.inventory import InventoryError
from regraft.producers.emulator.emulator_ports import (
    MemoryClients,
    MemoryMembership,
    MemoryResults,
    MemoryTelemetry,
)
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.run_emulator import WallClockEmulator, run_emulator
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandPhase, Outcome
from tests.overlay.small_overlays import inventory_of, line_of

INVENTORY = place_overlay(8, 4, random.Random(1))
WORKLOAD = WorkloadSettings(publisher_count=10, interested_broker_count=3, lifetime_s_mean=2.0)


class MemoryEmulatorPorts(MemoryTelemetry, MemoryResults, MemoryClients, MemoryMembership):
    """All ports in memory; ``waiting`` are the commands to come."""

    def __init__(self) -> None:
        for each in (MemoryTelemetry, MemoryResults, MemoryClients, MemoryMembership):
            each.__init__(self)  # type: ignore[arg-type]
        self.waiting: list[Command] = []

    def requested_share(self) -> None:
        """Return that nothing is requested."""

    def poll(self) -> list[Command]:
        """Return all commands that wait."""
        taken, self.waiting = self.waiting, []
        return taken


class StopAfter(threading.Event):
    """A stop that comes after this many steps of 100 ms of the run, however long a busy machine takes for it."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps_left = steps

    def is_set(self) -> bool:
        self._steps_left -= 1
        return self._steps_left < 0


def settings(tmp_path: Path) -> EmulatorSettings:
    return EmulatorSettings(
        "nowhere:1", tmp_path / "inventory.json", status_file=tmp_path / "run" / "emulator.json", workload=WORKLOAD
    )


def test_wall_clock_run_is_clean_and_drains(tmp_path: Path) -> None:
    """Two seconds of real traffic end with everything delivered, in real epoch time, and commands are answered."""
    ports = MemoryEmulatorPorts()
    emulator = WallClockEmulator(settings(tmp_path), INVENTORY, ports)
    ports.waiting.append(Command("plan", CommandPhase.ABORT, INVENTORY.brokers[0], 0, 1))
    ports.waiting.append(Command("plan", CommandPhase.ABORT, "stranger", 0, 1))
    before_ms = time.time() * 1_000
    emulator.run(StopAfter(20))
    account = emulator.finish({"records_unsent": 0})
    assert account.final
    assert account.is_clean
    assert account.delivered > 10
    assert [result.outcome for result in ports.results] == [Outcome.ABORTED]
    assert all(before_ms - 5_000 < batch.time_ms <= time.time() * 1_000 + 5_000 for batch in ports.batches)
    assert {batch.broker for batch in ports.batches} == set(INVENTORY.brokers)


def test_a_ring_is_run_with_mobile_users(tmp_path: Path) -> None:
    """The kind of overlay determines the workload; users are registered with their topics, feeds with theirs."""
    ports = MemoryEmulatorPorts()
    chosen = replace(
        settings(tmp_path), checkins=CheckinSettings(user_count=60, connect_spread_s=0.5, linger_days=None)
    )
    emulator = WallClockEmulator(chosen, place_ring(8, random.Random(1)), ports)
    emulator.run(StopAfter(25))
    account = emulator.finish({})
    assert account.final
    assert account.is_clean
    assert account.delivered > 10
    status = json.loads((tmp_path / "run" / "emulator.json").read_text())
    assert status["users"] == 60
    assert status["broker_subscription_changes"] == status["broker_subscription_changes_at_first_homes"] > 0
    users = [client for client in ports.connected.values() if client.topics]
    assert len(users) == 60
    feeds = [client for client in ports.connected.values() if client.role is Role.PUBLISHER]
    assert all(client.predicates[0].text == client.client and client.rate_per_s > 0 for client in feeds)


def test_the_status_is_written_atomically(tmp_path: Path) -> None:
    """The last status holds the final account, and no partial file remains next to it."""
    emulator = WallClockEmulator(settings(tmp_path), INVENTORY, MemoryEmulatorPorts())
    stop = threading.Event()
    stop.set()
    emulator.run(stop)
    account = emulator.finish({"records_unsent": 0})
    status = json.loads((tmp_path / "run" / "emulator.json").read_text())
    assert status["phase"] == "ended"
    assert status["ledger"]["published"] == account.published
    assert status["ledger"]["final"] is True
    assert status["brokers_by_epoch"] == {"0": 8}
    assert status["records_unsent"] == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["emulator.json"]


def test_wrong_settings_stop_the_start(tmp_path: Path) -> None:
    """All errors are reported before anything is opened."""
    wrong = EmulatorSettings("", tmp_path / "inventory.json", subscribers_reported_max=-1)
    with pytest.raises(ValueError, match=r"subscribers_reported_max is -1.*bootstrap is empty"):
        run_emulator(wrong, threading.Event())


def test_unknown_agents_stop_the_start(tmp_path: Path) -> None:
    """The message names the agents of the inventory."""
    file = tmp_path / "inventory.json"
    replace(inventory_of(line_of(2), {}), agent_of={"b00": "west"}).save(file)
    with pytest.raises(InventoryError, match=r"emulator\.agents names north, the agents of .* are west"):
        run_emulator(EmulatorSettings("none:1", file, agents=("north",)), threading.Event())
