"""Measure how many records per second one core writes to disk and reads back, next to fastavro's writer.

``python -m lab.benchmarks.bench_recording [--seconds S] [--json FILE] [--directory DIR]``. The telemetry is that of
emulated overlays: small batches of 100 brokers as in the demo, and batches of about 50 delivery cells. ``recorder``
writes values unchecked, as it does in a backlog; ``checked`` checks each value; ``fastavro`` decodes and re-encodes
each. All write to DIR, syncing twice a second and at the end; recordings are read back and compared. Rates are per
second of processor time (``core_s``: this process, user and system) and per second of wall time.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from fastavro import schemaless_reader

from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.recording_format import COMPRESS_LEVEL, container_schema
from regraft.producers.recordings.write_recording import RecordedRun, RecordingLimits, RecordingWriter
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, encode
from regraft.schemas.registry import latest_schema
from regraft.schemas.telemetry import TelemetryBatch

RUN_MS = 20_000
START_MS = 1_760_000_000_000.0
RECORDS_PER_CHECK = 1_000


@dataclass(frozen=True)
class Telemetry:
    """Messages of one kind, to be repeated endlessly, and the inventory of their overlay."""

    name: str
    messages: list[tuple[bytes, int, bytes]]
    inventory: str

    @property
    def bytes_mean(self) -> float:
        """Mean size of a value."""
        return sum(len(value) for _, _, value in self.messages) / len(self.messages)

    def endless(self) -> Iterator[tuple[int, bytes, int, bytes]]:
        """Yield number, key, time and value of each message, endlessly."""
        number = 0
        while True:
            for key, time_ms, value in self.messages:
                yield number, key, time_ms + number // len(self.messages) * RUN_MS, value
                number += 1


def emulated(name: str, brokers: int, workload: WorkloadSettings, processing_ms: tuple[float, float]) -> Telemetry:
    inventory = place_overlay(brokers, 8, random.Random(1), processing_ms)
    overlay = VirtualOverlay(inventory, workload, VirtualSettings(seed=1, start_ms=START_MS))
    overlay.run_for(RUN_MS)
    batches = list(overlay.telemetry.batches)[len(overlay.telemetry.batches) // 4 :]  # Skip the connecting.
    return Telemetry(name, [(one.broker.encode(), one.time_ms, encode(one)) for one in batches], inventory.to_json())


@dataclass(frozen=True)
class Written:
    """How much was written, and in how much wall and processor time."""

    records: int
    bytes: int
    wall_s: float
    core_s: float


class Stopwatch:
    """Measures wall and processor time since it was made."""

    def __init__(self) -> None:
        self._wall_s, self._core_s = time.perf_counter(), time.process_time()

    def written(self, records: int, size: int) -> Written:
        """Return these amounts with the times until now."""
        return Written(records, size, time.perf_counter() - self._wall_s, time.process_time() - self._core_s)


def write_recorded(out: Path, telemetry: Telemetry, seconds: float, *, is_checking: bool) -> Written:
    """Record for this many seconds."""
    run = RecordedRun("bench", ("telemetry",), {}, telemetry.inventory, "bench", "none")
    watch, begin = Stopwatch(), time.perf_counter()
    writer = RecordingWriter(out, run, {"telemetry": TelemetryBatch}, RecordingLimits(rotate_mb=1e6), int(START_MS))
    writer.is_checking = is_checking
    count = 0
    now_s = time.perf_counter()
    for number, key, time_ms, value in telemetry.endless():
        if number % RECORDS_PER_CHECK == 0:
            now_s = time.perf_counter()
            writer.tick(now_s)
            if now_s - begin >= seconds:
                count = number
                break
        writer.write("telemetry", time_ms, number & 3, number, key, value, now_s)
    writer.close()
    return watch.written(count, writer.counts.bytes)


def write_by_fastavro(out: Path, telemetry: Telemetry, seconds: float) -> Written:
    """Do the same with fastavro's writer, which takes decoded records."""
    parsed = latest_schema("TelemetryBatch").parsed
    watch, begin = Stopwatch(), time.perf_counter()
    count = 0

    def records() -> Iterator[dict[str, Any]]:
        nonlocal count
        for number, key, time_ms, value in telemetry.endless():
            if number % RECORDS_PER_CHECK == 0 and time.perf_counter() - begin >= seconds:
                return
            body = io.BytesIO(value[CONFLUENT_HEADER_BYTES:])
            size = len(value) - CONFLUENT_HEADER_BYTES
            count += 1
            yield {
                "topic": "telemetry",
                "time_ms": time_ms,
                "partition": number & 3,
                "offset": number,
                "key": key,
                "size": size,
                "value": ("regraft.recorded.telemetry_batch.TelemetryBatch", schemaless_reader(body, parsed, None)),
            }

    with out.open("wb") as file:
        schema = fastavro.parse_schema(json.loads(json.dumps(container_schema())))
        fastavro.writer(
            file,
            schema,
            records(),
            codec="zstandard",
            codec_compression_level=COMPRESS_LEVEL,
            sync_interval=1 << 20,
        )
    return watch.written(count, out.stat().st_size)


def read_whole(out: Path, count: int, telemetry: Telemetry, how: str, seconds: float) -> float:
    """Return how many records are read per second of processor time; assert that they match those written."""
    recording = open_recording(out)
    assert recording.count == count, (recording.count, count)
    begin, begin_core, seen = time.perf_counter(), time.process_time(), 0
    batches = recording.messages() if how == "messages" else recording.batches()
    wanted = telemetry.endless()
    for one in batches:
        if how == "messages":
            number, key, time_ms, value = next(wanted)
            assert seen or one.value == value, "the first record differs"  # type: ignore[union-attr]
            assert number == seen
            assert (one.key, one.time_ms) == (key, time_ms)  # type: ignore[union-attr]
        seen += 1
        if seen % RECORDS_PER_CHECK == 0 and time.perf_counter() - begin > seconds:
            break
    return seen / (time.process_time() - begin_core)


def measure(telemetry: Telemetry, directory: Path, seconds: float) -> list[Figure]:
    ways: dict[str, Callable[[Path], Written]] = {
        "recorder": lambda out: write_recorded(out, telemetry, seconds, is_checking=False),
        "checked": lambda out: write_recorded(out, telemetry, seconds, is_checking=True),
        "fastavro": lambda out: write_by_fastavro(out, telemetry, seconds),
    }
    figures, rates = [], {}
    for by, way in ways.items():
        out = directory / f"{telemetry.name}-{by}.avro"
        done = way(out)
        rates[by] = done.records / done.core_s
        raw_mb = done.records * telemetry.bytes_mean / 1e6
        where: dict[str, str | int | float] = {
            "batches": telemetry.name,
            "by": by,
            "bytes": round(telemetry.bytes_mean),
        }
        figures += [
            Figure("written_records_per_core_s", where, round(rates[by]), "1/s"),
            Figure("written_mb_per_core_s", where, round(raw_mb / done.core_s, 1), "MB/s"),
            Figure("written_records_per_wall_s", where, round(done.records / done.wall_s), "1/s"),
            Figure("compressed_to_share", where, round(done.bytes / 1e6 / raw_mb, 3), ""),
        ]
        if by == "recorder":
            for how in ("messages", "batches"):
                rate = read_whole(out, done.records, telemetry, how, seconds)
                figures.append(Figure(f"read_{how}_per_core_s", where, round(rate), "1/s"))
        out.unlink()
    figures.append(
        Figure(
            "times_as_fast_as_fastavro",
            {"batches": telemetry.name},
            round(rates["recorder"] / rates["fastavro"], 1),
            "",
        )
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each figure")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--directory", type=Path, help="where recordings are written; default a temporary one")
    given = parser.parse_args()
    kinds = [
        emulated("small", 100, WorkloadSettings(), (1.0, 3.0)),
        emulated("50 cells", 12, WorkloadSettings(notifications_per_s=20.0, interested_broker_count=14), (0.01, 0.02)),
    ]
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        figures = [figure for telemetry in kinds for figure in measure(telemetry, Path(folder), given.seconds)]
    for figure in figures:
        where = " ".join(str(value) for name, value in figure.where.items() if name != "bytes")
        print(f"{where:20} {figure.name:26} {figure.value:>12,.10g} {figure.unit}")
    for telemetry in kinds:
        print(f"{telemetry.name}: {telemetry.bytes_mean:.0f} bytes a batch")
    if given.json is not None:
        write_figures(given.json, run_facts({"seconds": given.seconds, "level": COMPRESS_LEVEL}, seed=1), figures)


if __name__ == "__main__":
    main()
