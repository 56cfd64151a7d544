"""Figures of reassignments: correct patterns, cuts between none and the bound, complete times."""

from __future__ import annotations

import numpy as np
import pytest

from regraft_lab.dynatops.cut_patterns import PATTERNS, Pattern, cut_figures, draw_problem, net_benefit_figures
from regraft_lab.dynatops.time_reassignment import reassignment_times

FEW = (PATTERNS[1], PATTERNS[4])


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_every_broker_wants_the_patterns_number_of_topics(pattern: Pattern) -> None:
    """A share of all topics, or some of one of ten modes of adjacent topics."""
    wanted = draw_problem(pattern, 40, 100, seed=3).wanted
    counts = wanted.sum(axis=1)
    assert set(counts.tolist()) == {pattern.of_mode or round(pattern.topic_share * 100)}
    if pattern.of_mode:
        assert all(len({topic // 10 for topic in np.flatnonzero(row)}) == 1 for row in wanted)


def test_another_seed_is_another_ring_and_the_same_one_the_same() -> None:
    """Brokers' IDs, roots and interests."""
    one, again, other = (draw_problem(PATTERNS[1], 20, 50, seed) for seed in (1, 1, 2))
    assert one.ring == again.ring != other.ring
    assert one.roots.tolist() == again.roots.tolist() != other.roots.tolist()
    assert (one.wanted == again.wanted).all()


def test_cuts_are_in_their_expected_order() -> None:
    """SSBR-Greedy cuts something, its tabu variant continues from there, and no mapping cuts more than the bound."""
    figures = cut_figures(24, 50, 3, seed=1, patterns=FEW)
    for pattern in FEW:
        cut = {one.name: one.value for one in figures if one.where["pattern"] == pattern.name}
        assert 0 < cut["cut_ssbr"] <= cut["cut_tabu"] <= cut["cut_bound"]
        assert cut["cut_ssbr"] <= cut["cut_assignment"] <= cut["cut_bound"]


def test_net_benefits_grow_with_events() -> None:
    """With almost no events nothing pays; ours is never below DYNATOPS-Greedy's, which the measurement asserts, too."""
    figures = net_benefit_figures(24, 50, 3, 1, FEW, events=(0.1, 100.0, 1000.0))
    for pattern in FEW:
        values = {
            name: [one.value for one in figures if one.name == name and one.where["pattern"] == pattern.name]
            for name in ("net_benefit_ssbr", "net_benefit_assignment", "guard_share")
        }
        ssbr, ours = values["net_benefit_ssbr"], values["net_benefit_assignment"]
        assert ours == sorted(ours)
        assert ours[0] == 0
        assert ours[-1] >= ssbr[-1] > 0
        assert all(0 <= share <= 1 for share in values["guard_share"])


def test_times_come_with_the_comparison_from_scratch() -> None:
    """All steps of a short path are compared, and few steps if the allowance is small."""
    figures = reassignment_times(((12, 30), (24, 50)), seed=2, patterns=FEW, scratch_values_max=12 * 12 * 30 * 40)
    names = {one.name for one in figures}
    expected = {"ssbr_ms", "assignment_ms", "ssbr_first_ms", "ssbr_swaps"}
    assert names == expected | {"ssbr_step_ms", "scratch_step_ms", "identical_steps"}
    steps = {one.where["brokers"]: one.value for one in figures if one.name == "identical_steps"}
    swaps = {one.where["brokers"] for one in figures if one.name == "ssbr_swaps"}
    assert set(steps) == swaps == {12, 24}
    assert steps[24] <= 12 * 12 * 30 * 40 // (24 * 24 * 50)
