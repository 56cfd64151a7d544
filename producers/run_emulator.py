"""Run the emulated overlay on the wall clock, connected to Kafka; the emulator's entry point.

In: EmulatorSettings and a stop event. Out: telemetry, results and the register of clients in Kafka, a status file each
second, and the final account of the ledger. The model belongs to :mod:`producers.emulator.emulate_overlay`.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import structlog
from simpy.rt import RealtimeEnvironment
from structlog.contextvars import bind_contextvars, unbind_contextvars

from regraft.infra.process.serve_metrics import RunningHealth, serve_metrics
from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.emulated_kinds import EMULATED_KINDS, workload_of
from regraft.producers.emulator.delivery_cells import CellRule
from regraft.producers.emulator.emit_telemetry import ReportForwarder, TelemetryEmitter
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay, inventory_timing
from regraft.producers.emulator.emulator_metrics import EmulatorMetrics
from regraft.producers.emulator.emulator_ports import (
    ClientSink,
    CommandSource,
    MembershipPort,
    OverlayListener,
    ResultSink,
    TelemetrySink,
)
from regraft.producers.emulator.kafka_ports import KafkaPorts
from regraft.producers.emulator.ledger import Ledger, LedgerSnapshot
from regraft.producers.emulator.newcomers import newcomer_of, with_newcomers
from regraft.producers.emulator.outage_schedule import outage_of, with_names
from regraft.producers.emulator.play_newcomers import NewcomerPlayer
from regraft.producers.emulator.play_outages import OutagePlayer
from regraft.producers.emulator.starting_point import StartingPoint, starting_point
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.status_file import StatusFile
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

CELLS_KEPT_S = 120  # Age, by publish time, after which a cell is not sent again; far above any delivery time.
CONNECT_S_MAX = 60.0
UNDECIDED_S_MAX = 60.0  # Wait for a plan that is being prepared; three times its controller's limit.
STEP_MS = 100.0  # Wall time between two checks of the stop event.
FLUSH_S_MAX = 30.0
STATUS_MS = 1_000.0  # In wall time.
SILENCE_S_MAX = 30.0  # The model checks in every 100 ms unless it is hopelessly behind.
OVER = (Outcome.RETIRED, Outcome.ABORTED)


class TransitionLog(OverlayListener):
    """Logs brokers' commands and answers, with the plan and its epoch on every line in between.

    Follows one transition at a time, the one commanded last; a listener of the overlay. One line each when a transition
    begins and ends for the brokers, and one for each refusal; meanwhile the log context of this thread holds ``plan``
    and ``epoch``. One line for each command would be thousands.
    """

    def __init__(self, broker_count: int) -> None:
        self._broker_count = broker_count
        self._plan = ""
        self._over: set[str] = set()

    def on_command(self, command: Command) -> None:
        """Note a command before its broker obeys it."""
        if command.plan == self._plan or command.phase is not CommandPhase.PREPARE:
            return
        self._plan = command.plan
        self._over.clear()
        bind_contextvars(plan=command.plan, epoch=command.epoch_to)
        log.info("transition_started_at_brokers", moves=len(command.moves), links=len(command.links_added))

    def on_result(self, result: CommandResult) -> None:
        """Note an answer; log it if it is a refusal or the last one of the transition."""
        if result.outcome is Outcome.REFUSED:
            log.warning(
                "command_refused",
                broker=result.broker,
                phase=result.phase,
                reason=result.reason,
                plan=result.plan,
                epoch=result.epoch_to,
            )
        if result.plan != self._plan or result.outcome not in OVER:
            return
        self._over.add(result.broker)
        if len(self._over) == self._broker_count:
            log.info("transition_ended_at_brokers", outcome=result.outcome)
            unbind_contextvars("plan", "epoch")
            self._plan = ""
            self._over.clear()


class EmulatorPorts(TelemetrySink, ResultSink, ClientSink, MembershipPort, CommandSource, Protocol):
    """All ports of the emulator in one."""


def run_emulator(settings: EmulatorSettings, stop: threading.Event) -> LedgerSnapshot:
    """Emulate until ``stop`` is set, drain, and return the final account.

    The brokers start from the overlay of the last committed plan.

    Raises ValueError if settings are wrong or the stored plans are about another inventory, InventoryError if that is
    wrong, KafkaUnreachableError if Kafka is not available, UnreadableRecordError if a plan cannot be read,
    MetricsPortError if the metrics port is in use.
    """
    errors = settings.errors()
    if errors:
        raise ValueError("; ".join(errors))
    newcomers = [newcomer_of(text) for text in settings.newcomers]
    inventory = with_newcomers(load_inventory(settings.inventory_path), newcomers)
    metrics, health = EmulatorMetrics(), RunningHealth("the emulator", SILENCE_S_MAX)
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        ports = KafkaPorts(
            settings.kafka,
            _topics(inventory, settings),
            outage_s_max=settings.kafka_outage_s_max,
            buffer_records_max=settings.kafka_buffer_records_max,
        )
        held.callback(ports.close)
        for name, writer in (("telemetry", ports.telemetry), ("answers", ports.answers)):
            metrics.records_waiting.labels(name).set_function(partial(getattr, writer, "waiting_count"))
            metrics.records_lost.labels(name).set_function(writer.lost.total)
        ports.connect(CONNECT_S_MAX)
        withdrawn = ports.withdraw_clients(frozenset(inventory.brokers), CONNECT_S_MAX)
        if withdrawn:
            log.info("earlier_clients_withdrawn", count=withdrawn)
        start = starting_point(inventory, ports.read_plans(CONNECT_S_MAX, UNDECIDED_S_MAX))
        log.info("brokers_started", epoch=start.configuration.epoch, plan=start.plan, homes=len(start.homes))
        emulator = WallClockEmulator(settings, inventory, ports, metrics, health, start)
        emulator.run(stop)
        unsent = ports.flush(FLUSH_S_MAX)
        return emulator.finish({"records_unsent": unsent, **_port_counts(ports)})


def _topics(inventory: Inventory, settings: EmulatorSettings) -> BrokerTopics:
    topics = inventory.broker_topics(settings.namespace)
    if unknown := set(settings.agents) - set(topics.agents):
        raise InventoryError(
            f"emulator.agents names {', '.join(sorted(unknown))}, the agents of {settings.inventory_path} are "
            f"{', '.join(filter(None, topics.agents)) or 'none'}: correct one of them"
        )
    return topics.of_agents(settings.agents) if settings.agents else topics


def _port_counts(ports: EmulatorPorts) -> dict[str, int]:
    """Return the status file's counts of records on their way to Kafka; empty for in-memory ports."""
    if not isinstance(ports, KafkaPorts):
        return {}
    writers = (ports.telemetry, ports.answers)
    return {
        "telemetry_batches_written": ports.telemetry.written.total(),
        "records_waiting": sum(writer.waiting_count for writer in writers),
        "records_lost": sum(writer.lost.total() for writer in writers),
    }


def _emitter(
    overlay: EmulatedOverlay, settings: EmulatorSettings, ports: EmulatorPorts, rng: random.Random
) -> TelemetryEmitter:
    probes_per_s, heartbeats = settings.candidate_probes_per_s, settings.heartbeats
    return TelemetryEmitter(overlay, ports, settings.flush_ms, rng, probes_per_s, heartbeats=heartbeats)


def _outages(overlay: EmulatedOverlay, settings: EmulatorSettings) -> OutagePlayer:
    """Return the outages that the settings ask for; raise ValueError if they name unknown brokers."""
    planned = [with_names(outage_of(text), overlay.inventory) for text in settings.outages]
    rng = random.Random(f"outages {settings.seed}")
    return OutagePlayer(overlay, planned, settings.outage_notice_ms, settings.chaos, rng)


def _client_counts(overlay: EmulatedOverlay) -> dict[str, int]:
    """Return how many clients wait for a home, and how many have reconnected after theirs had died."""
    groups = (overlay.publishers, overlay.subscribers, overlay.users)
    return {
        "clients_waiting": sum(group.waiting_count for group in groups),
        "clients_reconnected": sum(group.reconnected_count for group in groups),
    }


class WallClockEmulator:
    """One run of the model on the run's clock: ``run`` until stopped and quiet, then ``finish``."""

    def __init__(
        self,
        settings: EmulatorSettings,
        inventory: Inventory,
        ports: EmulatorPorts,
        metrics: EmulatorMetrics | None = None,
        health: RunningHealth | None = None,
        start: StartingPoint | None = None,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._metrics = metrics or EmulatorMetrics()
        self._health = health or RunningHealth("the emulator", SILENCE_S_MAX)
        self._speed = settings.clock.speed
        self._step_ms = STEP_MS * self._speed
        self._status_file = None if settings.status_file is None else StatusFile(settings.status_file)
        rng = random.Random(settings.seed)
        self._started_s = time.monotonic()
        self._start_ms = float(settings.clock.now_ms())
        self._env = RealtimeEnvironment(initial_time=self._start_ms, factor=settings.clock.wall_s(1.0), strict=False)
        self._ledger = Ledger(settings.settle_s * SECOND_MS)
        self.overlay = EmulatedOverlay(
            self._env,
            inventory,
            inventory_timing(inventory, settings.control_service_ms, settings.link_bytes_per_ms),
            self._ledger,
            queue_length_max=settings.queue_length_max,
            cells=CellRule(CELLS_KEPT_S, settings.sampling, settings.subscribers_reported_max),
            start=start,
        )
        self._workload = workload_of(self.overlay, settings, rng)
        forwarder = ReportForwarder(self.overlay, ports, ports, self._workload.publisher_rate_per_s)
        self.overlay.listeners.append(forwarder)
        self._transitions = TransitionLog(len(self.overlay.start.configuration.brokers))
        self.overlay.listeners += [self._transitions, self._metrics]
        self._emitter = _emitter(self.overlay, settings, ports, rng)
        self._outages = _outages(self.overlay, settings)
        self._newcomers = NewcomerPlayer(self.overlay, map(newcomer_of, settings.newcomers), self._emitter, ports)
        self._phase = "running"

    def run(self, stop: threading.Event) -> None:
        """Let the clock run until ``stop`` is set, then until the model is quiet or ``drain_s_max`` is over.

        Commands are obeyed to the end: a transition under way holds deliveries back until it is over.
        """
        self._emitter.start()
        self._workload.start()
        self._outages.start()
        self._newcomers.start()
        self._obey_commands(None)
        self._update_status(None)
        self._health.is_running = True
        while not stop.is_set():
            self._advance()
        self._workload.stop()
        self.overlay.publishers.stop()
        self._outages.stop()
        self._phase = "draining"
        deadline_ms = self._env.now + self._settings.drain_s_max * SECOND_MS
        while not self.overlay.is_quiet and self._env.now < deadline_ms:
            self._advance()
        if not self.overlay.is_quiet:
            log.error("ledger_not_final", waited_s=self._settings.drain_s_max)
        self._emitter.flush_all()
        self._health.is_running = False

    def _advance(self) -> None:
        self._env.run(until=self._env.now + self._step_ms)
        self._health.pulse.beat()

    def finish(self, counts: dict[str, int]) -> LedgerSnapshot:
        """Close the account, write the last status and return the account."""
        self._phase = "ended"
        account = self._ledger.close() if self.overlay.is_quiet else self._ledger.snapshot()
        self._write_status(account, counts)
        return account

    def _obey_commands(self, _: object) -> None:
        for command in self._ports.poll():
            self._metrics.commands.labels(command.phase).inc()
            if command.broker in self.overlay.brokers:
                self._transitions.on_command(command)
                self.overlay.obey(command)
            else:
                log.warning("command_for_unknown_broker", broker=command.broker)
        self._env.timeout(self._settings.command_poll_ms).callbacks.append(self._obey_commands)

    def _update_status(self, _: object) -> None:
        self._ledger.settle(self._env.now)
        asked = self._ports.requested_share()
        self.overlay.cells.sampling = self._settings.sampling.at_most(asked.power if asked else 0)
        self._write_status(self._ledger.snapshot(), _port_counts(self._ports))
        self._env.timeout(STATUS_MS * self._speed).callbacks.append(self._update_status)

    def _write_status(self, account: LedgerSnapshot, counts: dict[str, int]) -> None:
        document = self._status(account, counts)
        self._metrics.show(document)
        if self._status_file is not None:
            self._status_file.write(document)

    def _status(self, account: LedgerSnapshot, counts: dict[str, int]) -> dict[str, Any]:
        now_ms = float(self._env.now)
        cores = [broker.core for broker in self.overlay.brokers.values()]
        epochs = Counter(core.epoch for core in cores)
        due_ms = self._start_ms + (time.monotonic() - self._started_s) * SECOND_MS * self._speed
        return {
            "phase": self._phase,
            "time_ms": int(now_ms),
            "started_ms": int(self._start_ms),
            "behind_ms": round(max(due_ms - now_ms, 0.0), 1),
            "regime_changed_ms": self._workload.regime_changed_ms,
            "ledger": dataclasses.asdict(account),
            "brokers_by_epoch": {str(epoch): count for epoch, count in sorted(epochs.items())},
            "held_deliveries": sum(len(core.held_notifications) for core in cores),
            "held_deliveries_max": max(core.held_count_max for core in cores),
            "queue_overflows": self.overlay.overflow_count,
            "publishers_moved": self.overlay.publishers.moves.moved,
            "publisher_wait_ms_max": round(self.overlay.publishers.moves.wait_ms_max, 1),
            "notifications_kept": self.overlay.publishers.kept_count,
            "notifications_waited": self.overlay.publishers.moves.notifications_waited,
            **EMULATED_KINDS[self.overlay.inventory.bootstrap.KIND].counts(self.overlay, self._workload),
            "sample_share": self.overlay.cells.sampling.share,
            "notification_hops": self.overlay.hop_count,
            "control_hops": self.overlay.control_count,
            # Subscriptions sent to a neighbour that already had a wider one from here: what covering would save.
            "covered_forwards": sum(core.covered_forwards for core in cores),
            **_client_counts(self.overlay),
            **self._outages.status(),
            **counts,
        }
