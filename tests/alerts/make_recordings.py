"""A recording of one minute with typical trouble: six brokers, one falls silent, one is overloaded, a plan aborts."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.producers.recordings.write_recording import RecordedRun, RecordingLimits, RecordingWriter
from regraft.schemas.codec import encode
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.telemetry import QueueSample, TelemetryBatch
from regraft.schemas.topics import EVENTS, ORDERS, STATE, TELEMETRY, WINDOWS, Topic
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.overlay.small_overlays import inventory_of, line_of

BEGIN_MS = 1_760_000_000_000
WINDOW_MS, GRACE_MS = 2_000, 500
FLUSH_MS = 250
RUNNING_MS = 60_000
SILENT_MS = (12_000, 30_000)  # b03 is silent in between
BUSY_MS = (20_000, 34_000)  # b01 receives twice what it can serve
ABORTED_MS = 25_000
KAFKA_DELAY_MS = 3
EXPECTED = Path(__file__).parent / "expected_alerts.toml"


def telemetry() -> Iterator[TelemetryBatch]:
    """Yield what six brokers send within a minute, ordered by time."""
    counters: Counter[str] = Counter()
    brokers = line_of(6).brokers
    for time_ms in range(0, RUNNING_MS, FLUSH_MS):
        is_busy = BUSY_MS[0] <= time_ms < BUSY_MS[1]
        counters["in"] += 60 if is_busy else 30
        waiting = counters["in"] - counters["out"]
        counters["out"] += min(waiting, 40)
        for broker in brokers:
            if broker == "b03" and SILENT_MS[0] <= time_ms < SILENT_MS[1]:
                continue
            moved_in, moved_out = (counters["in"], counters["out"]) if broker == "b01" else (time_ms, time_ms)
            length = moved_in - moved_out
            sample = QueueSample("", moved_in, moved_out, moved_out, 0, 0, time_ms // 2, length, length)
            number = time_ms // FLUSH_MS
            yield TelemetryBatch(broker, BEGIN_MS, number, BEGIN_MS + time_ms, 0, queues=(sample,))


def make_recording(out: Path, *, with_state: bool, in_maintenance: str = "") -> None:
    """Write the recording, as telemetry or as the state that Spark would compute from it."""
    topics = (*((STATE, WINDOWS) if with_state else (TELEMETRY,)), EVENTS, ORDERS)
    settings = {"streaming": {"window_ms": WINDOW_MS, "grace_ms": GRACE_MS}}
    inventory: Inventory = inventory_of(line_of(6), {})
    run = RecordedRun(
        "regraft", tuple(topic.suffix for topic in topics), settings, inventory.to_json(), "0.1.0", "none"
    )  # fmt: skip
    types = {topic.suffix: RECORD_TYPES[topic] for topic in topics}
    writer = RecordingWriter(out, run, types, RecordingLimits(), BEGIN_MS)
    offsets: Counter[str] = Counter()

    def write(topic: Topic, key: str, record: msgspec.Struct, time_ms: int) -> None:
        writer.write(topic.suffix, time_ms, 0, offsets[topic.suffix], key.encode(), encode(record), time_ms / 1000)
        offsets[topic.suffix] += 1

    if in_maintenance:
        order = Order(in_maintenance, OrderKind.MAINTAIN, "ana", "new disk", BEGIN_MS - 86_400_000)
        write(ORDERS, order.key, order, order.time_ms)
    aggregator = ReferenceAggregator(WINDOW_MS, GRACE_MS)
    has_aborted = False
    for batch in telemetry():
        now_ms = batch.time_ms + KAFKA_DELAY_MS
        if not has_aborted and batch.time_ms >= BEGIN_MS + ABORTED_MS:
            has_aborted = True
            text = "plan-7 aborted: b03 did not answer"
            kind, severity = EventKind.PLAN_ABORTED, Severity.WARNING
            write(EVENTS, "plan-7", AdaptationEvent("plan-7", kind, severity, batch.time_ms, text), now_ms)
        if not with_state:
            write(TELEMETRY, batch.broker, batch, now_ms)
            continue
        aggregator.take(msgspec.to_builtins(batch))
        for window in aggregator.advance():
            for row in window.rows:
                write(STATE, f"{row.window_start_ms}/{row.kind}/{row.entity}", row, now_ms)
            write(WINDOWS, str(window.marker.window_start_ms), window.marker, now_ms)
    writer.close()


if __name__ == "__main__":
    print(json.dumps({"batches": sum(1 for _ in telemetry())}))  # noqa: T201
