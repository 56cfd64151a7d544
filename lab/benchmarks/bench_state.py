"""Measure what the state of windows costs in transit: written by the Spark job, read by the controller.

``python -m lab.benchmarks.bench_state [--windows N] [--json FILE]``. Windows of 5 s of 100 brokers x 50 publishers,
25,000 cells of telemetry each, are encoded and produced to a real Kafka as in the job, then read back, decoded and
assembled as in the controller. Times are CPU times of this process including its client's threads, without merging.
"""

import argparse
import shutil
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import numpy as np
from confluent_kafka import TopicPartition

from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.codec import decode
from regraft.schemas.state import BrokerCompleteness, StateRow, WindowClosed
from regraft.schemas.topics import STATE, WINDOWS, Topic, topic_name
from regraft.streaming.build_rows import Window
from regraft.streaming.close_windows import JoinedWindow, ShardSummary, ShardWindow, join_window
from regraft.streaming.encode_rows import encode_shard
from regraft.streaming.merge_parts import MergedDeliveries
from regraft.streaming.write_state import StateWriter

BROKERS, PUBLISHERS, WINDOW_S, BLOCKS = 100, 50, 5, 3
CELLS = BROKERS * PUBLISHERS * WINDOW_S  # A telemetry cell covers one second.
WINDOW_MS = WINDOW_S * 1_000
BEGIN_MS = 1_700_000_000_000
NAMES = tuple(f"broker-{number:03d}" for number in range(BROKERS))
SEED = 11
Value = tuple[bytes, int]  # Encoded row, start of its window in ms.


def window_of(number: int, rng: np.random.Generator) -> tuple[ShardWindow, JoinedWindow]:
    """Return one window as a single shard holds it before writing; broker k is the home of publisher k."""
    rows = BROKERS * PUBLISHERS
    publisher, broker = np.divmod(np.arange(rows), BROKERS)
    masks = rng.integers(0, 1 << 63, rows * BLOCKS) & rng.integers(0, 1 << 63, rows * BLOCKS)
    published = np.where(np.repeat(publisher == broker, BLOCKS), masks, 0)
    start_ms = BEGIN_MS + number * WINDOW_MS
    deliveries = MergedDeliveries(
        publishers=tuple(f"publisher-{each:02d}" for each in range(PUBLISHERS)),
        brokers=NAMES,
        window_start_ms=np.full(rows, start_ms),
        publisher=publisher,
        broker=broker,
        notifications=np.add.reduceat(np.bitwise_count(masks).astype(np.int64), np.arange(rows) * BLOCKS),
        local_deliveries=np.full(rows, 30),
        bytes=np.full(rows, 6_000),
        starts=np.arange(rows + 1) * BLOCKS,
        blocks=np.tile(np.arange(BLOCKS), rows) + number * BLOCKS,
        masks=masks,
        published=published,
    )
    window = Window(start_ms, start_ms + WINDOW_MS)
    brokers = tuple(BrokerCompleteness(name, 1, number * 20, number * 20 + 19, 20, 20, 0, 0) for name in NAMES)
    counts = {"delivery": rows, "queue": 0, "rtt": 0, "churn": 0}
    summary = ShardSummary(start_ms, counts, brokers, ())
    shard = ShardWindow(window, deliveries, (), summary)
    return shard, join_window([encode_shard(shard).summary], WINDOW_MS)


def values_of(kafka: KafkaAccess, topic: Topic) -> list[bytes]:
    """Return all values of a topic."""
    with closing(open_consumer(kafka)) as consumer:
        place = TopicPartition(topic_name(topic), 0, 0)
        _, high = consumer.get_watermark_offsets(place, timeout=10)
        consumer.assign([place])
        values: list[bytes] = []
        while len(values) < high:
            values += [message.value() or b"" for message in consumer.consume(high - len(values), timeout=5)]
    return values


def measure(window_count: int, directory: Path) -> list[Figure]:
    """Write and read this many windows; raise RuntimeError if one does not come back complete."""
    rng = np.random.default_rng(SEED)
    windows = [window_of(number, rng) for number in range(window_count)]
    with start_kafka(directory) as kafka:
        create_topics(kafka.access, (STATE, WINDOWS))
        with closing(StateWriter(kafka.access, "regraft", 60_000)) as writer:
            begin_s = time.process_time()
            for shard, joined in windows:
                writer.write_rows(encode_shard(shard).messages)
                writer.write_windows([joined])
            written_s = time.process_time() - begin_s
        values = values_of(kafka.access, STATE)
        markers = {marker.window_start_ms: marker for marker in
                   (decode(value, WindowClosed) for value in values_of(kafka.access, WINDOWS))}  # fmt: skip
    of_window: dict[int, list[bytes]] = defaultdict(list)
    for value in values:
        of_window[decode(value, StateRow).window_start_ms].append(value)
    assembler, read_ms = WindowAssembler(NAMES, AssemblyLimits()), []
    for start_ms, marker in sorted(markers.items()):
        begin_s = time.process_time()
        for value in of_window[start_ms]:
            assembler.add(decode(value, StateRow), TIME_MS_MAX)
        assembler.add(marker, TIME_MS_MAX)
        (closed,) = assembler.closed(TIME_MS_MAX)
        read_ms.append((time.process_time() - begin_s) * 1_000)
        if not closed.is_complete or len(closed.sets.columns) != PUBLISHERS * BLOCKS:
            raise RuntimeError(f"window {start_ms} is incomplete: {closed.error}")
    where: dict[str, str | int | float] = {"brokers": BROKERS, "publishers": PUBLISHERS, "cells": CELLS}
    return [
        Figure("written_cpu_s_per_million_cells", where, round(written_s / window_count / CELLS * 1e6, 3), "s"),
        Figure("read_ms_median", where, round(float(np.median(read_ms)), 1), "ms"),
        Figure("records_per_window", where, len(values) / window_count, "records"),
        Figure("kb_per_window", where, round(sum(map(len, values)) / window_count / 1_024), "KB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=40, help="windows to write and read")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-state-"))
    try:
        figures = measure(given.windows, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for figure in figures:
        print(f"{figure.name:34} {figure.value:>12,} {figure.unit}")
    if given.json is not None:
        write_figures(given.json, run_facts({"windows": given.windows}, SEED), figures)


if __name__ == "__main__":
    main()
