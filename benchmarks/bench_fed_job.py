"""Measure what the Spark job and Kafka need for the telemetry of N brokers, without a live emulator.

    python -m benchmarks.bench_fed_job [--sizes N,N] [--seconds S] [--rate R] [--set NAME=VALUE] [--json FILE]

For each size an overlay first runs on the virtual clock, dated a little in the future; every batch that its brokers
would send (4 a second each) is kept in encoded form. Each batch then goes to a real Kafka at its time, and ``regraft
stage stream`` (local[2], with the default settings for a fleet of this size) aggregates them to windows of 5 s. Prints
CPU time per second of telemetry (cores) and memory of both, how long after its end a window was in Kafka, and whether
the job kept up. Exponents are log-log slopes over all sizes. Asserts that no window is missing, incomplete or written
twice, and that no row was late.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.bench_growth import exponent
from benchmarks.stage_meter import (
    MB,
    MarkerReader,
    StageSample,
    cores_taken,
    percentile,
    rss_bytes_max,
    sample_stages,
)
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.codec import encode
from regraft.schemas.state import WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import TELEMETRY, topic_name

SEED = 1
DEGREE_MAX = 8
PROCESSING_MS = (0.5, 1.5)
CONNECT_MS = 5_000.0  # All clients connect at once; the telemetry of this time is not fed.
PROBES_PER_S = 40.0  # The emulator's default.
WINDOW_MS = 5_000
WARM_UP_WINDOWS = 2
WARM_UP_SHARE = 1 / 3
AHEAD_S, AHEAD_S_PER_BROKER = 15.0, 0.06  # How far ahead telemetry is dated: making it must take less.
CLOSING_S_MAX = 240.0
STREAMING, KAFKA = "streaming", "kafka"

Sent = tuple[int, str, bytes]  # Time in ms, broker, encoded batch.


@dataclass
class Batches:
    """Keeps the encoded batches that brokers send from ``from_ms`` on."""

    from_ms: float
    sent: list[Sent]

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Keep the batch."""
        if batch.time_ms >= self.from_ms:
            self.sent.append((batch.time_ms, batch.broker, encode(batch.packed())))


def make_telemetry(brokers: int, rate_per_s: float, seconds: float, folder: Path) -> list[Sent]:
    """Return the batches of this many brokers, dated in the future, and write their inventory to the folder.

    Raises RuntimeError if making them takes longer than they are dated ahead.
    """
    inventory = place_overlay(brokers, DEGREE_MAX, random.Random(SEED), PROCESSING_MS)
    inventory.save(folder / "inventory.json")
    begin_ms = (time.time() + AHEAD_S + AHEAD_S_PER_BROKER * brokers) // 5 * WINDOW_MS
    batches = Batches(begin_ms, [])
    settings = VirtualSettings(seed=SEED, start_ms=begin_ms - CONNECT_MS, candidate_probes_per_s=PROBES_PER_S)
    workload = WorkloadSettings(notifications_per_s=rate_per_s)
    overlay = VirtualOverlay(inventory, workload, settings, batches)
    overlay.run_until(begin_ms + seconds * 1_000)
    if time.time() * 1_000 > begin_ms:
        raise RuntimeError(f"emulating {brokers} brokers took too long: raise AHEAD_S_PER_BROKER")
    return batches.sent


def feed(kafka: KafkaAccess, sent: Sequence[Sent], stop: threading.Event) -> None:
    """Send each batch at its time."""
    producer = open_producer(kafka, {"linger.ms": 20, "compression.type": "lz4", "batch.size": 1 << 20})
    topic = topic_name(TELEMETRY)
    for time_ms, broker, value in sent:
        while (early_s := time_ms / 1_000 - time.time()) > 0:
            if stop.is_set():
                return
            producer.poll(0)
            time.sleep(min(early_s, 0.05))
        while True:
            with suppress(BufferError):
                producer.produce(topic, value, key=broker)
                break
            producer.poll(0.1)
    producer.flush(60)


@dataclass(slots=True)
class Outcome:
    """Observations of one size after its warm-up.

    ``behind``: unread records after each observed micro-batch. ``records``: records read so far, at each sample.
    """

    samples: list[StageSample]
    records: list[int]
    markers: list[tuple[WindowClosed, int]]
    batch_ms: list[int]
    behind: list[int]
    status: dict[str, Any]


def run_job_on(sent: Sequence[Sent], seconds: float, folder: Path, settings: Sequence[str]) -> Outcome:
    """Feed the job and watch it until its last window is closed or overdue."""
    status_file = folder / "streaming.json"
    with start_kafka(folder) as kafka:
        create_topics(kafka.access)
        command = [sys.executable, "-m", "regraft", "stage", "stream"]
        for setting in (f"kafka.bootstrap={kafka.bootstrap}", f"run.directory={folder}", *settings):
            command += ["--set", setting]
        with (folder / "stream.log").open("wb") as log:
            job = subprocess.Popen(
                command, cwd=Path(__file__).parents[1], stdout=log, stderr=log, start_new_session=True
            )
        stop = threading.Event()
        feeder = threading.Thread(target=feed, args=(kafka.access, sent, stop))
        feeder.start()
        try:
            return _watch(job, kafka.access, sent[0][0], seconds, status_file)
        finally:
            stop.set()
            job.send_signal(signal.SIGTERM)
            feeder.join(60)
            with suppress(subprocess.TimeoutExpired):
                job.wait(60)
            job.kill()


def _watch(
    job: subprocess.Popen[bytes], kafka: KafkaAccess, first_ms: int, seconds: float, status_file: Path
) -> Outcome:
    seen, own = Outcome([], [], [], [], [], {}), psutil.Process()
    begin_ms = first_ms // WINDOW_MS * WINDOW_MS  # The first batches also report earlier deliveries.
    end_ms = begin_ms + seconds * 1_000
    last_ms = end_ms - WINDOW_MS  # No telemetry follows the last window, so it stays open.
    with closing(MarkerReader(kafka)) as reader:
        while time.time() < end_ms / 1_000 + CLOSING_S_MAX:
            seen.markers += [each for each in reader.read() if each[0].window_start_ms >= begin_ms]
            assert job.poll() is None, f"the job ended with {job.returncode}: see its log"
            if status_file.exists():
                seen.status = json.loads(status_file.read_text(encoding="utf-8"))
                seen.samples.append(sample_stages(own))
                seen.records.append(seen.status["records"])
                seen.batch_ms.append(seen.status["batch_ms"])
                seen.behind.append(seen.status["records_behind"])
            if seen.samples and seen.markers and seen.markers[-1][0].window_end_ms >= last_ms:
                return seen
    raise AssertionError(f"{CLOSING_S_MAX:g} s after the end only {len(seen.markers)} windows are closed")


def check(seen: Outcome, brokers: int, seconds: float) -> None:
    """Raise AssertionError if a window is missing, incomplete or written twice, or a row was late."""
    markers = [marker for marker, _ in seen.markers]
    windows = int(seconds * 1_000 // WINDOW_MS) - 1
    starts = [marker.window_start_ms for marker in markers]
    expected = [starts[0] + place * WINDOW_MS for place in range(windows)] if starts else []
    assert starts[:windows] == expected, f"of {windows} windows these were closed: {starts}"
    for marker in markers[:windows]:
        complete = {entry.broker for entry in marker.brokers if entry.received == entry.expected}
        assert len(complete) == brokers, (
            f"window {marker.window_start_ms} is complete for {len(complete)} of {brokers} brokers"
        )
    assert sum(marker.late_rows for marker in markers) == 0, "rows were late"


def cores_needed(seen: Outcome, stage: str, records_per_s: float) -> float:
    """Return the CPU time of a stage per second of telemetry, even if it cannot keep up.

    The first third of the records counts as warm-up. Raises AssertionError if the rest was read in one micro-batch.
    """
    first = next(place for place, count in enumerate(seen.records) if count >= seen.records[-1] * WARM_UP_SHARE)
    samples, telemetry_s = seen.samples[first:], (seen.records[-1] - seen.records[first]) / records_per_s
    assert telemetry_s > 0, (
        "everything was read in a single micro-batch: give more --seconds, or --set streaming.records_per_broker_max=20"
    )
    return cores_taken(samples, stage) * (samples[-1].at_s - samples[0].at_s) / telemetry_s


def figures_of(seen: Outcome, brokers: int, rate_per_s: float, sent: Sequence[Sent]) -> list[Figure]:
    """Return the figures of one size."""
    where: dict[str, str | int | float] = {"brokers": brokers, "notifications_per_s": 49 * rate_per_s}
    delays_ms = [kafka_ms - marker.window_end_ms for marker, kafka_ms in seen.markers[WARM_UP_WINDOWS:]]
    fed_s = (sent[-1][0] - sent[0][0]) / 1_000
    records_per_s = len(sent) / fed_s
    figures: dict[str, tuple[float, str]] = {
        "records_per_s": (round(records_per_s), "1/s"),
        "bytes_per_s": (round(sum(len(value) for _, _, value in sent) / fed_s), "bytes/s"),
        "cells_per_record": (round(seen.status["cells"] / max(seen.status["records"], 1), 2), "cells"),
        "cores_job": (round(cores_needed(seen, STREAMING, records_per_s), 2), "cores"),
        "cores_kafka": (round(cores_needed(seen, KAFKA, records_per_s), 2), "cores"),
        "rss_mb_job_java": (rss_bytes_max(seen.samples, STREAMING, "java") // MB, "MB"),
        "rss_mb_job_python": (rss_bytes_max(seen.samples, STREAMING, "python") // MB, "MB"),
        "rss_mb_kafka": (rss_bytes_max(seen.samples, KAFKA) // MB, "MB"),
        "micro_batch_ms_median": (median(seen.batch_ms), "ms"),
        "micro_batch_ms_max": (max(seen.batch_ms), "ms"),
        "records_behind_median": (median(seen.behind), "records"),
        "window_end_to_kafka_ms_p50": (percentile(delays_ms, 0.5), "ms"),
        "window_end_to_kafka_ms_p95": (percentile(delays_ms, 0.95), "ms"),
        "windows_measured": (len(delays_ms), "windows"),
    }
    return [Figure(name, where, value, unit) for name, (value, unit) in figures.items()]


GROWING = ("cores_", "rss_", "micro_batch_")


def exponents_of(figures: Sequence[Figure]) -> list[Figure]:
    """Return the growth exponent of each resource over all sizes; nothing if there is only one size."""
    names = list(dict.fromkeys(figure.name for figure in figures if figure.name.startswith(GROWING)))
    exponents = []
    for name in names:
        mine = [(int(figure.where["brokers"]), figure.value) for figure in figures if figure.name == name]
        sizes, values = zip(*mine, strict=True)
        if len(mine) > 1:
            where: dict[str, str | int | float] = {"sizes": ",".join(map(str, sizes))}
            exponents.append(Figure(f"exponent of {name}", where, round(exponent(sizes, values), 2), "1"))
    return exponents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,400,1000,4000", help="numbers of brokers, with commas")
    parser.add_argument("--rate", type=float, default=0.5, help="notifications per second of each of 49 publishers")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long telemetry is fed, a multiple of 5")
    parser.add_argument("--set", action="append", default=[], help="a setting of the job, as for regraft stage stream")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    figures: list[Figure] = []
    for brokers in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="bench-fed-job-") as folder:
            sent = make_telemetry(brokers, given.rate, given.seconds, Path(folder))
            seen = run_job_on(sent, given.seconds, Path(folder), given.set)
            run_figures = figures_of(seen, brokers, given.rate, sent)
            for figure in run_figures:
                print(f"{brokers:>5} brokers  {figure.name:<30} {figure.value:>12,.6g} {figure.unit}", flush=True)
            check(seen, brokers, given.seconds)
            figures += run_figures
    for figure in (grown := exponents_of(figures)):
        print(f"{'':>14} {figure.name:<30} {figure.value:>12,.2f}")
    figures += grown
    if given.json is not None:
        write_figures(
            given.json, run_facts({"seconds": given.seconds, "rate_per_s": given.rate, "set": given.set}, SEED), figures
        )


if __name__ == "__main__":
    main()
