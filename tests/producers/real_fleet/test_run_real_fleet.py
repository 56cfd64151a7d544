"""A fleet of real brokers with nodes and clients, without Kafka: every message is accounted for."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.supervise import Supervisor
from regraft.producers.emulator.outage_schedule import Outage, OutageKind, outage_of
from regraft.producers.emulator_settings import AMQP, MQTT, NATS, EmulatorSettings
from regraft.producers.real_fleet.broker_kinds import broker_kind
from regraft.producers.real_fleet.client_ledger import AgentDeath, Death
from regraft.producers.real_fleet.place_fleet import place_fleet, place_scot_fleet
from regraft.producers.run_real_fleet import RealFleet
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.plan import Plan
from regraft.schemas.telemetry import TelemetryBatch
from tests.producers.nodes.connector_kit import needs
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack

BROKERS = 5
DELIVERED_MIN = 300
MISSED_MIN = 4
STEP_S_MAX = 0.1
AFTERWARDS_S = 2.0  # Messages also cross after the last outage.


@dataclass
class Written:
    written: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    waiting_count: int = 0


@dataclass
class MemoryPorts:
    """In place of Kafka; no commands arrive."""

    telemetry: Written = field(default_factory=Written)
    answers: Written = field(default_factory=Written)
    batches: list[TelemetryBatch] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)

    def connect(self, wait_s_max: float) -> None:
        pass

    def withdraw_clients(self, brokers: object, wait_s_max: float) -> int:
        return 0

    def read_plans(self, wait_s_max: float, undecided_s_max: float) -> list[Plan]:
        return []

    def send_batch(self, batch: TelemetryBatch) -> None:
        self.batches.append(batch)

    def send_result(self, result: CommandResult) -> None:
        pass

    def put_client(self, client: Client) -> None:
        self.clients[client.client] = client

    def remove_client(self, client: str) -> None:
        self.clients.pop(client, None)

    def poll(self) -> list[Command]:
        return []

    def requested_share(self) -> None:
        return None

    def flush(self, wait_s_max: float) -> int:
        return 0


class PacedOutages:
    """Outages whose clock waits until they matter, and takes small steps: a busy machine takes longer.

    A death begins once ``MISSED_MIN`` who have received something would miss what comes next, and ends once somebody
    has left without what it cost.
    """

    def __init__(self, fleet: RealFleet, planned: list[Outage]) -> None:
        self._fleet, self._act = fleet, fleet._outages.act
        self._ledger = fleet._clients.ledger
        deaths = [outage for outage in planned if not outage.kind.is_of_link]
        self._gates = [(death.at_s, partial(self._is_missed, death)) for death in deaths]
        self._gates += [(death.at_s + death.for_s, self._has_cost) for death in deaths]
        self._clock_s = self._elapsed_s = 0.0

    async def act(self, elapsed_s: float) -> None:
        """Do what is due; all that is due before comes earlier."""
        next_s = self._clock_s + min(elapsed_s - self._elapsed_s, STEP_S_MAX)
        self._elapsed_s = elapsed_s
        if all(is_open() for at_s, is_open in self._gates if self._clock_s < at_s <= next_s):
            self._clock_s = next_s
        await self._act(self._clock_s)

    def _is_missed(self, outage: Outage) -> bool:
        (broker,), now_ms, confirmed = outage.targets, time.time() * 1_000, self._ledger._confirmed_ms
        agent = AgentDeath(broker, partial(self._fleet._clients.is_beside, broker), now_ms)
        death = Death(broker, now_ms, self._fleet._nodes._overlays.separations_by(broker))

        def misses(each: Any) -> bool:
            if outage.kind is OutageKind.AGENT:
                return agent.excuses(each.publisher, each.name, now_ms)
            return death.excuses(self._ledger._publishers[each.publisher].home, each.home, now_ms)

        owed = [
            each
            for each in self._ledger._open.values()
            if each.first is not None and each.owed_until is None and (each.publisher, each.home) in confirmed
        ]
        return sum(map(misses, owed)) >= MISSED_MIN

    def _has_cost(self) -> bool:
        return self._ledger.snapshot(time.time() * 1_000).excused > 0


def stop_when_seen(status_file: Path, notes: int, stop: threading.Event) -> None:
    """Stop once enough messages have crossed and all outages are over: a busy machine takes longer."""

    def is_seen() -> bool:
        status = json.loads(status_file.read_text()) if status_file.is_file() else {"ledger": {"delivered": 0}}
        return status["ledger"]["delivered"] > DELIVERED_MIN and len(status["outage_notes"]) == notes

    try:
        wait_until(is_seen)
        time.sleep(AFTERWARDS_S)
    finally:
        stop.set()


@pytest.mark.parametrize(
    ("brokers", "outages", "expected"),
    [
        (NATS, [], []),
        (NATS, ["death b1 at 3 for 4"], ["b1: died", "b1: restarted, empty"]),
        (
            NATS,
            ["cut {0} at 4 for 3", "slow {1} at 5 for 3 by 20"],
            ["{0}: link is cut", "{1}: link is slow", "{0}: link is restored", "{1}: link has recovered"],
        ),
        (
            MQTT,
            ["death b1 at 3 for 4"],
            ["b1: died", "b1: restarted, empty"],
        ),
        (NATS, ["agent b1 at 3 for 2"], ["b1: agent is dead", "b1: agent has restarted"]),
        (MQTT, ["agent b1 at 3 for 2"], ["b1: agent is dead", "b1: agent has restarted"]),
        (AMQP, [], []),
    ],
    ids=["quiet", "death", "links", "mqtt", "agent", "mqtt agent", "amqp"],
)
def test_all_messages_of_a_fleet_are_accounted_for(
    brokers: str, outages: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions come and go and clients roam, only what a death excuses is lost, and nothing is ever repeated."""
    needs(brokers)
    monkeypatch.setattr("regraft.producers.real_fleet.mobile_clients.DAYS_PER_S", 2.0)
    kind = broker_kind(brokers)
    brokers_count = 4 if brokers == AMQP else BROKERS  # All at one RabbitMQ, which takes seconds to start.
    inventory = place_fleet(brokers_count, 3, random.Random(3))
    inventory.save(tmp_path / "inventory.json")
    workload = WorkloadSettings(
        publisher_count=4, notifications_per_s=20.0, interested_broker_count=2, lifetime_s_mean=3.0
    )
    status_file = tmp_path / "emulator.json"
    settings = EmulatorSettings("none:1", tmp_path / "inventory.json", status_file, brokers=brokers, workload=workload)
    ports, stop = MemoryPorts(), threading.Event()
    with Supervisor() as supervisor:
        servers = {name: kind.start(supervisor, name, tmp_path / "brokers") for name in inventory.brokers}
        links = [",".join(link) for link in inventory.bootstrap.links]
        planned = [outage_of(text.format(*links)) for text in outages]
        fleet = RealFleet(settings, inventory, ports, kind, servers, planned)
        monkeypatch.setattr(fleet._outages, "act", PacedOutages(fleet, planned).act)
        threading.Thread(target=stop_when_seen, args=(status_file, len(expected), stop), daemon=True).start()
        account = asyncio.run(fleet.run(stop))
    assert account.final
    assert account.is_clean, account
    assert account.delivered > DELIVERED_MIN
    deaths = sum(text.startswith("death") for text in outages)
    assert bool(account.excused) == any(text.startswith(("death", "agent")) for text in outages)
    status = json.loads(status_file.read_text())
    assert bool(status.get("checkins_moving")) == (brokers != AMQP)  # Those of RabbitMQ have no agents.
    notes = [text for _, text in status["outage_notes"]]
    assert notes == [text.format(*(link.replace(",", ", ") for link in links)) for text in expected]
    assert {batch.broker for batch in ports.batches} == set(inventory.brokers)
    incarnations = {(batch.broker, batch.boot) for batch in ports.batches}
    assert len(incarnations) == brokers_count + deaths
    assert any(cell.published for batch in ports.batches for cell in batch.deliveries)


def test_a_burst_on_a_structured_cyclic_overlay_takes_detours(tmp_path: Path) -> None:
    """Its links are slower than a burst: notifications are diverted, and come once; only detours change their order."""
    needs(NATS)
    kind = broker_kind(NATS)
    inventory = place_scot_fleet(8, 4, random.Random(3))
    inventory.save(tmp_path / "inventory.json")
    workload = WorkloadSettings(
        publisher_count=3, notifications_per_s=10.0, interested_broker_count=4, lifetime_s_mean=30.0,
        burst_every_s=3.0, burst_s=2.0, burst_factor=10.0, burst_count=1,
    )  # fmt: skip
    status_file = tmp_path / "emulator.json"
    settings = EmulatorSettings(
        "none:1", tmp_path / "inventory.json", status_file, brokers=NATS, workload=workload, link_bytes_per_ms=20.0
    )
    ports, stop = MemoryPorts(), threading.Event()

    def stop_when_diverted() -> None:
        try:
            wait_until(lambda: status_file.is_file() and json.loads(status_file.read_text())["drain_s_dynamic"])
            time.sleep(AFTERWARDS_S)
        finally:
            stop.set()

    with Supervisor() as supervisor:
        servers = {name: kind.start(supervisor, name, tmp_path / "brokers") for name in inventory.brokers}
        fleet = RealFleet(settings, inventory, ports, kind, servers, [])
        threading.Thread(target=stop_when_diverted, daemon=True).start()
        account = asyncio.run(fleet.run(stop))
    status = json.loads(status_file.read_text())
    assert account.final
    assert account.is_clean, account
    assert "checkins_moving" not in status  # No plan can move these clients.
    assert status["clusters_diverted"] > 0
    assert status["congested_link_windows"] > 0
    assert len(status["bursts_begun_ms"]) == 1
