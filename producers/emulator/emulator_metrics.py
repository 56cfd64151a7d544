"""Prometheus metrics of the emulator; names start with ``regraft_emulator_``. Durations are in ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from regraft.infra.process.stage_metrics import StageMetrics
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.schemas.command import CommandResult

LEDGER_COUNTS = [each.name for each in fields(LedgerSnapshot) if each.type == "int"]
# Gauges with the name and meaning of a number in the status document.
STATUS_GAUGES = {
    "behind_ms": (
        "Lag of the model's clock behind the clock of the run; above 0, the machine is too slow for the traffic."
    ),
    "held_deliveries": "Deliveries that brokers hold back for a transition.",
    "held_deliveries_max": "The most deliveries that one broker has held back at once.",
    "queue_overflows": "Notifications that found a broker's queue full since the start.",
    "publisher_wait_ms_max": "The longest time that a publisher could not publish because it moved.",
    "notifications_kept": "Notifications buffered by publishers between homes or after an outage.",
    "sample_share": "Share of the notifications that brokers report in full.",
    "brokers_dead": "Emulated brokers that are dead.",
    "brokers_suspended": "Emulated brokers that are suspended.",
    "clients_waiting": "Clients waiting for a new home because theirs died.",
    "clients_reconnected": "Clients that have reconnected since the start after their home died.",
    "notification_hops": "Notifications handled by brokers since the start.",
    "control_hops": "Control messages handled by brokers since the start.",
}


class EmulatorMetrics(OverlayListener):
    """The Prometheus metrics of the emulator."""

    def __init__(self) -> None:
        self.stage = StageMetrics("emulator")
        self.registry = self.stage.registry
        gauge = self.stage.gauge
        self._ledger = gauge("ledger", "Pairs of notification and subscription since the start, by outcome.", ["what"])
        self._lost = gauge("lost", "Deliveries that were lost since the start, by reason.", ["reason"])
        self._status = {name: gauge(name, text) for name, text in STATUS_GAUGES.items()}
        self._brokers = gauge(
            "brokers", "Brokers by the epoch they are in; more than one during a transition.", ["epoch"]
        )
        self.records_waiting = gauge(
            "records_waiting", "Records that Kafka has not acknowledged yet, by producer.", ["producer"]
        )
        self.records_lost = gauge(
            "records_lost", "Records that Kafka did not accept since the start, by producer.", ["producer"]
        )
        self.commands = self.stage.counter("commands", "Commands received, by phase.", ["phase"])
        self.results = self.stage.counter("results", "Results sent, by outcome.", ["outcome"])

    def show(self, document: Mapping[str, Any]) -> None:
        """Set the gauges to the values of a status document."""
        for name in LEDGER_COUNTS:
            self._ledger.labels(name).set(document["ledger"][name])
        for name, each in self._status.items():
            each.set(document[name])
        for reason, count in document["ledger"]["lost_by_reason"].items():
            self._lost.labels(reason).set(count)
        # Remove the series of finished epochs, or their number would grow with the plans.
        self._brokers.clear()
        for epoch, count in document["brokers_by_epoch"].items():
            self._brokers.labels(epoch).set(count)

    def on_result(self, result: CommandResult) -> None:
        """Count an answer, as a listener of the overlay."""
        self.results.labels(result.outcome).inc()
