"""Time the packing of users: one evaluation of the cost, a move, and the algorithms; asserts the limits.

``python -m lab.benchmarks.bench_packing [--users N] [--brokers N] [--repeats N] [--json FILE]``. Evaluations use 1,000
users, 100 brokers and 20 sub-channels, algorithms ``--users`` and ``--brokers`` (10,000 and 100). Times are processor
times, best of the repeats.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from regraft.api.programs import Figure, run_facts, write_figures
from regraft_lab.mincost.mincost_workload import Setting, draw_instance
from regraft_lab.yardsticks.pack_drop import pack_drop
from regraft_lab.yardsticks.pack_mixing import pack_mixing
from regraft_lab.yardsticks.pack_users import pack_clustering, pack_greedy, pack_random
from regraft_lab.yardsticks.packed_users import PackingCosts

EVALUATED = Setting(1_000, 100)
LIMITS_S = {"evaluation": 0.050, "greedy": 5.0, "clustering": 20.0, "mixing": 60.0}
MOVES = 200


def main() -> None:
    """Measure, print a table and the limits, write the figures; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures = [*_evaluations(chosen.seed, chosen.repeats)]
    figures += _algorithms(Setting(chosen.users, chosen.brokers), chosen.seed, chosen.repeats)
    late = 0
    for figure in figures:
        limit_s = LIMITS_S.get(str(figure.where["what"]))
        is_late = limit_s is not None and figure.value > limit_s
        late += is_late
        limit_text = "" if limit_s is None else f"  limit {limit_s:g} s{': OVER' if is_late else ''}"
        print(f"{figure.where['what']:12} {figure.where['users']:>7} users {figure.value:10.4f} s{limit_text}")
    if chosen.json:
        settings = {"users": chosen.users, "brokers": chosen.brokers, "repeats": chosen.repeats}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    sys.exit(1 if late else 0)


def _evaluations(seed: int, repeats: int) -> list[Figure]:
    """Return the time of an evaluation from scratch, and of a move with its incremental update."""
    instance = draw_instance(EVALUATED, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    homes = pack_random(instance, rng)
    costs = PackingCosts(instance, homes)
    moves = list(zip(rng.integers(0, EVALUATED.users, MOVES), rng.integers(0, EVALUATED.brokers, MOVES), strict=True))

    def evaluate() -> None:
        instance.trees.forget()  # Drop cached trees, or only the first evaluation would be from scratch.
        PackingCosts(instance, homes)

    def move_all() -> None:
        instance.trees.forget()
        for user, broker in moves:
            costs.change_per_s(int(user), int(broker))

    whole_s = _least_s(evaluate, repeats)
    return [
        _figure("evaluation", EVALUATED, whole_s),
        _figure("one move", EVALUATED, _least_s(move_all, repeats) / MOVES),
    ]


def _algorithms(setting: Setting, seed: int, repeats: int) -> list[Figure]:
    instance = draw_instance(setting, np.random.default_rng(seed))

    def from_scratch(pack: Callable[[], object]) -> Callable[[], object]:
        def packed() -> object:
            instance.trees.forget()
            return pack()

        return packed

    packers: dict[str, Callable[[], object]] = {
        "greedy": lambda: pack_greedy(instance),
        "clustering": lambda: pack_clustering(instance),
        "mixing": lambda: pack_mixing(instance, np.random.default_rng(seed)),
        "drop": lambda: pack_drop(instance, np.random.default_rng(seed)),
    }
    return [_figure(name, setting, _least_s(from_scratch(pack), repeats)) for name, pack in packers.items()]


def _figure(what: str, setting: Setting, value_s: float) -> Figure:
    return Figure("seconds", {"what": what, "users": setting.users, "brokers": setting.brokers}, value_s, "s")


def _least_s(run: Callable[[], object], repeats: int) -> float:
    times_s = []
    for _ in range(repeats):
        begin_s = time.process_time()
        run()
        times_s.append(time.process_time() - begin_s)
    return min(times_s)


if __name__ == "__main__":
    main()
