"""Measure how many records per second the codec encodes and decodes on one core: telemetry batches and delivery rows.

``python -m lab.benchmarks.bench_codec [--seconds S] [--json FILE]``. For comparison: fastavro alone on dicts.
"""

import argparse
import io
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from fastavro import schemaless_reader, schemaless_writer

from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, decode, encode
from regraft.schemas.registry import latest_schema
from regraft.schemas.state import PublisherDelivery, StateRow
from regraft.schemas.telemetry import Delivery, TelemetryBatch

CELLS = 50
BATCH = TelemetryBatch(
    "broker-012",
    1_700_000_000_000,
    12_345,
    1_700_000_000_250,
    7,
    tuple(
        Delivery(f"publisher-{i:02d}", 1_000 + i, 1_700_000_000, 1 << i, 3, 300, 1 if i == 12 else 0)
        for i in range(CELLS)
    ),
)
ROW = StateRow(
    1_700_000_000_000,
    1_700_000_005_000,
    "delivery",
    "publisher-01|broker-012",
    delivery=PublisherDelivery(
        "publisher-01", "broker-012", 30, 60, 6_000, (100, 101, 102), (1 << 40, -5, 777), (0, 0, 0)
    ),
)


def calls_per_s(call: Callable[[], object], seconds: float) -> float:
    for _ in range(50):
        call()
    count, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        for _ in range(50):
            call()
        count += 50
    return count / spent


def measure(record: msgspec.Struct, seconds: float) -> list[Figure]:
    name = type(record).__name__
    value, schema = encode(record), latest_schema(name).parsed
    datum = msgspec.to_builtins(record, builtin_types=(bytes,))
    calls: dict[tuple[str, str], Callable[[], object]] = {
        ("encode", "codec"): lambda: encode(record),
        ("decode", "codec"): lambda: decode(value, type(record)),
        ("encode", "fastavro"): lambda: schemaless_writer(io.BytesIO(), schema, datum),
        ("decode", "fastavro"): lambda: schemaless_reader(io.BytesIO(value[CONFLUENT_HEADER_BYTES:]), schema),
    }
    return [
        Figure(f"{direction}_records_per_s", {"record": name, "by": by, "bytes": len(value)}, round(rate), "1/s")
        for (direction, by), call in calls.items()
        for rate in [calls_per_s(call, seconds)]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    figures = [figure for record in (BATCH, ROW) for figure in measure(record, given.seconds)]
    for figure in figures:
        print(f"{figure.where['record']:15} {figure.name:22} {figure.where['by']:9} {figure.value:>10,.0f}")
    print(f"a TelemetryBatch holds {CELLS} delivery cells")
    if given.json is not None:
        write_figures(given.json, run_facts({"seconds": given.seconds, "cells": CELLS}, seed=0), figures)


if __name__ == "__main__":
    main()
