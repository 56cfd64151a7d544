"""Measure the reassignment of ring IDs (Zhao13): time, savings, and equality with a slow reference; asserts the limits.

``python -m lab.benchmarks.bench_reassignment [--seed N] [--json FILE]``. Times: DYNATOPS-Greedy and ours at the sizes
of the paper's Table 1, from problem to answer, next to the paper's times and to one step priced from scratch, which
must be the same step. Best of three repetitions, median over draws, so that other load on the machine matters little.
Cuts: against random mappings by pattern of subscriptions, with free moves. Net benefits: Bft - Cst as a share of C by
events per topic; ours must never be below DYNATOPS-Greedy's. Takes two to three minutes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from regraft.api.programs import Figure, run_facts, write_figures
from regraft_lab.dynatops.cut_patterns import PATTERNS, cut_figures, net_benefit_figures
from regraft_lab.dynatops.time_reassignment import PAPER_MS, reassignment_times

SSBR_LIMITS_MS = {(100, 100): 10.0, (1000, 100): 1000.0, (100, 500): 50.0, (100, 5000): 500.0}
ASSIGNMENT_LIMITS_MS = {(100, 100): 10.0, (1000, 100): 300.0}
LIMITS_MS = {"ssbr_ms": SSBR_LIMITS_MS, "assignment_ms": ASSIGNMENT_LIMITS_MS}
CUT_RATIO_MIN = 1.5  # Our cut over that of SSBR-Greedy.
DRAWS = 20
LARGE_DRAWS = 3
LARGE_PATTERNS = tuple(pattern for pattern in PATTERNS if pattern.name not in ("uniform 2%", "uniform 30%"))
LARGE_EVENTS = (100.0, 1000.0)
TOPICS = 100


def measure_cuts(seed: int) -> list[Figure]:
    """Return cuts and net benefits; raise AssertionError if our cut is too small or our net benefit below greedy's."""
    cuts = cut_figures(100, TOPICS, DRAWS, seed) + cut_figures(1000, TOPICS, LARGE_DRAWS, seed, LARGE_PATTERNS)
    for ssbr in (one for one in cuts if one.name == "cut_ssbr"):
        ratio = _value(cuts, "cut_assignment", ssbr.where) / ssbr.value
        assert ratio >= CUT_RATIO_MIN, f"{ssbr.where}: cuts {ratio:.3g} times as much, {CUT_RATIO_MIN} is the limit"
    worth = net_benefit_figures(100, TOPICS, DRAWS, seed)
    return cuts + worth + net_benefit_figures(1000, TOPICS, LARGE_DRAWS, seed, LARGE_PATTERNS, LARGE_EVENTS)


def print_times(figures: Sequence[Figure]) -> int:
    """Print times next to their limits, the paper's and those from scratch; return how many limits are exceeded."""
    late = 0
    for figure in figures:
        size = (int(figure.where["brokers"]), int(figure.where["topics"]))
        limit = LIMITS_MS.get(figure.name, {}).get(size)
        notes = [f"limit {limit:g} ms"] if limit else []
        if figure.name == "ssbr_ms":
            notes.append(f"paper {PAPER_MS[size]:g} ms, {PAPER_MS[size] / figure.value:.3g} times as long")
        if figure.name == "scratch_step_ms":
            step_ms = _value(figures, "ssbr_step_ms", figure.where)
            notes.append(f"{figure.value / step_ms:.3g} times as long as a step with prices kept up")
        print(f"{figure.name:18} {_text(figure):52} {figure.value:10.5g} {figure.unit:3} {', '.join(notes)}")
        late += limit is not None and figure.value > limit
    return late


def _value(figures: Sequence[Figure], name: str, where: dict[str, str | int | float]) -> float:
    return next(figure.value for figure in figures if figure.name == name and figure.where == where)


def _text(figure: Figure) -> str:
    return ", ".join(str(value) if name == "pattern" else f"{value:g} {name}" for name, value in figure.where.items())


def main() -> None:
    """Measure, print figures and limits, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    times = reassignment_times(seed=chosen.seed)
    late = print_times(times)
    cuts = measure_cuts(chosen.seed)
    for figure in cuts:
        print(f"{figure.name:24} {_text(figure):66} {figure.value:10.4f}")
    if chosen.json:
        settings = {"topics": TOPICS, "draws": DRAWS, "large_draws": LARGE_DRAWS}
        write_figures(chosen.json, run_facts(settings, chosen.seed), times + cuts)
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
