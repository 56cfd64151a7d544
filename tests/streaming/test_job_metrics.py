"""What Spark reports about a micro-batch can be scraped; a hung job is unhealthy."""

from types import SimpleNamespace
from typing import Any

import pytest

from regraft.streaming.job_metrics import FLOOR_BATCHES, JobHealth, JobMetrics


def progress(**changes: Any) -> Any:
    values = {
        "durationMs": {"triggerExecution": 300, "addBatch": 250},
        "inputRowsPerSecond": 100.0,
        "numInputRows": 120,
        "sources": [SimpleNamespace(metrics={"maxOffsetsBehindLatest": "7", "avgOffsetsBehindLatest": "2.5"})],
        "stateOperators": [SimpleNamespace(memoryUsedBytes=5_000, allUpdatesTimeMs=40, commitTimeMs=60)],
    }
    return SimpleNamespace(**(values | changes))


def test_a_report_sets_the_metrics() -> None:
    """Duration and its parts, and rates."""
    metrics = JobMetrics()
    metrics.show_progress(progress(), 0)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"regraft_streaming_{name}", labels)

    assert (value("batches_total"), value("batch_ms_sum")) == (1, 300)
    assert value("batch_part_ms", part="addBatch") == 250
    assert (value("input_rows_per_s"), value("processed_rows_per_s")) == (100, 400)
    assert (value("backlog_partition_max"), value("state_store_bytes")) == (7, 5_000)
    assert (value("state_part_ms", part="update"), value("state_part_ms", part="commit")) == (40, 60)


def test_the_floor_is_the_shortest_of_the_recent_micro_batches() -> None:
    """It falls at once, and rises only after a number of longer ones."""
    metrics, found = JobMetrics(), []
    for duration_ms in (300, 120, 500, *[400] * FLOOR_BATCHES):
        metrics.show_progress(progress(durationMs={"triggerExecution": duration_ms + 700}), 700)
        found.append(metrics.registry.get_sample_value("regraft_streaming_batch_floor_ms"))
    assert (found[0], found[1], found[2], found[-1]) == (300, 120, 120, 400)


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_first_micro_batch_without_a_rate_is_no_error(rate: float) -> None:
    """Spark reports NaN or infinity for the rate of its first batch."""
    metrics = JobMetrics()
    metrics.show_progress(progress(inputRowsPerSecond=rate, durationMs={}), 0)
    assert metrics.registry.get_sample_value("regraft_streaming_input_rows_per_s") == 0


def test_the_job_is_ready_after_its_first_micro_batch() -> None:
    """Before it, it is unknown whether the job reads at all."""
    health = JobHealth(180.0)
    assert (health().is_ready, health().errors) == (False, ())
    health.has_batch = True
    assert health().is_ready


def test_a_hung_job_and_a_hung_query_are_distinguished() -> None:
    """The thread of the job and Spark's query may each hang alone."""
    assert [error.split(" has ")[0] for error in JobHealth(60.0, -1.0)().errors] == ["the streaming job"]
    assert [error.split(" has ")[0] for error in JobHealth(-1.0, 60.0)().errors] == ["the streaming query"]
