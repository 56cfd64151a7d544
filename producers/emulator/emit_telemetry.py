"""Telemetry: one batch per broker and flush that has news or is due, and the register of clients.

In: an emulated overlay and its environment's clock. Out: TelemetryBatch and Client records for the sinks. The meaning
of the counters belongs to :mod:`schemas.telemetry`, the delivery of batches to the sink.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from typing import cast

import simpy

from regraft.producers.brokers.match_content import Filter, Predicate
from regraft.producers.emulator.due_heartbeats import HeartbeatRule, has_news
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.emulated_broker import EmulatedBroker, QueueCounters
from regraft.producers.emulator.emulator_ports import ClientSink, OverlayListener, ResultSink, TelemetrySink
from regraft.schemas.client import Client, PredicateRecord, Role
from regraft.schemas.command import CommandResult
from regraft.schemas.split_batch import split_batch
from regraft.schemas.telemetry import LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.units import SECOND_MS

CANDIDATES_MAX = 40  # Peers that a broker probes in turn: the nearest according to the inventory.
RTT_JITTER_SHARE = 0.02  # Standard deviation of a probe, relative to the link's delay: real probes always differ.


class TelemetryEmitter:
    """Flushes every broker each ``flush_ms``; the first flushes are spread over that time to even out the load.

    ``probes_per_s`` bounds the probes, by all brokers together, of links that are not in the overlay;
    ``candidates_max`` bounds how many peers a broker probes in turn besides its neighbours. ``heartbeats``: which
    flushes without news still send, None for all.
    """

    def __init__(
        self,
        overlay: EmulatedOverlay,
        sink: TelemetrySink,
        flush_ms: float,
        rng: random.Random,
        probes_per_s: float = 0.0,
        candidates_max: int = CANDIDATES_MAX,
        heartbeats: HeartbeatRule | None = None,
    ) -> None:
        self._overlay = overlay
        self._sink = sink
        self._flush_ms = flush_ms
        self._rng = rng
        self._candidates_max = candidates_max
        self._heartbeats = heartbeats
        count = len(overlay.inventory.brokers)
        self._probes_per_flush = probes_per_s * flush_ms / SECOND_MS / count
        self._probes_due = {broker: place / count for place, broker in enumerate(overlay.inventory.brokers)}
        self._speaking: set[str] = set()  # A broker that is not yet a member sends nothing.
        self._candidates: dict[str, deque[str]] = {}

    def start(self) -> None:
        """Begin to flush all brokers on the overlay's clock."""
        spread_ms = self._flush_ms / len(self._overlay.brokers)
        for position, name in enumerate(self._overlay.brokers, start=1):
            self.begin(name, position * spread_ms)

    def begin(self, broker: str, after_ms: float) -> None:
        """Begin to flush one broker after this time."""
        self._speaking.add(broker)
        self._overlay.env.timeout(after_ms, broker).callbacks.append(self._on_time)

    def flush_all(self) -> None:
        """Flush every live broker now, including counts of unfinished spans; for the end of a run."""
        for broker in self._overlay.brokers.values():
            if broker.name in self._speaking and not (broker.is_dead or broker.is_suspended):
                self.flush(broker, is_last=True)

    def flush(self, broker: EmulatedBroker, *, is_last: bool = False) -> None:
        """Send everything that one broker has to report; without news only if its heartbeat is due, or ``is_last``."""
        now_ms = self._overlay.env.now
        neighbours = broker.core.live_neighbours
        deliveries = broker.cells.pop_changed(math.inf if is_last else now_ms)
        self._probe(broker, neighbours)
        is_wanted = is_last or has_news(deliveries, broker.changes, broker.core.phase)
        if not broker.heartbeats.take_turn(self._heartbeats, now_ms, has_news=is_wanted):
            return
        changes, probes = tuple(broker.changes), tuple(broker.probes)
        broker.changes.clear()
        broker.probes.clear()
        batch = TelemetryBatch(
            broker=broker.name,
            boot=broker.core.boot_ms,
            sequence=broker.batches_sent,
            time_ms=int(now_ms),
            epoch=broker.core.epoch,
            deliveries=deliveries,
            queues=self._samples(broker, neighbours),
            probes=probes,
            clients=changes,
        )
        for part in split_batch(batch):
            broker.batches_sent += 1
            self._sink.send_batch(part)

    def _on_time(self, event: simpy.Event) -> None:
        broker = self._overlay.brokers[cast(str, event.value)]
        if not (broker.is_dead or broker.is_suspended):
            self.flush(broker)
        self._overlay.env.timeout(self._flush_ms, broker.name).callbacks.append(self._on_time)

    def _probe(self, broker: EmulatedBroker, neighbours: tuple[str, ...]) -> None:
        """Measure links at each flush, so that a batch left out costs no measurement."""
        broker.probes += (
            LinkProbe(peer, self._rtt_ms(broker.name, peer))
            for peer in (*neighbours, *self._candidates_now(broker.name, neighbours))
            if not self._overlay.link_faults.is_cut(broker.name, peer)
        )

    def _candidates_now(self, broker: str, neighbours: tuple[str, ...]) -> list[str]:
        """Return the peers that a broker probes now besides its neighbours: in turn, at the permitted rate."""
        due = self._probes_due.get(broker, 0.0) + self._probes_per_flush
        self._probes_due[broker] = due % 1
        others, brokers = self._candidates_of(broker), self._overlay.brokers
        candidates: list[str] = []
        for _ in range(min(int(due), len(others))):
            peer = others[0]
            others.rotate(-1)
            if peer not in neighbours and peer in brokers and not brokers[peer].is_dead:
                candidates.append(peer)
        return candidates

    def _candidates_of(self, broker: str) -> deque[str]:
        if broker not in self._candidates:
            inventory = self._overlay.inventory
            costs = inventory.link_cost[inventory.index[broker]]
            nearest = [inventory.brokers[place] for place in costs.argsort(kind="stable").tolist()]
            self._candidates[broker] = deque([peer for peer in nearest if peer != broker][: self._candidates_max])
        return self._candidates[broker]

    def _samples(self, broker: EmulatedBroker, neighbours: tuple[str, ...]) -> tuple[QueueSample, ...]:
        samples = [queue_sample("", broker.counters, len(broker.queue))]
        for peer in neighbours:
            end = self._overlay.link_ends.get((broker.name, peer))
            if end is None:  # Nothing has been sent yet.
                samples.append(QueueSample(peer, 0, 0, 0, 0, 0, 0, 0, 0))
            else:
                samples.append(queue_sample(peer, end.counters, len(end.in_transit)))
        return tuple(samples)

    def _rtt_ms(self, broker: str, peer: str) -> float:
        delay_ms = self._overlay.link_delay_ms
        jitter = max(self._rng.gauss(1.0, RTT_JITTER_SHARE), 0.5)
        return (delay_ms(broker, peer) + delay_ms(peer, broker)) * jitter


def queue_sample(peer: str, counters: QueueCounters, queue_length: int) -> QueueSample:
    """Return what telemetry says of the queue to a peer, or with "" of a broker's own."""
    sample = QueueSample(
        peer=peer,
        messages_in=counters.messages_in,
        messages_out=counters.messages_out,
        notifications_out=counters.notifications_out,
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
        busy_ms=int(counters.busy_ms),
        queue_length=queue_length,
        queue_length_max=max(counters.queue_length_max, queue_length),
        wait_ms=int(counters.wait_ms),
    )
    counters.queue_length_max = queue_length
    return sample


class ReportForwarder(OverlayListener):
    """Listens to an overlay and passes clients and results on to their sinks."""

    def __init__(
        self,
        overlay: EmulatedOverlay,
        results: ResultSink,
        clients: ClientSink,
        publisher_rate_per_s: Callable[[str], float],
    ) -> None:
        self._overlay = overlay
        self._results = results
        self._clients = clients
        self._publisher_rate_per_s = publisher_rate_per_s

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """Put the client into the register, or remove it if it has left."""
        if filter_ is None:
            self._clients.remove_client(client)
            return
        predicates = tuple(predicate_record(predicate) for predicate in filter_)
        rate_per_s = self._publisher_rate_per_s(client) if role is Role.PUBLISHER else 0.0
        self._clients.put_client(Client(client, role, home, predicates, rate_per_s, int(self._overlay.env.now)))

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """Put a user and its topics into the register, or remove it if it has left."""
        if topics is None:
            self._clients.remove_client(user)
            return
        self._clients.put_client(Client(user, Role.SUBSCRIBER, home, (), 0.0, int(self._overlay.env.now), topics))

    def on_result(self, result: CommandResult) -> None:
        """Pass the answer on."""
        self._results.send_result(result)


def predicate_record(predicate: Predicate) -> PredicateRecord:
    """Return a predicate in the form that the register of clients uses."""
    value = predicate.value
    text = value if isinstance(value, str) else None
    number = None if value is None or isinstance(value, str) else float(value)
    return PredicateRecord(predicate.attribute, predicate.operator.value, number, text)
