"""Random traffic as brokers with various samplings report it, and what the controller derives from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from regraft.controller.windows.gather_deliveries import WindowDeliveries, gather_deliveries
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.schemas.sampled_blocks import Sampling
from regraft.schemas.telemetry import BLOCK_SIZE, TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator

WINDOW_S = 5
FLUSH_MS = 250


@dataclass(frozen=True)
class DrawnTraffic:
    """Notifications ordered by time, each with its publisher's broker and the hand-overs at each broker."""

    brokers: tuple[str, ...]
    notifications: tuple[tuple[Notification, dict[str, int]], ...]
    start_ms: int = 0


def draw_traffic(
    rng: random.Random, brokers: int, publishers: int, count_max: int, gain: int = 1, start_ms: int = 0
) -> DrawnTraffic:
    """Return one window's random traffic: publishers have a home, an audience and up to ``count_max`` notifications.

    Sequences begin anywhere; of ``gain`` consecutive numbers one is published here, the others elsewhere.
    """
    names = tuple(f"b{number:03d}" for number in range(brokers))
    found = []
    for number in range(publishers):
        home, first = rng.choice(names), rng.randrange(10_000)
        wanted_by = {broker: rng.random() for broker in rng.sample(names, max(brokers // 8, 1))}
        for place in range(rng.randint(1, count_max)):
            at_ms = start_ms + rng.uniform(0, WINDOW_S * 1_000 - 1)
            one = Notification(f"p{number}", first + place * gain, at_ms, home, 0, {}, 10)
            found.append((one, {broker: rng.randint(1, 3) for broker, p in wanted_by.items() if rng.random() < p}))
    return DrawnTraffic(names, tuple(sorted(found, key=lambda each: (each[0].publish_ms, each[0].publisher))), start_ms)


def batches_of(traffic: DrawnTraffic, sampling_of: Callable[[str], Sampling]) -> list[TelemetryBatch]:
    """Return the batches that all brokers send, each with its own sampling, packed as they go to Kafka."""
    cells = {broker: DeliveryCells(60, sampling_of(broker)) for broker in traffic.brokers}
    found: list[TelemetryBatch] = []

    def flush(number: int, now_ms: float) -> None:
        for broker, own in cells.items():
            taken = own.pop_changed(traffic.start_ms + now_ms)
            time_ms = traffic.start_ms + min(int(now_ms), WINDOW_S * 1_000 - 1)
            found.append(TelemetryBatch(broker, 1, number, time_ms, 0, taken).packed())

    flushes = 0
    for one, handed in traffic.notifications:
        while one.publish_ms - traffic.start_ms >= (flushes + 1) * FLUSH_MS:
            flush(flushes, (flushes + 1) * FLUSH_MS)
            flushes += 1
        cells[one.home].note_published(one)
        for broker, count in handed.items():
            cells[broker].note_delivered(one, count)
    flush(flushes, WINDOW_S * 1_000)
    return found


def window_of_batches(batches: Sequence[TelemetryBatch], brokers: Sequence[str]) -> WindowDeliveries:
    """Return what the controller derives from the batches."""
    aggregator = ReferenceAggregator(WINDOW_S * 1_000, 0)
    for batch in batches:
        aggregator.take(msgspec.to_builtins(batch) | {"seconds": [_plain(second) for second in batch.seconds]})
    (window,) = aggregator.finish()
    return gather_deliveries(window.rows, brokers, WINDOW_S)


def _plain(second: object) -> dict[str, object]:
    return {name: getattr(second, name) for name in second.__struct_fields__}  # type: ignore[attr-defined]


def blocks_of(traffic: DrawnTraffic) -> set[tuple[str, int]]:
    """Return the blocks in which anything was published."""
    return {(one.publisher, one.sequence // BLOCK_SIZE) for one, _ in traffic.notifications}
