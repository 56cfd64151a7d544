"""Exponents and breaking points in the table of growth, and a stage's load, on series with a known answer."""

import math

import pytest

from benchmarks.bench_fed_job import exponents_of
from benchmarks.bench_growth import breaks_at, exponent, run_size
from benchmarks.stage_meter import StageSample, StageUse, cores_taken, rss_bytes_max
from regraft.infra.process.measured_figures import Figure

SIZES = (40, 400, 4_000)


def test_a_power_of_the_size_has_its_exponent_and_breaks_where_it_meets_its_limit() -> None:
    """Twice the size squared over a million is 1 at 707 brokers, between two sizes, and 72 beyond the largest."""
    values = [2e-6 * size**2 for size in SIZES]
    assert exponent(SIZES, values) == pytest.approx(2.0)
    assert breaks_at(SIZES, values, 1.0) == pytest.approx(math.sqrt(0.5e6))
    assert breaks_at(SIZES, values, 72.0) == pytest.approx(6_000)


def test_a_fed_job_has_an_exponent_for_its_load_unless_there_is_one_size() -> None:
    """Ten times the brokers take ten times the cores; a delay has no such exponent."""
    figures = [
        Figure(name, {"brokers": size}, size / 100, "cores") for name in ("cores_job", "delay_ms") for size in (40, 400)
    ]
    assert [(found.name, found.value) for found in exponents_of(figures)] == [("exponent of cores_job", 1.0)]
    assert exponents_of(figures[:1]) == []


def test_what_does_not_grow_never_breaks() -> None:
    """A constant below its limit."""
    assert breaks_at(SIZES, [0.5, 0.5, 0.5], 1.0) == math.inf


def test_the_cpu_time_of_an_ended_worker_still_counts() -> None:
    """A stage that used 3 s of CPU in 4 s used 0.75 cores, although its counter seems to fall in between."""
    spent_s = (1.0, 2.0, 0.5, 2.5)
    samples = [
        StageSample(float(at), {"kafka": StageUse(cpu_s, at * 10, {"java": at * 8})})
        for at, cpu_s in zip((0, 1, 2, 4), spent_s, strict=True)
    ]
    assert cores_taken(samples, "kafka") == pytest.approx(0.75)
    assert (rss_bytes_max(samples, "kafka"), rss_bytes_max(samples, "kafka", "java")) == (40, 32)


def test_a_small_size_is_measured_by_stage() -> None:
    """Each stage takes some time, and a closed loop of 12 brokers accounts for every delivery, or this raises."""
    found = run_size(12, 11.0, 2.0)
    assert set(found["cpu_s"]) == {"emulator", "aggregation", "controller"}
    assert min(found["cpu_s"].values()) > 0
    assert found["delivered"] > 100
