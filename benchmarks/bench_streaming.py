"""Measure telemetry cells per second from Kafka to state in Kafka: the Spark job next to other programs.

``python -m benchmarks.bench_streaming [--cells N] [--local N | --executors N] [--yardstick] [--plain] [--json FILE]``.
A real Kafka is filled with N cells of 100 brokers in batches like live ones (``streaming_input``). Then the whole job
catches up: Kafka -> Spark (``--local 1`` or ``2`` cores) -> state rows and markers in Kafka. With ``--yardstick`` three
Kafka Streams programs do the same from the same topic (``streams_yardstick``), with ``--plain`` a loop of
confluent-kafka and dicts.

The job must account for every delivery, no program may drop anything as late, and the delivery rows of all programs
must be identical byte for byte once unpacked; for the plain loop this holds for all rows. The job writes them packed,
the others one by one.

completed_cells_per_s is the rate over the last 60 % of the cells, from the end of a micro-batch until the last row is
written; whole_run_s runs from the program's start to its last row, session_start_s is the part of it until the session
or topology runs. CPU and memory cover all processes of a program; Kafka's share is reported separately. With
``--executors`` executors have their own processes, which separates the driver's part: ``driver_cpu_share``, and
``driver_ceiling_cells_per_s``, the rate that the driver sustains on one core. Each program runs in a separate process.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process_costs import EXECUTORS, JAVA, PYTHON, cpu_s, java_children, peak_mb, run_in_fresh_process
from benchmarks.streaming_input import BROKERS, PUBLISHERS, SEED, WINDOW_MS, Written, seconds_for, write_telemetry
from benchmarks.streaming_programs import JOB, LOOP, JobSizes, ResourceUse, run_loop, run_spark
from benchmarks.streaming_rows import Outcome, differences, read_outcome
from benchmarks.streams_yardstick import PROGRAMS, compile_yardstick, run_streams
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.infra.process.stack_error import StackError
from regraft.schemas.topics import DEAD_LETTERS, STATE, TELEMETRY, WINDOWS

DRIVER_MEMORY_MB = 1_024
STREAMS_MEMORY_MB = 2_048  # It is slower with less, and the job has memory of Python besides.


@dataclass(frozen=True, slots=True)
class Measured:
    """One program's use of resources and its output."""

    resources: ResourceUse
    outcome: Outcome


class Runs:
    """Runs programs on one topic, and keeps their measurements by name."""

    def __init__(self, kafka: RunningKafka, written: Written) -> None:
        self.written = written
        self.measured: dict[str, Measured] = {}
        self._kafka, [self._broker] = kafka, java_children()

    def run(self, name: str, program: Callable[..., ResourceUse], *arguments: object, has_markers: bool = True) -> None:
        """Run a program in a separate process, then read back what it wrote into its namespace."""
        create_topics(self._kafka.access, (STATE, WINDOWS, DEAD_LETTERS), name)
        print(f"{name} catches up", flush=True)
        before_s = cpu_s([self._broker])
        resources: ResourceUse = run_in_fresh_process(program, self._kafka.bootstrap, self.written, *arguments)
        resources.kafka_cpu_s = cpu_s([self._broker]) - before_s
        self.measured[name] = Measured(resources, read_outcome(self._kafka.bootstrap, name, has_markers=has_markers))

    def kafka_mb(self) -> float:
        """Return Kafka's peak memory."""
        return peak_mb(self._broker)


def measure(
    cells: int, sizes: JobSizes, others: Sequence[str], directory: Path, class_path: str = ""
) -> tuple[list[Figure], list[str]]:
    """Fill Kafka, run the programs, compare; return the figures and the errors found."""
    with start_kafka(directory) as kafka:
        create_topics(kafka.access, [TELEMETRY])
        print(f"writing {cells:,} cells into Kafka", flush=True)
        runs = Runs(kafka, run_in_fresh_process(write_telemetry, kafka.bootstrap, seconds_for(cells)))
        runs.run(JOB, run_spark, directory, sizes)
        for name in others:
            if name == LOOP:
                runs.run(LOOP, run_loop)
            else:
                given = (name, class_path, sizes.cores, STREAMS_MEMORY_MB, directory)
                runs.run(name, run_streams, *given, has_markers=False)
        return figures_of(runs.measured, runs.written, runs.kafka_mb()), errors_of(runs.measured, runs.written)


def figures_of(measured: dict[str, Measured], written: Written, kafka_mb: float) -> list[Figure]:
    """Return the figures of all programs, and the job's ratio to each of the others."""
    where: dict[str, str | int | float] = {"brokers": BROKERS, "publishers": PUBLISHERS, "cells": written.cells}
    figures: list[Figure] = []
    for name, each in measured.items():
        resources = each.resources
        used_s, completed_s = sum(resources.cpu_s.values()), sum(resources.completed_cpu_s(written.cells).values())
        plain = (
            ("completed_cells_per_s", round(resources.completed_per_s(written.cells)), "1/s"),
            ("whole_run_s", round(resources.whole_run_s, 2), "s"),
            ("whole_run_cells_per_s", round(written.cells / resources.whole_run_s), "1/s"),
            ("session_start_s", round(resources.start_s, 2), "s"),
            ("cpu_s_per_million_cells", round(used_s / written.cells * 1e6, 2), "s"),
            (
                "completed_cpu_s_per_million",
                round(completed_s / resources.completed_cells(written.cells) * 1e6, 2),
                "s",
            ),
            ("kafka_cpu_s", round(resources.kafka_cpu_s, 1), "s"),
            ("late_rows", resources.late_rows, "rows"),
            ("rows", len(each.outcome.digests), "rows"),
            ("rows_written", resources.rows_written, "rows"),
            ("peak_rss_mb", round(sum(resources.peak_mb.values())), "MB"),
        )
        figures += [Figure(figure, where | {"by": name}, value, unit) for figure, value, unit in plain]
        for figure, values, unit in (("cpu_s", resources.cpu_s, "s"), ("peak_rss_mb", resources.peak_mb, "MB")):
            for process, value in values.items():
                figures.append(Figure(figure, where | {"by": name, "process": process}, round(value, 1), unit))
    figures.append(Figure("peak_rss_mb", where | {"by": "all", "process": "kafka (Java)"}, round(kafka_mb), "MB"))
    for name, each in measured.items():
        if name != JOB:
            figures += _ratios(measured[JOB].resources, each.resources, written.cells, where | {"by": name})
    return figures + _driver_figures(measured[JOB].resources, written.cells, where | {"by": JOB})


def _driver_figures(job: ResourceUse, cells: int, where: dict[str, str | int | float]) -> list[Figure]:
    """Return the driver's part of the CPU time of the last part; nothing unless executors have their own processes."""
    if EXECUTORS not in job.cpu_s:
        return []
    used_s = job.completed_cpu_s(cells)
    driver_s, done = used_s[PYTHON] + used_s[JAVA], job.completed_cells(cells)
    return [
        Figure("driver_cpu_share", where, round(driver_s / sum(used_s.values()), 3), ""),
        Figure("driver_ceiling_cells_per_s", where, round(done / driver_s), "1/s"),
    ]


def _ratios(job: ResourceUse, other: ResourceUse, cells: int, where: dict[str, str | int | float]) -> list[Figure]:
    """Return the job's figures as multiples of another program's."""
    pairs = {
        "completed_ratio": (job.completed_per_s(cells), other.completed_per_s(cells)),
        "whole_run_ratio": (other.whole_run_s, job.whole_run_s),
        "cpu_ratio": (sum(job.cpu_s.values()), sum(other.cpu_s.values())),
        "memory_ratio": (sum(job.peak_mb.values()), sum(other.peak_mb.values())),
    }
    unit = f"{JOB} / {where['by']}"
    return [Figure(name, where, round(first / second, 2), unit) for name, (first, second) in pairs.items()]


def errors_of(measured: dict[str, Measured], written: Written) -> list[str]:
    """Return the errors in what the programs wrote, one sentence each."""
    errors = []
    for name, each in measured.items():
        resources, outcome = each.resources, each.outcome
        if outcome.local_deliveries not in (None, written.local_deliveries):
            errors.append(f"{name} accounts for {outcome.local_deliveries} of {written.local_deliveries} deliveries")
        if resources.late_rows or outcome.late_rows:
            errors.append(f"{name} dropped {resources.late_rows or outcome.late_rows} rows as late")
        if resources.dead_letters:
            errors.append(f"{name} found {resources.dead_letters} records that are not telemetry")
        if outcome.announced is not None and outcome.announced != len(outcome.digests):
            errors.append(f"{name}: the markers announce {outcome.announced} rows, {len(outcome.digests)} were written")
        if name != JOB:
            job = measured[JOB].outcome
            compared = (job.digests, outcome.digests) if name == LOOP else (job.deliveries(), outcome.deliveries())
            errors += [f"{JOB} and {name}: {wrong}" for wrong in differences(*compared)]
    return errors


def _prepare_yardstick(directory: Path) -> str:
    """Return the class path of the yardstick; if it is unavailable, print why and return ""."""
    try:
        return compile_yardstick(directory / "yardstick")
    except StackError as error:
        sys.stderr.write(f"The yardstick is skipped: {str(error).rstrip('.')}.\n")
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=16_000_000, help="Delivery cells to read, at least 4 million")
    parser.add_argument("--records-per-trigger", type=int, default=60_000, help="bound of one micro-batch")
    parser.add_argument("--driver-memory-mb", type=int, default=DRIVER_MEMORY_MB, help="heap of Spark's driver")
    parser.add_argument("--local", type=int, default=2, help="cores of Spark's local master, shards, Streams' threads")
    parser.add_argument("--executors", type=int, default=0, help="run the job on this many instead, one core each")
    parser.add_argument("--yardstick", action="store_true", help="also Kafka Streams, where there is a JDK")
    parser.add_argument("--plain", action="store_true", help="also a plain Python loop, some 8 s a million cells")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-streaming-"))
    sizes = JobSizes(given.records_per_trigger, given.driver_memory_mb, given.local, given.executors)
    class_path = _prepare_yardstick(directory) if given.yardstick else ""
    others = [*(PROGRAMS if class_path else ()), *([LOOP] if given.plain else ())]
    try:
        figures, errors = measure(given.cells, sizes, others, directory, class_path)
    except StackError as error:
        sys.stderr.write(f"Not measured: {error}.\n")
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for figure in figures:
        labels = " ".join(str(figure.where[label]) for label in ("by", "process") if label in figure.where)
        print(f"{figure.name:30} {labels:32} {figure.value:>14,} {figure.unit}")
    for wrong in errors:
        print(f"WRONG: {wrong}")
    if given.json is not None:
        settings = {"cells": given.cells, "records_per_trigger_max": given.records_per_trigger, "window_ms": WINDOW_MS}
        settings |= {"driver_memory_mb": given.driver_memory_mb, "cores": given.local, "executors": given.executors}
        write_figures(given.json, run_facts(settings, SEED), figures)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
