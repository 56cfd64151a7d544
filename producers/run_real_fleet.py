"""Run real brokers with a node next to each, and their clients, on this machine, in place of the emulator.

In: EmulatorSettings and a stop event. Out: telemetry, results and the register of clients in Kafka, a status file each
second with the same fields as the emulator's, and the final account of the clients' ledger. Servers are processes;
nodes share this one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import simpy
import structlog

from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.link_congestion import WINDOW_MS
from regraft.overlay.read_inventory import load_inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.kafka_ports import KafkaPorts
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator.outage_schedule import Outage, outage_of, with_names
from regraft.producers.emulator.read_commands import KafkaUnreachableError
from regraft.producers.emulator.starting_point import starting_point
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.nodes.connectors.connector import Connector, ConnectorError
from regraft.producers.nodes.node_kinds import kind_error
from regraft.producers.real_fleet.broker_kinds import BrokerKind, ServerAddress, broker_kind
from regraft.producers.real_fleet.fleet_clients import FleetClients
from regraft.producers.real_fleet.fleet_nodes import FleetNodes
from regraft.producers.real_fleet.fleet_outages import FleetOutages
from regraft.producers.real_fleet.mobile_clients import MobileClients
from regraft.producers.workloads.burst_detours import BurstDetours
from regraft.producers.workloads.checkin_walks import CheckinWalks
from regraft.producers.workloads.stock_settings import Detours
from regraft.producers.workloads.stock_workload import StockWorkload
from regraft.schemas.status_file import StatusFile
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

CONNECT_S_MAX = 60.0
UNDECIDED_S_MAX = 60.0
FLUSH_S_MAX = 30.0
STATUS_S = 1.0
WORKLOAD_S = 0.005  # Interval at which the workload checks its clock.
LEAVE_S = 0.1
BEHIND_MS_MAX = 200.0  # Beyond it publishers wait: this process cannot keep up, and brokers do not slow them down.
MOBILE_EVERY = 2  # Beside one broker in this many, clients with agents are mobile.
SETTLE_S = 2.0  # Before clients connect, so that all links are up.


class FleetError(StackError):
    """The fleet cannot start or continue; the message gives the reason and what to do."""


def run_real_fleet(settings: EmulatorSettings, stop: threading.Event) -> LedgerSnapshot:
    """Run until ``stop`` is set, let everything in transit arrive, and return the final account.

    Raises FleetError if something is missing, Kafka is not available or a node's protocol fails, ServiceFailedError if
    a server cannot run, InventoryError and ValueError as the emulator does.
    """
    kind = broker_kind(settings.brokers)
    if errors := settings.errors():
        raise ValueError("; ".join(errors))
    inventory = load_inventory(settings.inventory_path)
    if refused := kind_error(inventory):
        raise FleetError(f"{settings.inventory_path} has {refused}")
    outages = [with_names(outage_of(text), inventory) for text in settings.outages]
    with ExitStack() as held:
        ports = KafkaPorts(
            settings.kafka,
            inventory.broker_topics(settings.namespace),
            outage_s_max=settings.kafka_outage_s_max,
            buffer_records_max=settings.kafka_buffer_records_max,
        )
        held.callback(ports.close)
        supervisor = held.enter_context(Supervisor())
        directory = settings.inventory_path.parent / kind.name
        servers = {broker: kind.start(supervisor, broker, directory) for broker in inventory.brokers}
        try:
            return asyncio.run(RealFleet(settings, inventory, ports, kind, servers, outages).run(stop))
        except (ConnectorError, KafkaUnreachableError) as error:
            raise FleetError(str(error)) from error


class RealFleet:
    """One run, on one event loop."""

    def __init__(
        self,
        settings: EmulatorSettings,
        inventory: Inventory,
        ports: KafkaPorts,
        kind: BrokerKind,
        servers: Mapping[str, ServerAddress],
        outages: list[Outage],
    ) -> None:
        self._settings, self._inventory, self._ports = settings, inventory, ports
        self._kind, self._servers = kind, servers
        self._status_file = None if settings.status_file is None else StatusFile(settings.status_file)
        self._phase, self._behind_ms = "running", 0.0
        ports.connect(CONNECT_S_MAX)
        ports.withdraw_clients(frozenset(inventory.brokers), CONNECT_S_MAX)
        start = starting_point(inventory, ports.read_plans(CONNECT_S_MAX, UNDECIDED_S_MAX))
        self._started_ms = _now_ms()
        self._env = simpy.Environment(initial_time=self._started_ms)
        urls = {broker: address.url for broker, address in servers.items()}
        walks = self._make_walks()
        self._clients = FleetClients(kind, urls, self._env, start, _now_ms, self._delay_ms, walks.homes)
        self._mobile: MobileClients | None = None
        if walks.homes and self._clients.agents is not None:
            self._mobile = MobileClients(walks, self._clients.agents, self._delay_ms)
        self._workload = StockWorkload(self._clients, settings.workload, random.Random(settings.seed))
        confirmed, sampling = self._clients.note_confirmed, settings.sampling
        bytes_per_ms = settings.link_bytes_per_ms
        self._nodes = FleetNodes(
            inventory, start, ports, self._connector_of, _now_ms, sampling, confirmed, settings.heartbeats,
            self._clients.note_detour, None if bytes_per_ms is None else bytes_per_ms * SECOND_MS,
        )  # fmt: skip
        self._bursts: BurstDetours | None = None
        if isinstance(inventory.bootstrap, ScotConfiguration):
            self._bursts = BurstDetours(Detours(settings.detours), self._nodes.set_detours, _now_ms)
            self._workload.on_burst = self._bursts.note
            self._clients.ledger.watch = self._bursts.meter.note
        rng = random.Random(f"outages {settings.seed}")
        self._outages = FleetOutages(self._nodes, self._clients, outages, settings.chaos, rng, _now_ms)

    def _connector_of(self, broker: str) -> Connector:
        return self._kind.connector_of(self._servers[broker], broker)

    def _delay_ms(self, one: str, other: str) -> float:
        index = self._inventory.index
        return float(self._inventory.delay_ms[index[one], index[other]])

    def _make_walks(self) -> CheckinWalks:
        """Return who is mobile: nobody where no plan can move clients."""
        brokers, rng = self._inventory.brokers, random.Random(f"walks {self._settings.seed}")
        is_movable = isinstance(self._inventory.bootstrap, TreeConfiguration)
        return CheckinWalks(brokers, brokers[::MOBILE_EVERY] if is_movable else (), self._delay_ms, rng)

    async def run(self, stop: threading.Event) -> LedgerSnapshot:
        """Run from start to final account."""
        try:
            await self._nodes.begin()
            await self._clients.connect()
            self._write_status()
            await self._run_until(lambda: _now_ms() >= self._started_ms + SETTLE_S * SECOND_MS)
            self._started_ms = _now_ms()
            self._env.run(until=self._started_ms)
            self._workload.start()
            await self._run_until(stop.is_set)
            self._workload.stop()
            self._phase = "draining"
            await self._outages.end_all()
            self._clients.ledger.leave_all(_now_ms())
            until_ms = _now_ms() + self._settings.drain_s_max * SECOND_MS
            await self._run_until(lambda: not len(self._clients.ledger) or _now_ms() > until_ms)
            if len(self._clients.ledger):
                log.error("notifications_outstanding", waited_s=self._settings.drain_s_max)
                self._clients.ledger.give_up(_now_ms())
            self._phase = "ended"
            self._nodes.flush(is_last=True)
        finally:
            await self._nodes.close()
            await self._clients.close()
        unsent = self._ports.flush(FLUSH_S_MAX)
        self._write_status(records_unsent=unsent)
        return self._clients.ledger.snapshot(_now_ms())

    async def _run_until(self, is_over: Callable[[], bool]) -> None:
        """Run until a condition holds, doing each kind of work when it is due."""
        works: list[tuple[float, Callable[[], None]]] = [
            (WORKLOAD_S, self._advance),
            (self._settings.command_poll_ms / SECOND_MS, self._obey),
            (self._settings.flush_ms / SECOND_MS, self._nodes.flush),
            (LEAVE_S, self._clients.end_leaving),
            (LEAVE_S, self._clients.follow_agents),
            (LEAVE_S, self._follow_walks),
            (LEAVE_S, self._outages.watch),
            (STATUS_S, self._sample),
            (STATUS_S, self._write_status),
        ]
        if self._bursts is not None:  # Otherwise there are no detours.
            works.append((WINDOW_MS / SECOND_MS, self._nodes.measure_links))
        due_s = [time.monotonic()] * len(works)
        while not is_over():
            if self._nodes.failure is not None:
                raise FleetError(f"a node failed: {self._nodes.failure}") from self._nodes.failure
            now_s = time.monotonic()
            for place, (every_s, work) in enumerate(works):
                if now_s >= due_s[place]:
                    work()
                    due_s[place] = max(due_s[place] + every_s, now_s)
            if self._phase == "running":
                await self._outages.act((_now_ms() - self._started_ms) / SECOND_MS)
            await asyncio.sleep(WORKLOAD_S)

    def _advance(self) -> None:
        now_ms = _now_ms()
        self._behind_ms = now_ms - self._env.now
        # With a bandwidth, what is late may wait for that, not for the machine.
        is_late = self._settings.link_bytes_per_ms is None and self._clients.ledger.is_late(now_ms)
        self._clients.must_wait = self._behind_ms > BEHIND_MS_MAX or is_late
        if now_ms > self._env.now:
            self._env.run(until=now_ms)

    def _obey(self) -> None:
        for command in self._ports.poll():
            self._nodes.obey(command)

    def _sample(self) -> None:
        asked = self._ports.requested_share()
        self._nodes.sample(self._settings.sampling.at_most(asked.power if asked else 0))

    def _follow_walks(self) -> None:
        if self._mobile is not None and self._phase == "running":
            self._mobile.follow((_now_ms() - self._started_ms) / SECOND_MS)

    def _burst_status(self) -> Mapping[str, object]:
        return {} if self._bursts is None else {**self._nodes.congestion(), **self._bursts.figures()}

    # --- status ------------------------------------------------------------------------------------------------------

    def _write_status(self, **counts: int) -> None:
        if self._status_file is None:
            return
        now_ms, writers = _now_ms(), (self._ports.telemetry, self._ports.answers)
        self._status_file.write(
            {
                "phase": self._phase,
                "time_ms": int(now_ms),
                "started_ms": int(self._started_ms),
                "behind_ms": round(self._behind_ms, 1),
                "regime_changed_ms": self._workload.regime_changed_ms,
                "ledger": dataclasses.asdict(self._clients.ledger.snapshot(now_ms)),
                **self._nodes.status(),
                **self._clients.status(),
                **self._outages.status(),
                **self._burst_status(),
                **({} if self._mobile is None else self._mobile.status()),
                "telemetry_batches_written": self._ports.telemetry.written.total(),
                "records_waiting": sum(writer.waiting_count for writer in writers),
                "records_lost": sum(writer.lost.total() for writer in writers),
                **counts,
            }
        )


def _now_ms() -> float:
    return time.time() * SECOND_MS
