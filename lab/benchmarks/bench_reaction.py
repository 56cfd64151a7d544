"""Measure how fast and how well the controller follows changes of traffic: 20 changes of five kinds, and quiet traffic.

``python -m lab.benchmarks.bench_reaction [--seeds 4] [--first-seed 1] [--set NAME=VALUE ...] [--json FILE]
[--baseline-json FILE]``. Each run is the demo's overlay for two and a half minutes on the virtual clock: emulator,
reference aggregator and controller. Interests shift at once or within half a minute, one publisher publishes 20 times
as much, a crowd comes and goes, or the day moves around the brokers in two minutes; quiet traffic has no change.
Reported by kind:

- ``saved_after_s_p50``: median time from a change until an overlay is in force that saves 90 % of the reachable saving.
  The reachable saving is that of the overlay found on the first 20 s of even traffic, measured on the traffic after
  them. Changes with less than 5 % to save do not count; if the overlay never gets there, the time is that of the run,
  or of the crowd.
- ``regret_share``: excess cost of the run over the overlay of an oracle that knows all the traffic, as a share of the
  oracle's cost.
- ``plans``, ``moves`` (links and publishers), ``gains_missed``: totals of the run; ``alarms``: plans on quiet traffic,
  and reported changes that were none.
- ``kept``: savings of plans on the even traffic after them over the savings predicted, as shares of the cost, over all
  plans; ``kept_small``: the same for plans that predicted less than 10 %; ``plans_kept`` and ``plans_kept_small``: the
  numbers of these plans.
- ``decision_cpu_ms``: mean processor time of a decision, on a machine that is otherwise idle.

``--baseline-json`` names the figures of an earlier measurement, perhaps of another version, to compare with; its regret
is then taken against the oracle of this measurement.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lab.benchmarks.reaction_runs import COURSES, END_S, QUIET, SHIFT_S, Reaction, Saving, ShiftTask, run_shift
from regraft.api.programs import Figure, run_facts, run_tasks, show_progress, write_figures

REACHABLE_SHARE_MIN = 0.05
ALL = "all"
SMALL_SHARE = 0.1
REPORTED_WITHIN_S = 60.0  # A change reported later than this after an actual one is a false alarm.
UNITS = {
    "saved_after_s_p50": "s",
    "decision_cpu_ms": "ms",
    "saved_never": "1",
    "cost_per_s": "1/s",
    "oracle_per_s": "1/s",
    "regret_share": "1",
}


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="runs of each kind")
    parser.add_argument("--first-seed", type=int, default=1, help="fresh ones, which no setting was chosen with")
    parser.add_argument("--kinds", default=",".join(COURSES))
    parser.add_argument("--set", action="append", default=[], dest="assignments", help="a setting, as `regraft demo`'s")
    parser.add_argument("--parts", type=Path, help="where finished runs are kept, so that a stopped call resumes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--baseline-json", type=Path)
    chosen = parser.parse_args()
    tasks = [
        ShiftTask(kind, seed, tuple(chosen.assignments))
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        for kind in chosen.kinds.split(",")
    ]
    with show_progress("Running changes", sum(task.work_count for task in tasks)) as advance:
        reactions = run_tasks(tasks, run_shift, Reaction, chosen.parts, advance, "changes")
    figures = measured(reactions)
    before = _baseline(chosen.baseline_json) if chosen.baseline_json else []
    print_table("this version", figures, [])
    if before:
        print_table(f"baseline, {chosen.baseline_json}", before, figures)
    if chosen.json:
        settings = {
            "seeds": chosen.seeds,
            "first_seed": chosen.first_seed,
            "kinds": chosen.kinds,
            "set": chosen.assignments,
        }
        write_figures(chosen.json, run_facts(settings, 1), figures)
        raw = chosen.json.with_suffix(".runs.json")
        raw.write_bytes(msgspec.json.encode(reactions))


def measured(reactions: Sequence[Reaction]) -> list[Figure]:
    """Return the figures by kind, and for all changes together."""
    kinds = {kind: [one for one in reactions if one.kind == kind] for kind in COURSES}
    kinds[ALL] = [one for one in reactions if one.kind != QUIET]
    return [
        Figure(name, {"kind": kind, "runs": len(kind_runs)}, value, UNITS.get(name, "1"))
        for kind, kind_runs in kinds.items()
        if kind_runs
        for name, value in _values(kind_runs).items()
    ]


def _values(reactions: Sequence[Reaction]) -> dict[str, float]:
    waits_s = [wait_s for one in reactions for wait_s in _waits_s(one)]
    costs = [point for one in reactions for point in one.costs_per_s]
    actual, _, oracle = (statistics.fmean(point[place] for point in costs) for place in (1, 2, 3))
    count = len(reactions)
    return {
        "saved_after_s_p50": statistics.median(waits_s) if waits_s else float("nan"),
        "saved_never": sum(saving.after_s is None for one in reactions for saving in _counted(one)),
        "cost_per_s": actual,
        "oracle_per_s": oracle,
        "regret_share": actual / oracle - 1,
        "plans": sum(one.plans for one in reactions) / count,
        "moves": sum(one.links + one.moves for one in reactions) / count,
        "undone": sum(one.plans_undone for one in reactions) / count,
        "gains_missed": sum(one.gains_missed for one in reactions) / count,
        "alarms": sum(one.alarms + _false_changes(one) for one in reactions) / count,
        **_kept(reactions),
        "decision_cpu_ms": statistics.fmean(cpu_ms for one in reactions for cpu_ms in one.decisions_cpu_ms),
    }


def _kept(reactions: Sequence[Reaction]) -> dict[str, float]:
    plans = [kept for one in reactions for kept in one.kept]
    values: dict[str, float] = {}
    for name, chosen in (("", plans), ("_small", [one for one in plans if one.predicted_share < SMALL_SHARE])):
        promised = sum(one.predicted_share for one in chosen)
        values[f"kept{name}"] = sum(one.observed_share for one in chosen) / promised if promised else float("nan")
        values[f"plans_kept{name}"] = len(chosen)
    return values


def _counted(reaction: Reaction) -> list[Saving]:
    return [saving for saving in reaction.savings if saving.reachable_share >= REACHABLE_SHARE_MIN]


def _waits_s(reaction: Reaction) -> list[float]:
    phases = COURSES[reaction.kind].phases
    return [
        end_s - start_s if saving.after_s is None else saving.after_s
        for saving, (start_s, end_s) in zip(reaction.savings, phases, strict=bool(reaction.savings))
        if saving.reachable_share >= REACHABLE_SHARE_MIN
    ]


def _false_changes(reaction: Reaction) -> int:
    """Count reported changes that were none; on a day, which changes all the time, only those before it begins."""
    if reaction.kind == "day":
        return sum(time_s < SHIFT_S for time_s in reaction.changes)
    starts_s = [] if reaction.kind == QUIET else [start_s for start_s, _ in COURSES[reaction.kind].phases]
    return sum(
        not any(0 <= time_s - start_s < REPORTED_WITHIN_S for start_s in starts_s) for time_s in reaction.changes
    )


def _baseline(file: Path) -> list[Figure]:
    return [Figure(**one) for one in json.loads(file.read_text(encoding="utf-8"))["figures"]]


def print_table(title: str, figures: Sequence[Figure], against: Sequence[Figure]) -> None:
    """Print a row for each kind; regret is taken against the oracle of ``against`` for kinds that it contains."""
    oracles = {one.where["kind"]: one.value for one in against if one.name == "oracle_per_s"}
    rows: dict[str, dict[str, float]] = {}
    for figure in figures:
        rows.setdefault(str(figure.where["kind"]), {})[figure.name] = figure.value
    print(f"{title} ({END_S} s a run, change at {SHIFT_S} s)")
    names = [name for name in next(iter(rows.values())) if all(name in row for row in rows.values())]
    print(f"{'kind':10}" + "".join(f"{name:>19}" for name in names))
    for kind, row in rows.items():
        if kind in oracles:
            row["oracle_per_s"] = oracles[kind]
            row["regret_share"] = row["cost_per_s"] / oracles[kind] - 1
        print(f"{kind:10}" + "".join(f"{row[name]:19,.3f}" for name in names))


if __name__ == "__main__":
    main()
