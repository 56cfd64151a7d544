"""The Kafka Streams programs' reports give their use of resources, and what is missing is reported; needs no JDK."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import streams_yardstick
from benchmarks.streaming_input import Written
from benchmarks.streams_yardstick import (
    JARS,
    LOCK_FILE,
    SOURCES,
    YardstickError,
    find_compiler,
    report_error,
    resource_use_of,
)
from regraft.infra.local.fetch_jars import read_lock
from regraft.infra.local.find_java import JavaRuntime

WRITTEN = Written(records=10, cells=500, local_deliveries=1, windows=1)


def report(what: str, at_ms: int, cells: int, **more: int) -> dict[str, Any]:
    """Return a line as the programs print it."""
    figures = {"records": cells // 50, "late": 0, "rows": 0, "last_row_ms": 0, "cpu_ms": at_ms, "peak_kb": 2_048}
    return {"what": what, "at_ms": at_ms, "cells": cells} | figures | more


REPORTS = [
    report("ready", 3_000, 0),
    report("progress", 4_000, 250),
    report("ended", 9_000, 500, late=2, rows=7, last_row_ms=5_500, cpu_ms=6_000, peak_kb=4_096),
]


def test_resource_use_is_from_ready_to_the_last_row() -> None:
    """Start-up ends when the topology runs, and the run when Kafka has the last row; shutting down does not count."""
    resources = resource_use_of(REPORTS, begin_ms=1_000)
    assert (resources.start_s, resources.total_s) == (2.0, 2.5)
    assert (resources.late_rows, resources.rows_written) == (2, 7)
    assert (resources.cpu_s, resources.peak_mb) == ({"Java": 6.0}, {"Java": 4.0})
    assert resources.completed_per_s(500) == pytest.approx(250 / 1.5)


def test_an_incomplete_report_is_a_error() -> None:
    """No report, an early end and no rows are errors; a proper end is not."""
    assert report_error(REPORTS, WRITTEN) == ""
    assert report_error([], WRITTEN) == "never ran"
    assert "5 of 10 records and 250 of 500 cells done" in report_error(REPORTS[:2], WRITTEN)
    assert report_error([report("ended", 9_000, 500)], WRITTEN) == "wrote no row"


def test_a_missing_compiler_is_reported_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java runtime without javac is not enough; a JDK is."""
    monkeypatch.setattr(streams_yardstick, "find_java", lambda: JavaRuntime(tmp_path, 21, "PATH"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(YardstickError, match=r"no javac next to Java 21 .* install a JDK 17, 21 or 25"):
        find_compiler()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "javac").touch()
    assert find_compiler() == tmp_path / "bin" / "javac"


def test_sources_exist_and_jars_are_locked_separately_from_the_product() -> None:
    """The yardstick's lock lists Kafka Streams with a checksum for each jar; the product's own lock does not."""
    jars = read_lock(LOCK_FILE)[JARS].jars
    assert any(name.startswith("kafka-streams-") for name in jars)
    assert all(len(digest) == 64 for digest in jars.values())
    assert JARS not in read_lock()
    assert {"Yardstick.java", "EntryPerPublisher.java", "EntryPerRecord.java", "NaturalQuery.java"} <= {
        source.name for source in SOURCES.iterdir()
    }
