"""Do the job's work with Kafka Streams, a common choice for it, as a yardstick for bench_streaming.

In: the same topic of telemetry. Out: the final delivery row of each (window, publisher, broker), single, with the key
and bytes of the job's unpacked rows. Queues, probes, clients, interest and markers are left out, so this is less work
than the job's. Three programs (``yardstick/*.java``):

- ``streams-entries``: processor API, an entry of the store for each (window, broker, publisher);
- ``streams-records``: processor API, an entry for each record and second, merged at close, as the job does;
- ``streams-dsl``: idiomatic DSL code; the newest row of a key is the final one.

Stores are in memory with their changelogs in Kafka; delivery is at least once. Nothing here is part of the product: a
JDK compiles it at run time; its jars are locked in ``yardstick/streams_jars.lock`` and fetched on demand. Maintainers
resolve and lock them again with ``python -m benchmarks.streams_yardstick --relock``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.streaming_input import RECORD, WINDOW_MS, Written
from benchmarks.streaming_programs import WAIT_S_MAX, ResourceUse
from regraft.infra.local.fetch_jars import fetch_jars, read_lock, relock
from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.find_java import find_java
from regraft.infra.process.stack_error import StackError
from regraft.schemas.codec import header
from regraft.schemas.topics import STATE, TELEMETRY, topic_name

PROGRAMS = ("streams-entries", "streams-records", "streams-dsl")
SOURCES = Path(__file__).with_name("yardstick")
LOCK_FILE = SOURCES / "streams_jars.lock"
JARS = "streams"
GRACE_MS = 2_000
COMPILE_TIMEOUT_S = 120
PROCESS = "Java"


class YardstickError(StackError):
    """The yardstick is unavailable or did not finish; the message says why and what to do."""


def compile_yardstick(directory: Path) -> str:
    """Fetch the jars, compile the programs into a directory, return the class path; raise StackError if that fails."""
    compiler = find_compiler()
    jars = fetch_jars(read_lock(LOCK_FILE)[JARS], find_cache())
    class_path = os.pathsep.join(map(str, (directory, *jars)))
    command = [str(compiler), "--release", "17", "-d", str(directory), "-cp", class_path]
    command += map(str, sorted(SOURCES.glob("*.java")))
    answer = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if answer.returncode != 0:
        raise YardstickError(f"{compiler} could not compile {SOURCES}: {answer.stderr.strip().splitlines()[0]}")
    return class_path


def find_compiler() -> Path:
    """Return the javac next to the Java in use, or the one on PATH; raise YardstickError if there is none."""
    java = find_java()
    beside, on_path = java.home / "bin" / "javac", shutil.which("javac")
    if beside.is_file() or on_path:
        return beside if beside.is_file() else Path(str(on_path))
    raise YardstickError(
        f"there is no javac next to Java {java.version} in {java.home} or on PATH: install a JDK 17, 21 or 25, on "
        "Debian and Ubuntu the package openjdk-17-jdk-headless, and name it in JAVA_HOME"
    )


def run_streams(
    bootstrap: str, written: Written, name: str, class_path: str, threads: int, heap_mb: int, directory: Path
) -> ResourceUse:
    """Run one program until all input is processed."""
    given = {
        "program": name.removeprefix("streams-"),
        "bootstrap": bootstrap,
        "telemetry_topic": topic_name(TELEMETRY),
        "telemetry_header": header(RECORD).hex(),
        "state_topic": topic_name(STATE, name),
        "state_header": header("StateRow").hex(),
        "window_ms": WINDOW_MS,
        "grace_ms": GRACE_MS,
        "records": written.records,
        "cells": written.cells,
        "threads": threads,
        "state_directory": directory / name,
    }
    command = [str(find_java().executable), f"-Xmx{heap_mb}m", "-XX:+UseParallelGC", "-cp", class_path]
    command += ["yardstick.Yardstick", *(f"{option}={value}" for option, value in given.items())]
    log_file, begin_ms = directory / f"{name}.log", time.time() * 1_000
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        watchdog = threading.Timer(WAIT_S_MAX, process.kill)
        watchdog.start()
        assert process.stdout is not None
        try:
            reports = [json.loads(line) for line in process.stdout]
            process.wait()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
    if error := report_error(reports, written):
        log_lines = log_file.read_text().strip().splitlines()[:3]
        raise YardstickError(f"{name} {error}; its log: {' / '.join(log_lines) or 'empty'}")
    return resource_use_of(reports, begin_ms)


def report_error(reports: list[Mapping[str, Any]], written: Written) -> str:
    """Return what is missing in a program's reports, "" if it succeeded."""
    if not reports:
        return "never ran"
    last = reports[-1]
    if last["what"] != "ended":
        done = f"{last['records']} of {written.records} records and {last['cells']} of {written.cells} cells"
        return f"did not end within {WAIT_S_MAX:g} s, with {done} done"
    return "" if last["last_row_ms"] else "wrote no row"


def resource_use_of(reports: Iterable[Mapping[str, float]], begin_ms: float) -> ResourceUse:
    """Return the use of resources by a program's reports: the first when it is ready, the last after its last row."""
    first, *others = reports
    last = others[-1]
    progress = [
        ((each["at_ms"] - first["at_ms"]) / 1e3, int(each["cells"]), {PROCESS: each["cpu_ms"] / 1e3}) for each in others
    ]
    return ResourceUse(
        start_s=(first["at_ms"] - begin_ms) / 1e3,
        total_s=(last["last_row_ms"] - first["at_ms"]) / 1e3,
        late_rows=int(last["late"]),
        progress=progress,
        cpu_s={PROCESS: last["cpu_ms"] / 1e3},
        peak_mb={PROCESS: last["peak_kb"] / 1_024},
        rows_written=int(last["rows"]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relock", action="store_true", required=True, help="resolve the roots, rewrite the lock")
    parser.parse_args()
    try:
        relock(LOCK_FILE, find_cache())
    except StackError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
