"""What Spark reports of a micro-batch can be scraped; a job that hangs is ill."""

from types import SimpleNamespace
from typing import Any

import pytest

from regraft.streaming.job_metrics import JobHealth, JobMetrics


def progress(**changes: Any) -> Any:
    values = {
        "durationMs": {"triggerExecution": 300, "addBatch": 250},
        "inputRowsPerSecond": 100.0,
        "processedRowsPerSecond": 400.0,
    }
    return SimpleNamespace(**(values | changes))


def test_a_report_sets_what_prometheus_sees() -> None:
    """Duration and its parts, and rates."""
    metrics = JobMetrics()
    metrics.show_progress(progress())

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"regraft_streaming_{name}", labels)

    assert (value("batches_total"), value("batch_ms_sum")) == (1, 300)
    assert value("batch_part_ms", part="addBatch") == 250
    assert (value("input_rows_per_s"), value("processed_rows_per_s")) == (100, 400)


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_first_micro_batch_without_a_rate_is_no_fault(rate: float) -> None:
    """Spark reports no number for the rate of its first batch."""
    metrics = JobMetrics()
    metrics.show_progress(progress(inputRowsPerSecond=rate, durationMs={}))
    assert metrics.registry.get_sample_value("regraft_streaming_input_rows_per_s") == 0


def test_the_job_is_ready_after_its_first_micro_batch() -> None:
    """Before it nobody can know whether it reads at all."""
    health = JobHealth()
    assert (health().is_ready, health().faults) == (False, ())
    health.has_batch = True
    assert health().is_ready


def test_a_job_or_a_query_that_hangs_is_told_apart() -> None:
    """The thread of the job and Spark's query can each stand still for themselves."""
    assert [fault.split(" has ")[0] for fault in JobHealth(-1.0, 60.0)().faults] == ["the streaming job"]
    assert [fault.split(" has ")[0] for fault in JobHealth(60.0, -1.0)().faults] == ["the streaming query"]
