"""Random telemetry for the streaming tests: restarted brokers, windows that span several batches, loss, repeats.

Half of the batches are packed, as they go to Kafka; the others are as senders before version 3 wrote them.
"""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.streaming.merge_parts import WindowParts

BEGIN_MS = 1_700_000_000_000
WINDOW_MS = 5_000
BROKERS = ("b-10", "b-2", "b-é")
PUBLISHERS = ("p1", "p2", "p10")

ROW_LISTS = {
    "deliveries": pa.list_(
        pa.struct(
            {
                "publisher": pa.string(),
                "block": pa.int64(),
                "second": pa.int64(),
                "mask": pa.int64(),
                "local_deliveries": pa.int64(),
                "bytes": pa.int64(),
                "published": pa.int64(),
            }
        )
    ),
    "queues": pa.list_(
        pa.struct(
            {
                "peer": pa.string(),
                **dict.fromkeys(
                    ("messages_in", "messages_out", "notifications_out", "bytes_in", "bytes_out", "busy_ms"), pa.int64()
                ),
                "queue_length": pa.int32(),
                "queue_length_max": pa.int32(),
                "wait_ms": pa.int64(),
            }
        )
    ),
    "probes": pa.list_(pa.struct({"peer": pa.string(), "rtt_ms": pa.float64()})),
    "clients": pa.list_(pa.struct({"client": pa.string(), "sequence": pa.int64(), "change": pa.string()})),
}
PART = pa.struct(
    {
        "broker": pa.string(),
        **dict.fromkeys(("boot", "sequence", "time_ms", "epoch", "own", "taken", "delay_ms", "is_off"), pa.int64()),
        **ROW_LISTS,
    }
)


def random_telemetry(rng: random.Random, flushes: int = 12, flush_ms: int = 1_250) -> list[TelemetryBatch]:
    """Return what all brokers sent, in order of time; a broker may restart with its counters at 0."""
    batches: list[TelemetryBatch] = []
    for broker in BROKERS:
        boot, sequence, counters = BEGIN_MS, 0, [0] * 7
        for flush in range(flushes):
            time_ms = BEGIN_MS + flush * flush_ms + rng.randrange(200)
            if rng.random() < 0.08:
                boot, sequence, counters = time_ms, 0, [0] * 7
            counters = [counter + rng.choice((0, 0, 3, 250)) for counter in counters]
            batches.append(_batch(rng, broker, boot, sequence, time_ms, counters))
            sequence += 1
    return sorted(batches, key=lambda batch: batch.time_ms)


def lossy(rng: random.Random, batches: Sequence[TelemetryBatch]) -> list[TelemetryBatch]:
    """Return the batches with some lost, some repeated, and all shuffled."""
    arrived = [batch for batch in batches if rng.random() > 0.1]
    arrived += [batch for batch in arrived if rng.random() < 0.3]
    rng.shuffle(arrived)
    return arrived


def taken_times_ms(rng: random.Random, batches: Sequence[TelemetryBatch]) -> list[int]:
    """Return when Kafka received each batch: mostly soon, sometimes with a clock far ahead or far behind."""
    clocks_ms = {broker: rng.choice((0, 0, 3_000, -3_000, 59 * 60_000)) for broker in BROKERS}
    return [batch.time_ms - clocks_ms[batch.broker] + rng.choice((0, 20, 300, -400)) for batch in batches]


def as_dicts(batches: Sequence[TelemetryBatch]) -> list[dict[str, Any]]:
    """Return the batches as fastavro reads them."""
    dicts: list[dict[str, Any]] = msgspec.to_builtins(list(batches), builtin_types=(bytes,))
    return dicts


def unpacked(batch: TelemetryBatch) -> TelemetryBatch:
    """Return the batch with all cells unpacked."""
    return msgspec.structs.replace(batch, deliveries=batch.cells(), seconds=())


def parts_of(batches: Sequence[TelemetryBatch]) -> WindowParts:
    """Return the parts that Spark makes of the batches, in order of arrival and with repeats."""
    windows, parts = [], []
    for batch in as_dicts([unpacked(batch) for batch in batches]):
        del batch["seconds"]
        own_ms = batch["time_ms"] - batch["time_ms"] % WINDOW_MS
        for start_ms in {own_ms} | {_window_of(delivery) for delivery in batch["deliveries"]}:
            part = batch | {"own": int(start_ms == own_ms), "taken": 0, "delay_ms": 0, "is_off": 0}
            part["deliveries"] = [row for row in batch["deliveries"] if _window_of(row) == start_ms]
            part |= {name: batch[name] if start_ms == own_ms else None for name in ("queues", "probes", "clients")}
            windows.append(start_ms)
            parts.append(part)
    return WindowParts(np.array(windows, dtype=np.int64), pa.array(parts, type=PART))


def _window_of(delivery: dict[str, Any]) -> int:
    time_ms: int = delivery["second"] * 1_000
    return time_ms - time_ms % WINDOW_MS


def _batch(
    rng: random.Random, broker: str, boot: int, sequence: int, time_ms: int, counters: list[int]
) -> TelemetryBatch:
    deliveries = tuple(
        Delivery(
            rng.choice(PUBLISHERS),
            rng.choice((0, 1, 2**40)),
            time_ms // 1_000 - rng.randrange(3),
            rng.choice((0, 1, 1 << rng.randrange(63), -(2**63), -1)),
            rng.randrange(5),
            rng.randrange(1_000),
            rng.choice((0, 0, 1, 1 << rng.randrange(63), -(2**63), -1)),
        )
        for _ in range(rng.randrange(6))
    )
    queues = tuple(
        QueueSample(peer, *counters[:6], rng.randrange(4), rng.randrange(9), wait_ms=counters[6])
        for peer in rng.sample(("", *BROKERS), rng.randrange(3))
    )
    probes = tuple(LinkProbe(rng.choice(BROKERS), rng.random() * 100) for _ in range(rng.randrange(3)))
    clients = tuple(
        ClientChange(rng.choice(("c1", "c2")), rng.randrange(3), "subscribed") for _ in range(rng.randrange(3))
    )
    batch = TelemetryBatch(broker, boot, sequence, time_ms, rng.randrange(2), deliveries, queues, probes, clients)
    return batch.packed() if rng.random() < 0.5 else batch
