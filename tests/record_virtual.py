"""Record a run on the virtual clock: write what a live run would have written to Kafka.

In: settings, an inventory, a duration. Out: a recording like any other. This serves benchmarks and tests, and records
hours in minutes. The run itself belongs to ``virtual_loop``.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regraft
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulated_kinds import EMULATED_KINDS
from regraft.producers.recordings.write_recording import RecordedRun, RecordingLimits, RecordingWriter
from regraft.schemas.client import Client
from regraft.schemas.codec import encode
from regraft.schemas.plan import Plan
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import CLIENTS, PLANS, TELEMETRY
from regraft.schemas.units import SECOND_MS
from regraft.settings.run_settings import Settings
from regraft.virtual_runs.virtual_loop import START_MS, STEP_MS, VirtualLoop, virtual_settings

FAR_MB = 1e9


class _RecordingTap:
    """Writes records as Kafka would store them: by partition, with offsets and times."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._offsets: Counter[tuple[str, int]] = Counter()

    def on_batch(self, batch: TelemetryBatch) -> None:
        """Write a batch at its own time."""
        self._write(TELEMETRY.suffix, batch.time_ms, batch.broker, encode(batch.packed()), TELEMETRY.partitions)

    def on_client(self, name: str, client: Client | None, now_ms: int) -> None:
        """Write a client, or its tombstone."""
        self._write(CLIENTS.suffix, now_ms, name, None if client is None else encode(client), CLIENTS.partitions)

    def on_plan(self, plan: Plan, now_ms: int) -> None:
        """Write a version of a plan."""
        self._write(PLANS.suffix, now_ms, plan.plan, encode(plan), PLANS.partitions)

    def _write(self, topic: str, time_ms: int, key: str, value: bytes | None, partitions: int) -> None:
        partition = zlib.crc32(key.encode()) % partitions
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] += 1
        self._writer.write(topic, time_ms, partition, offset, key.encode(), value, time_ms / SECOND_MS)


def record_virtual(
    settings: Settings,
    inventory: Inventory,
    duration_s: float,
    out: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> VirtualLoop:
    """Run emulator and controller for ``duration_s``, and write a recording; return the loop in its final state.

    ``advance`` is called with the seconds that have passed. Raises RecordingFileError, DiskFullError.
    """
    run = RecordedRun(
        settings.kafka.namespace,
        tuple(topic.suffix for topic in (TELEMETRY, CLIENTS, PLANS)),
        settings.to_record(),
        inventory.to_json(),
        regraft.__version__,
        "unknown",
    )
    types: dict[str, Any] = {TELEMETRY.suffix: TelemetryBatch, CLIENTS.suffix: Client, PLANS.suffix: Plan}
    writer = RecordingWriter(out, run, types, RecordingLimits(FAR_MB, FAR_MB), START_MS)
    writer.is_checking = False  # Records encoded here are valid.
    loop = VirtualLoop(
        inventory,
        EMULATED_KINDS[inventory.bootstrap.KIND].settings_of(settings.emulator),
        dataclasses.replace(settings.controller, dry_run=False),
        virtual_settings(settings.emulator, inventory, START_MS),
        settings.streaming.window_ms,
        settings.streaming.grace_ms,
        _RecordingTap(writer),
    )
    end_ms = START_MS + duration_s * SECOND_MS
    while loop.virtual.now_ms < end_ms:
        loop.run_for(min(SECOND_MS, max(end_ms - loop.virtual.now_ms, STEP_MS)))
        writer.tick(loop.virtual.now_ms / SECOND_MS)
        advance(int((loop.virtual.now_ms - START_MS) / SECOND_MS))
    writer.close()
    return loop
