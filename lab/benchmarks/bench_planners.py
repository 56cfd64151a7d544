"""Measure the CPU time of a decision for several sizes of overlay; asserts the limits.

``python -m lab.benchmarks.bench_planners [--sizes 40,100,1000] [--decisions N] [--json FILE]``.
``lab/regraft_lab/psoop/time_decisions.py`` defines a decision and its traffic. Cost and Interest (Jaeger07) is timed
for comparison.
"""

import argparse
import math
import sys
from pathlib import Path

from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft_lab.psoop.time_decisions import PLANNERS_TIMED, STARTS, WINDOW_TICKS, decision_figures

# On a settled tree the search continues with kicks, whose budget is 100 ms.
LIMITS_MS = {
    ("settled", 100): 250.0,
    ("random", 100): 100.0,
    ("settled", 1000): 1000.0,
    ("random", 1000): 1000.0,
    ("settled", 2000): 2500.0,
    ("random", 2000): 2500.0,
    ("settled", 4000): 5000.0,
    ("random", 4000): 5000.0,
}


def main() -> None:
    """Measure, print a table and the limits, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="40,100,1000,2000,4000", help="numbers of brokers, with commas")
    parser.add_argument("--decisions", type=int, default=20, help="decisions of each kind; above 400 brokers 3")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    with show_progress("deciding", len(sizes) * len(PLANNERS_TIMED) * len(STARTS)) as advance:
        figures = decision_figures(sizes, chosen.decisions, chosen.seed, advance)
    _print_table(figures)
    if chosen.json:
        settings = {"sizes": sizes, "decisions": chosen.decisions, "window_ticks": WINDOW_TICKS}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    late = [
        figure for figure in figures if figure.name == "decision_ms_max" and figure.value > (_limit_ms(figure) or 1e9)
    ]
    for figure in late:
        print(f"over the limit of {_limit_ms(figure)} ms: {figure.where} {figure.value:.0f} ms")
    sys.exit(1 if late else 0)


def _limit_ms(figure: Figure) -> float | None:
    if figure.where["planner"] != "swap_links_cost":
        return None
    return LIMITS_MS.get((str(figure.where["from"]), int(figure.where["brokers"])))


def _print_table(figures: list[Figure]) -> None:
    print(
        f"{'planner':18} {'brokers':>8} {'from':>8} {'p50 ms':>9} {'max ms':>9} {'limit ms':>9} {'MB':>7} {'growth':>7}"
    )
    before: dict[tuple[object, object], tuple[int, float]] = {}
    for p50, most, memory in zip(figures[::3], figures[1::3], figures[2::3], strict=True):
        planner, brokers, start = (p50.where[key] for key in ("planner", "brokers", "from"))
        limit = _limit_ms(most) or ""
        smaller = before.get((planner, start))
        growth = _exponent(smaller, (int(brokers), p50.value)) if smaller else ""
        before[planner, start] = int(brokers), p50.value
        print(
            f"{planner:18} {brokers:8} {start:>8} {p50.value:9.1f} {most.value:9.1f} {limit:>9} {memory.value:7.0f} "
            f"{growth:>7}"
        )


def _exponent(smaller: tuple[int, float], larger: tuple[int, float]) -> str:
    """Return the growth of time in the number of brokers n as "n^e"."""
    return f"{math.log(larger[1] / smaller[1]) / math.log(larger[0] / smaller[0]):.1f}"


if __name__ == "__main__":
    main()
