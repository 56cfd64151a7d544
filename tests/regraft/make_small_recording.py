"""Make the small stored recording: an overlay, aggregator and controller on the virtual clock, recorded as live.

``python -m tests.regraft.make_small_recording`` writes ``tests/regraft/recordings/small.avro`` and, decided again on
reference rows, its ``small.plans.json``. Repeat this only if a schema, a planner or the emulator changes, and review
the plans before committing them.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.recordings.read_recording import Recording, open_recording
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.producers.recordings.write_recording import RecordedRun, RecordingLimits, RecordingWriter
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.replays.read_inputs import read_inputs, recorded_settings
from regraft.replays.replay_decisions import Decided, decide_again, plans_json
from regraft.schemas.client import Client
from regraft.schemas.codec import decode, encode
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import CLIENTS, PLANS, RESULTS, STATE, TELEMETRY, WINDOWS, Topic
from regraft.settings.fixed_settings import with_recorded
from regraft.settings.run_settings import Settings, load_settings
from regraft.streaming.reference_aggregator import ReferenceAggregator

FOLDER = Path(__file__).parent / "recordings"
SMALL, SMALL_PLANS = FOLDER / "small.avro", FOLDER / "small.plans.json"
START_MS = 1_760_000_001_000
STEP_MS = 100
BLOCK_MS = 10_000  # Fewer and larger blocks than in live recordings: the file stays small.
BROKERS, SEED, RUNNING_S = 10, 4, 70
WORKLOAD = WorkloadSettings(
    publisher_count=16, interested_broker_count=4, notifications_per_s=3.0, lifetime_s_mean=60.0
)
FLAGS: dict[str, dict[str, Any]] = {
    "run": {"seed": SEED},
    "streaming": {"window_ms": 4_000, "grace_ms": 1_000},
    "controller": {
        "decision": {"changes_per_plan_max": 4},
        "horizon_lifetimes": 0.5,
        "dry_run": False,
    },
}
CONSTANTS = {"controller": {"decision": {"cool_down_windows": 1}}}
TOPICS = (TELEMETRY, CLIENTS, WINDOWS, RESULTS, PLANS)


class RecordedLoop:
    """The entire loop on the virtual clock; everything that would go to Kafka goes into a recording."""

    def __init__(self, out: Path, settings: Settings, inventory: Inventory, topics: tuple[Topic, ...] = TOPICS) -> None:
        self._virtual = VirtualOverlay(
            inventory,
            WORKLOAD,
            VirtualSettings(seed=settings.run.seed, start_ms=START_MS, command_delay_ms=lambda _: 5.0),
        )
        streaming = settings.streaming
        self._aggregator = ReferenceAggregator(streaming.window_ms, streaming.grace_ms)
        self._ports = MemoryPorts()
        self._ports.clients.is_known = True
        self._loop = compose_loop(settings.controller, inventory, self._ports.ports)
        self._topics = topics
        chosen = {name: settings.to_record()[name] for name in ("run", "streaming", "controller")}
        run = RecordedRun("regraft", tuple(one.suffix for one in topics), chosen, inventory.to_json(), "0.1.0", "none")
        types = {topic.suffix: RECORD_TYPES[topic] for topic in topics}
        self._writer = RecordingWriter(out, run, types, RecordingLimits(compress_level=19), START_MS)
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._clients: dict[str, Client] = {}

    def run(self, running_s: float) -> None:
        """Run for this long, and end the recording."""
        while self._virtual.now_ms < START_MS + running_s * 1000:
            self._step()
        self._writer.close()

    def _step(self) -> None:
        self._virtual.run_for(STEP_MS)
        now_ms = int(self._virtual.now_ms)
        batches = self._virtual.telemetry.batches
        while batches:
            batch = batches.popleft()
            self._record(TELEMETRY, batch.broker, batch, batch.time_ms + 3)
            self._aggregator.take(msgspec.to_builtins(batch))
        for window in self._aggregator.advance():
            for row in window.rows:
                self._record(STATE, row.entity, row, now_ms)
            self._record(WINDOWS, str(window.marker.window_end_ms), window.marker, now_ms)
            self._ports.state.records.extend([*window.rows, window.marker])
        results = self._virtual.results.results
        while results:
            self._record(RESULTS, results[0].broker, results[0], now_ms)
            self._ports.results.records.append(results.popleft())
        self._register_clients(now_ms)
        while self._loop.step(now_ms):
            pass
        for plan in self._ports.plans.versions:
            self._record(PLANS, plan.plan, plan, now_ms)
        self._ports.plans.versions.clear()
        while self._ports.commands.sent:
            self._virtual.send_command(self._ports.commands.sent.popleft())
        if now_ms % BLOCK_MS < STEP_MS:
            self._writer.tick(now_ms / 1000)

    def _register_clients(self, now_ms: int) -> None:
        connected = self._virtual.clients.connected
        for name in sorted(self._clients.keys() - connected.keys()):
            self._record(CLIENTS, name, None, now_ms)
            self._ports.clients.remove(name)
        for name, client in connected.items():
            if self._clients.get(name) is not client:
                self._record(CLIENTS, name, client, now_ms)
                self._ports.clients.put(client)
        self._clients = dict(connected)

    def _record(self, topic: Topic, key: str, record: msgspec.Struct | None, time_ms: int) -> None:
        if topic not in self._topics:
            return
        partition = zlib.crc32(key.encode()) % topic.partitions
        offset = self._offsets[topic.suffix, partition]
        self._offsets[topic.suffix, partition] += 1
        value = None if record is None else encode(record)
        self._writer.write(topic.suffix, time_ms, partition, offset, key.encode(), value, time_ms / 1000)


def reference_rows(recording: Recording, settings: Settings) -> Iterator[StateRow | WindowClosed]:
    """Yield the rows and markers of all windows that a job with the recording's settings closes, without late ones."""
    streaming = settings.streaming
    aggregator = ReferenceAggregator(streaming.window_ms, streaming.grace_ms, streaming.bounds)
    last_ms = 0
    for message in recording.messages([TELEMETRY.suffix]):
        batch = decode(message.value, TelemetryBatch)
        aggregator.take(msgspec.to_builtins(batch), message.time_ms)
        last_ms = max(last_ms, batch.time_ms)
    for window in aggregator.advance(last_ms):
        yield from window.rows
        yield window.marker


def decided_on(recording: Recording) -> Decided:
    """Decide again on reference rows, with the recording's own settings."""
    settings, _ = recorded_settings(recording, {}, None)
    rows = reference_rows(recording, settings)
    inputs = read_inputs(recording)
    return decide_again(rows, inputs, recording.info.inventory, settings.controller, settings.streaming.grace_ms)


def small_inventory() -> Inventory:
    """Return the brokers of the small recording, with rounded costs so that the file stays small."""
    inventory = place_overlay(BROKERS, 5, random.Random(SEED))
    return replace(inventory, link_cost=inventory.link_cost.round(1))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    SMALL.unlink(missing_ok=True)
    RecordedLoop(SMALL, with_recorded(load_settings(FLAGS), CONSTANTS), small_inventory()).run(RUNNING_S)
    recording = open_recording(SMALL)
    SMALL_PLANS.write_bytes(plans_json(decided_on(recording).plans))


if __name__ == "__main__":
    main()
