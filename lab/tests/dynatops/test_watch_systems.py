"""When systems are measured, what is averaged, and what one saves relative to another."""

from __future__ import annotations

import numpy as np
import pytest

from regraft_lab.claim_evidence import Measured
from regraft_lab.dynatops.broker_interests import InterestStep
from regraft_lab.dynatops.compared_systems import Measures, SystemCounts
from regraft_lab.dynatops.watch_systems import (
    Schedule,
    SystemTotals,
    cut_samples,
    total_samples,
    watch_systems,
)


class ClockSystem:
    """A system whose delay is the time, and which records when a period has ended."""

    def __init__(self) -> None:
        self.counts = SystemCounts()
        self.adapted_h: list[float] = []

    def observe(self, step: InterestStep) -> None:
        self.counts.requests += 3

    def adapt(self, step: InterestStep) -> None:
        self.adapted_h.append(step.end_h)

    def measures(self, step: InterestStep) -> Measures:
        return Measures(step.end_h, 0.0, 0.0, 10.0, 4.0)


def steps(hours: int) -> list[InterestStep]:
    """Return steps of an hour without changes, including the start."""
    nothing = np.zeros(0, dtype=np.int32)
    return [
        InterestStep(float(hour), np.zeros((1, 1), dtype=np.int32), nothing, nothing, 0) for hour in range(hours + 1)
    ]


def test_what_is_measured_and_when_a_period_is_over() -> None:
    """Every 5 h from 10 h on; periods of 4 h."""
    system = ClockSystem()
    found = watch_systems(steps(20), {"clock": system}, Schedule(5.0, 10.0, 4.0))["clock"]
    assert found.measures.delay == pytest.approx((10 + 15 + 20) / 3)
    assert system.adapted_h == [4.0, 8.0, 12.0, 16.0, 20.0]
    assert found.hours == 20


def test_without_a_period_nothing_adapts() -> None:
    """By default there is no period."""
    system = ClockSystem()
    watch_systems(steps(6), {"clock": system}, Schedule(2.0, 0.0))
    assert system.adapted_h == []


def test_a_run_that_is_too_short_is_reported() -> None:
    """Its mean would be over nothing."""
    with pytest.raises(ValueError, match="no time to measure"):
        watch_systems(steps(3), {"clock": ClockSystem()}, Schedule(5.0, 10.0))


def test_a_cut_is_what_is_saved_of_the_other() -> None:
    """3 hops of 4, 20 messages of 80, 150 requests and 50 exchanges of 1,000; no cut relative to itself or nothing."""
    ours = SystemTotals(Measures(3.0, 0.0, 0.0, 20.0, 5.0), SystemCounts(requests=150), 10.0, 50.0)
    theirs = SystemTotals(Measures(4.0, 0.0, 0.0, 80.0, 0.0), SystemCounts(requests=1_000), 10.0)
    totals = {("ssbr", "placed"): ours, ("bayeux16", "static"): theirs}
    samples = cut_samples({"model": "m"}, totals, [("ssbr", "placed")], [*totals, ("tco", "static")])
    found = Measured(samples)
    assert found.value("delay_cut", against="bayeux16", against_homes="static") == pytest.approx(0.25)
    assert found.value("messages_cut", system="ssbr") == pytest.approx(0.75)
    assert found.value("management_per_h_cut", homes="placed") == pytest.approx(0.8)
    assert len(samples) == 3
    measured = Measured(total_samples({"model": "m"}, totals, "hops"))
    assert measured.value("management_per_h", system="ssbr") == pytest.approx(20.0)
    assert measured.value("messages_per_notification", system="bayeux16") == 80.0
