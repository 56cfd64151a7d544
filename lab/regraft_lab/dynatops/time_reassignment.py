"""Time the reassignment of ring IDs by DYNATOPS-Greedy and by ours, next to Table 1 of Zhao13 and pricing from scratch.

By brokers and topics ``ssbr_step_ms`` and ``scratch_step_ms``, the time of a step of the path with incremental pricing
and with pricing from scratch; ``identical_steps``, how many steps were compared and found equal. The paper's times are
for Java on four cores of 2 GHz.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from regraft.api.planners import ImprovementPath, Reassignment, assign_ids, best_on_path, improve_greedily, swaps_of
from regraft.api.programs import Figure
from regraft.api.rings import RingProblem, ScratchSwaps
from regraft_lab.dynatops.cut_patterns import PATTERNS, Pattern, draw_problem

Where = dict[str, str | int | float]

PAPER_MS = {  # Table 1, by brokers and topics.
    (10, 100): 28.0,
    (100, 50): 98.0,
    (100, 100): 184.0,
    (100, 500): 502.0,
    (100, 5000): 1_900.0,
    (1000, 100): 96_000.0,
}
TIMED_PATTERNS = tuple(pattern for pattern in PATTERNS if pattern.name in ("uniform 5%", "5 topics of one mode"))
EVENTS = 1000.0  # Per topic and period: enough for most of the path to pay off.
DRAWS = 5
LARGE_BROKERS = 500  # From this size on there are fewer draws.
LARGE_DRAWS = 2
REPEATS = 3
SCRATCH_VALUES_MAX = 100_000_000  # Topics * positions * swaps priced from scratch: five to fifteen seconds.


def reassignment_times(
    sizes: Sequence[tuple[int, int]] = tuple(PAPER_MS),
    seed: int = 1,
    *,
    patterns: Sequence[Pattern] = TIMED_PATTERNS,
    scratch_values_max: int = SCRATCH_VALUES_MAX,
    on_progress: Callable[[str, int], None] | None = None,
) -> list[Figure]:
    """Return times by size and pattern; ``on_progress`` gets the next size and the number done.

    Raises AssertionError if a path differs from that of pricing from scratch, as far as they were compared, or if ours
    has a lower net benefit than DYNATOPS-Greedy.
    """
    figures: list[Figure] = []
    for done, (brokers, topics) in enumerate(sizes):
        if on_progress is not None:
            on_progress(f"{brokers} brokers, {topics} topics", done)
        for pattern in patterns:
            where: Where = {"brokers": brokers, "topics": topics, "pattern": pattern.name}
            figures += _times_of(pattern, brokers, topics, seed, where)
        figures += _against_scratch(draw_problem(patterns[0], brokers, topics, seed, EVENTS), scratch_values_max)
    return figures


def solve_ssbr(problem: RingProblem) -> Reassignment:
    """Return DYNATOPS-Greedy's answer."""
    return best_on_path(problem, improve_greedily(swaps_of(problem)))


def _times_of(pattern: Pattern, brokers: int, topics: int, seed: int, where: Where) -> list[Figure]:
    least_ms: dict[str, list[float]] = {"ssbr": [], "assignment": []}
    first_ms, swaps = [], []
    for draw in range(LARGE_DRAWS if brokers >= LARGE_BROKERS else DRAWS):
        problem = draw_problem(pattern, brokers, topics, seed + draw, EVENTS)
        ssbr, ssbr_ms = _repeated(solve_ssbr, problem)
        ours, ours_ms = _repeated(assign_ids, problem)
        assert ours.net_benefit >= ssbr.net_benefit, f"{where}: {ours.net_benefit}, greedy {ssbr.net_benefit}"
        least_ms["ssbr"].append(min(ssbr_ms))
        least_ms["assignment"].append(min(ours_ms))
        first_ms.append(ssbr_ms[0])
        swaps.append(len(improve_greedily(swaps_of(problem)).swaps))
    return [
        *(Figure(f"{name}_ms", where, statistics.median(each), "ms") for name, each in least_ms.items()),
        Figure("ssbr_first_ms", where, statistics.median(first_ms), "ms"),
        Figure("ssbr_swaps", where, statistics.median(swaps), "1"),
    ]


def _repeated(solve: Callable[[RingProblem], Reassignment], drawn: RingProblem) -> tuple[Reassignment, list[float]]:
    """Return the answer and the time of each repetition, each on a fresh problem without cached results."""
    spent_ms = []
    for _ in range(REPEATS):
        problem = RingProblem(drawn.ring, drawn.roots, drawn.wanted, drawn.events, drawn.delay_weight)
        began_s = time.perf_counter()
        reassignment = solve(problem)
        spent_ms.append((time.perf_counter() - began_s) * 1000)
    return reassignment, spent_ms


def _against_scratch(problem: RingProblem, values_max: int) -> list[Figure]:
    """Return the times of a step; raise AssertionError if both ways of pricing lead to different paths."""
    count = problem.broker_count
    swaps = ScratchSwaps(problem)
    steps_max = max(1, values_max // (problem.topic_count * count * count))
    began_s = time.perf_counter()
    fast = improve_greedily(swaps_of(problem))
    middle_s = time.perf_counter()
    slow = improve_greedily(swaps, steps_max=steps_max)
    spent_s = time.perf_counter() - middle_s
    compared = len(slow.swaps)
    where: Where = {"brokers": count, "topics": problem.topic_count}
    assert fast.swaps[:compared] == slow.swaps, f"{where}: swaps differ from those computed from scratch"
    assert fast.costs[: compared + 1] == slow.costs, f"{where}: costs differ from those computed from scratch"
    if compared < steps_max:
        assert fast.swaps == slow.swaps, f"{where}: finds swaps after the computation from scratch finds none"
    end = fast.mapping(len(fast.swaps))
    assert problem.cost(end) == fast.costs[-1], f"{where}: the final cost is not {fast.costs[-1]}"
    return [
        Figure("ssbr_step_ms", where, _step_ms(fast, middle_s - began_s), "ms"),
        Figure("scratch_step_ms", where, _step_ms(slow, spent_s), "ms"),
        Figure("identical_steps", where, compared, "1"),
    ]


def _step_ms(path: ImprovementPath, spent_s: float) -> float:
    return spent_s * 1000 / max(1, len(path.swaps))
