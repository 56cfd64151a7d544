"""The metrics of a stage are described as they are scraped."""

import pytest

from regraft.infra.process.stage_metrics import MetricInfo, StageMetrics


def test_names_carry_the_stage_and_descriptions_match() -> None:
    """What is described is what a scrape shows, with labels and meaning."""
    stage = StageMetrics("test")
    stage.counter("windows", "Windows closed.", ["complete"]).labels("true").inc()
    stage.gauge("epoch", "The epoch.").set(4)
    stage.histogram("step_ms", "A step.").observe(3)
    assert stage.described == [
        MetricInfo("regraft_test_windows_total", "counter", ("complete",), "Windows closed."),
        MetricInfo("regraft_test_epoch", "gauge", (), "The epoch."),
        MetricInfo("regraft_test_step_ms", "histogram", (), "A step."),
    ]
    value = stage.registry.get_sample_value
    assert value("regraft_test_windows_total", {"complete": "true"}) == 1
    assert value("regraft_test_epoch") == 4
    assert value("regraft_test_step_ms_bucket", {"le": "5.0"}) == 1


def test_memory_and_cpu_of_the_process_come_with_every_stage() -> None:
    """Prometheus' usual names, so that usual dashboards show them."""
    value = StageMetrics("test").registry.get_sample_value
    assert (value("process_resident_memory_bytes") or 0) > 1_000_000
    assert value("process_cpu_seconds_total") is not None


def test_a_metric_needs_a_meaning() -> None:
    """A metric without one is refused when it is created."""
    with pytest.raises(ValueError, match="metric regraft_test_x is described by ''"):
        StageMetrics("test").gauge("x", "")
