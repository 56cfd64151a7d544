"""Decisions on an eighth of the telemetry are as good as on all of it, if there is enough of it."""

import statistics

from lab.benchmarks.bench_sampling import ABOVE_MAX, cost_decided, draw_situation, sample_of
from regraft.api.records import Sampling


def test_an_overlay_decided_on_an_eighth_costs_at_most_a_hundredth_more() -> None:
    """100 brokers, 50 publishers, some 1,600 blocks: the mean over eight random situations, priced on all telemetry."""
    above = []
    for seed in range(1, 9):
        inventory, full = draw_situation(100, 10_000, seed)
        sample = sample_of(full, Sampling(3))
        assert len(sample.columns) < len(full.columns) / 4
        above.append(cost_decided(inventory, sample, full) / cost_decided(inventory, full, full) - 1)
    assert statistics.fmean(above) <= ABOVE_MAX, f"above by seed: {above}"
