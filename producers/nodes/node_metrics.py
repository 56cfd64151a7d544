"""Prometheus metrics and health of a node; names start with ``regraft_node_``. Durations are in ms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stage_metrics import StageMetrics
from regraft.producers.nodes.node_waiting import NodeWaiting

SILENCE_S_MAX = 10.0
GAUGES = {
    "epoch": "The epoch that this broker stamps.",
    "is_in_overlay": "1 if this broker is in the overlay of every live epoch, else 0.",
    "is_connector_open": "1 if the real broker is connected and has answered lately, else 0.",
    "is_reading": "1 if all commands that Kafka has arrive, else 0.",
    "interests": "Subjects that clients of the real broker want.",
    "publishers": "Publishers of this incarnation.",
    "held_deliveries": "Deliveries that are held back for a transition.",
    "receipts_waiting": "Messages of durable ingress that are not safe yet.",
    "records_waiting": "Records that Kafka has not acknowledged yet.",
    "records_lost": "Records that Kafka did not accept since the start.",
}


class NodeMetrics:
    """The Prometheus metrics of a node."""

    def __init__(self) -> None:
        self.stage = StageMetrics("node")
        self.registry = self.stage.registry
        gauge = self.stage.gauge
        self._plain = {name: gauge(name, text) for name, text in GAUGES.items()}
        self._messages = gauge(
            "messages", "Messages since the start: published here, delivered here, or dropped, by reason.", ["what"]
        )
        self._links = gauge(
            "links", "Events of links since the start: connected, cut, new incarnations, calls.", ["what"]
        )
        self._kept = gauge("link_kept", "Frames that a peer has not acknowledged.", ["peer"])
        self._rtt = gauge("link_rtt_ms", "Measured round trip to a peer.", ["peer"])
        self.commands = self.stage.counter("commands", "Commands received, by phase.", ["phase"])

    def show(self, document: Mapping[str, Any]) -> None:
        """Set the gauges from a status document."""
        for name, each in self._plain.items():
            each.set(document[name])
        for name, group in (("messages", self._messages), ("links", self._links)):
            for what, count in document[name].items():
                group.labels(what).set(count)
        self._kept.clear()
        self._rtt.clear()
        for peer, link in document["peers"].items():
            self._kept.labels(peer).set(link["kept"])
            if link["rtt_ms"] is not None:
                self._rtt.labels(peer).set(link["rtt_ms"])


class NodeHealth:
    """A node's health, for /health and /ready; read from other threads.

    A broker that is away, or a plan that has yet to admit this node, is not an error: a restart would not help. But the
    node is not ready then.
    """

    def __init__(self, waiting: NodeWaiting) -> None:
        self.waiting = waiting
        self.pulse = Pulse("the node", SILENCE_S_MAX)
        self.is_running = False
        self.is_connector_open = self.is_in_overlay = False
        self.is_reading = True  # Until a question to Kafka shows otherwise.
        self.connector_error = ""

    def __call__(self) -> Health:
        """Return the node's health now."""
        error = self.pulse.error() if self.is_running else None
        states = (
            (
                self.is_connector_open,
                "the broker beside the node answers",
                "the broker beside the node does not answer",
            ),
            (self.is_in_overlay, "the node is in the overlay", "the node is not in the overlay"),
            (self.is_reading, "what Kafka has for the node arrives", "what Kafka has for the node does not arrive"),
            (not self.connector_error, "nothing is wrong around the broker", self.connector_error),
        )
        notes = [note for is_proved, _, note in states if not is_proved]
        return Health(
            self.is_running and not notes,
            () if error is None else (error,),
            (*notes, *([f"waiting for {self.waiting.what}"] if self.waiting.what else [])),
            tuple(what for is_proved, what, _ in states if is_proved),
        )
