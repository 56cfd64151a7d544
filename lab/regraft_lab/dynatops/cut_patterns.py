"""Savings by reassigning ring IDs if brokers' subscriptions follow the paper's patterns, with DYNATOPS and with ours.

With enough events for the cost of moving to be negligible: ``cut_ssbr`` (SSBR-Greedy run to its end), ``cut_tabu`` (its
tabu variant), ``cut_assignment`` (ours) and ``cut_bound``, an upper bound for every mapping (least delay, no relay). A
cut is the saving relative to the mean C of 20 random mappings. By events per topic and period: ``net_benefit_ssbr`` and
``net_benefit_assignment``, (Bft - Cst) as a share of C, and ``guard_share``, the share of draws in which
DYNATOPS-Greedy beats ours without its guard. The paper's Fig. 10 shows such cuts, but its values are not in the text.

Readings: the paper does not say how a broker's subscriptions are drawn. Uniform: each broker wants a random share of
all topics. Modes: each broker draws a mode and wants some of its ten topics. All topics publish equally often. A ring
starts from consistent hashing of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from regraft.api.planners import assign_ids, best_on_path, improve_greedily, swaps_of
from regraft.api.programs import Figure
from regraft.api.rings import RingConfiguration, RingProblem, topic_roots

Where = dict[str, str | int | float]

MODE_TOPICS = 10
RANDOM_MAPPINGS = 20
BITS = 32
MANY_EVENTS = 1e6  # Per topic: messages of a reassignment are negligible in comparison.


@dataclass(frozen=True)
class Pattern:
    """How many topics each broker wants: a share of all topics, or a number of topics of one mode."""

    name: str
    topic_share: float = 0.0
    of_mode: int = 0

    def draw(self, brokers: int, topics: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return the topics wanted by each broker, shape (brokers, topics)."""
        wanted = np.zeros((brokers, topics), dtype=np.bool_)
        for broker in range(brokers):
            if self.of_mode:
                mode = rng.integers(topics // MODE_TOPICS)
                own = mode * MODE_TOPICS + rng.choice(MODE_TOPICS, self.of_mode, replace=False)
            else:
                own = rng.choice(topics, max(1, round(self.topic_share * topics)), replace=False)
            wanted[broker, own] = True
        return wanted


PATTERNS = (
    *(Pattern(f"uniform {share:.0%}", topic_share=share) for share in (0.02, 0.05, 0.1, 0.3)),
    *(Pattern(f"{count} topics of one mode", of_mode=count) for count in (5, 10)),
)
EVENTS = (30.0, 100.0, 300.0, 1000.0)


def draw_problem(pattern: Pattern, brokers: int, topics: int, seed: int, events: float = MANY_EVENTS) -> RingProblem:
    """Return a ring drawn by the seed with subscriptions of a pattern, hashed IDs, w_d = 1, hops of delay 1."""
    rng = np.random.default_rng([seed, brokers, topics])
    ring = RingConfiguration.hashed(0, BITS, [f"broker {seed} {number:04d}" for number in range(brokers)])
    roots = topic_roots(ring, tuple(f"topic {seed} {number:04d}" for number in range(topics)))
    return RingProblem(ring.ring, roots, pattern.draw(brokers, topics, rng), np.full(topics, events))


def with_events(problem: RingProblem, events: float) -> RingProblem:
    """Return the problem with another number of events per topic."""
    return RingProblem(problem.ring, problem.roots, problem.wanted, np.full(problem.topic_count, events))


def cut_figures(
    brokers: int,
    topics: int,
    draws: int,
    seed: int,
    patterns: Sequence[Pattern] = PATTERNS,
    on_progress: Callable[[str, int], None] | None = None,
) -> list[Figure]:
    """Return the cuts of each pattern; ``on_progress`` gets the next pattern and the number done."""
    figures: list[Figure] = []
    for done, pattern in enumerate(patterns):
        if on_progress is not None:
            on_progress(f"{brokers} brokers, {pattern.name}", done)
        cuts = [_cuts(draw_problem(pattern, brokers, topics, seed + draw), seed + draw) for draw in range(draws)]
        where: Where = {"brokers": brokers, "topics": topics, "pattern": pattern.name, "draws": draws}
        figures += [Figure(name, where, float(np.mean([one[name] for one in cuts])), "1") for name in cuts[0]]
    return figures


def net_benefit_figures(
    brokers: int,
    topics: int,
    draws: int,
    seed: int,
    patterns: Sequence[Pattern] = PATTERNS,
    events: Sequence[float] = EVENTS,
) -> list[Figure]:
    """Return the net benefits of reassignments that must pay off, by pattern and events per topic and period.

    Raises AssertionError if ours has a lower net benefit than DYNATOPS-Greedy's.
    """
    figures: list[Figure] = []
    for pattern in patterns:
        drawn = [draw_problem(pattern, brokers, topics, seed + draw) for draw in range(draws)]
        for count in events:
            where: Where = {"brokers": brokers, "topics": topics, "pattern": pattern.name, "events": count}
            where["draws"] = draws
            worth = np.array([_net_benefits(with_events(problem, count)) for problem in drawn])
            ssbr, ours, unguarded = worth.T
            assert (ours >= ssbr).all(), f"{where}: ours is worth {ours}, DYNATOPS-Greedy {ssbr}"
            figures += [
                Figure("net_benefit_ssbr", where, float(ssbr.mean()), "1"),
                Figure("net_benefit_assignment", where, float(ours.mean()), "1"),
                Figure("guard_share", where, float((ssbr > unguarded).mean()), "1"),
            ]
    return figures


def _cuts(problem: RingProblem, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    mappings = [rng.permutation(problem.broker_count) for _ in range(RANDOM_MAPPINGS)]
    mean = float(np.mean([problem.cost(mapping) for mapping in mappings]))
    depths = problem.arcs.depths.astype(np.float64)
    delays = (problem.wanted * problem.delay_weights) @ depths
    costs = {
        "cut_ssbr": improve_greedily(swaps_of(problem)).costs[-1],
        "cut_tabu": improve_greedily(swaps_of(problem), is_persistent=True).costs[-1],
        "cut_assignment": problem.cost(assign_ids(problem).mapping),
        "cut_bound": float(delays[linear_sum_assignment(delays)].sum()),
    }
    return {name: 1 - cost / mean for name, cost in costs.items()}


def _net_benefits(problem: RingProblem) -> tuple[float, float, float]:
    """Return (Bft - Cst) / C of DYNATOPS-Greedy, of ours, and of ours without DYNATOPS-Greedy as its guard."""
    cost = problem.cost(problem.present)
    greedy = best_on_path(problem, improve_greedily(swaps_of(problem)))
    reassignments = (greedy, assign_ids(problem), assign_ids(problem, is_guarded=False))
    ssbr, ours, unguarded = (each.net_benefit / cost for each in reassignments)
    return ssbr, ours, unguarded
