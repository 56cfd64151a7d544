"""Search thousands of seeds for a run that breaks the promise: `python -m tests.scenarios.search --minutes 10`.

In: a duration, overlays, and the first seed. Out: runs per second, what they covered, and each sort of failure with the
options that repeat it, schedule, shortest run and trace; exit code 1 if there is one. Half of the runs have few
features; `--seed` repeats one seed, with all that it draws. `--record` keeps the shortest failing runs as files that
`tests/scenarios/test_recorded_runs.py` repeats.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.scenarios.any_order_clients import REMOTE
from tests.scenarios.any_order_deeds import DEATHS, FEATURES, LIVING, MOVERS
from tests.scenarios.any_order_leaders import RIVALS
from tests.scenarios.any_order_members import MEMBERS
from tests.scenarios.any_order_run import OVERLAYS, RunResult, RunSpec, run
from tests.scenarios.any_order_schedules import QUICK, SCHEDULES
from tests.scenarios.shrink_run import RunShrinker, trace_of
from tests.scenarios.trace_run import record_of, text_of

PROGRESS_S = 10.0
TRACE_LINES_MAX = 120
PLAIN_SHARE = 0.5  # The share of runs with few features: other faults hide some faults.
PLAIN_FEATURES_MAX = 2
Job = tuple[int, str, tuple[str, ...], str | None]


@dataclass
class Found:
    """The result of a search: how often each sort of failure occurred, and its shortest run as seed and overlay."""

    runs: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    shortest: dict[str, tuple[int, Job]] = field(default_factory=dict)
    first_after: dict[str, int] = field(default_factory=dict)

    def add(self, job: Job, kind: str, action_count: int, counts: dict[str, int]) -> None:
        """Add one run."""
        self.runs += 1
        self.counts.update(counts)
        if kind:
            name = f"{job[1]}: {kind}"
            self.failures[name] += 1
            self.first_after.setdefault(name, self.runs)
            self.shortest[name] = min(self.shortest.get(name, (action_count, job)), (action_count, job))

    def progress(self) -> str:
        """Describe the progress."""
        failures = ", ".join(f"{count} x {name}" for name, count in self.failures.most_common()) or "none"
        return f"{self.runs} runs in {self.seconds:.0f} s, {self.runs_per_s:.1f}/s; failures: {failures}"

    @property
    def runs_per_s(self) -> float:
        """The number of runs per second."""
        return self.runs / max(self.seconds, 1e-9)


def spec_of(job: Job) -> RunSpec:
    """Return the spec of a job."""
    seed, overlay, without, schedule = job
    return RunSpec.of(seed, overlay, without, schedule)


def left_out(seed: int, overlay: str) -> tuple[str, ...]:
    """Return the features that this run lacks: none, or for a plain run all but a few."""
    rng = random.Random(f"{seed} {overlay} plain")
    if rng.random() >= PLAIN_SHARE:
        return ()
    names = [*FEATURES, *DEATHS, *LIVING, *REMOTE, *MOVERS, *RIVALS, *MEMBERS]
    kept = rng.sample(names, rng.randint(0, PLAIN_FEATURES_MAX))
    return tuple(name for name in names if name not in kept)


def do_job(job: Job) -> tuple[Job, str, int, dict[str, int]]:
    """Perform one run and return what counts of it."""
    result = run(spec_of(job))
    return job, result.kind, len(result.actions), result.counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Search as the arguments say; return the exit code."""
    options = _parser().parse_args(arguments)
    without = tuple(name for name in options.without.split(",") if name)
    overlays = OVERLAYS if options.overlay == "all" else (options.overlay,)
    jobs: Iterator[Job] = (
        (seed, overlay, (*without, *(left_out(seed, overlay) if options.seed is None else ())), options.schedule)
        for seed in ([options.seed] if options.seed is not None else itertools.count(options.seed_first))
        for overlay in overlays
    )
    found = _search(jobs, options)
    reports = [_report(name, found, options) for name in sorted(found.shortest)]
    document = {
        "runs": found.runs,
        "runs_per_s": round(found.runs_per_s, 1),
        "covered": dict(found.counts),
        "failures": reports,
    }
    _print(json.dumps(document) if options.json else f"{found.progress()}\ncovered: {dict(found.counts)}")
    return 1 if reports else 0


def _search(jobs: Iterator[Job], options: argparse.Namespace) -> Found:
    """Perform runs until the time is over or, without --keep-going, one has failed."""
    found = Found()
    began_s = reported_s = time.monotonic()
    end_s = began_s + options.minutes * 60
    pool = multiprocessing.get_context("spawn").Pool(options.processes) if options.processes > 1 else None
    results = map(do_job, jobs) if pool is None else pool.imap_unordered(do_job, _bounded(jobs, end_s))
    for job, kind, action_count, counts in results:
        found.add(job, kind, action_count, counts)
        now_s = time.monotonic()
        found.seconds = now_s - began_s
        if now_s - reported_s > PROGRESS_S:
            reported_s = now_s
            sys.stderr.write(found.progress() + "\n")
        if now_s > end_s or (found.failures and not options.keep_going):
            break
    if pool is not None:
        pool.terminate()
    return found


def _bounded(jobs: Iterator[Job], end_s: float) -> Iterator[Job]:
    """Yield jobs no faster than they are performed: a pool takes all jobs that it can get."""
    for job in jobs:
        if time.monotonic() > end_s:
            return
        yield job
        time.sleep(0.01)


def _report(name: str, found: Found, options: argparse.Namespace) -> dict[str, Any]:
    """Shrink the shortest run that failed in this way, and describe what happened in it."""
    _, job = found.shortest[name]
    shrinker = RunShrinker(run(spec_of(job)), options.shrink_seconds)
    shortest: RunResult = shrinker.shrink()
    trace = trace_of(shortest)
    shown = _head_and_tail(trace, options.trace_lines)
    record = record_of(shortest)
    if options.record:
        folder = Path(options.record)
        folder.mkdir(parents=True, exist_ok=True)
        words = "_".join("".join(one if one.isalnum() else " " for one in shortest.kind).lower().split()[:6])
        (folder / f"{job[1]}_{words}_{job[0]}.json").write_text(text_of(record))
    if not options.json:
        without = f" --without {','.join(job[2])}" if job[2] else ""
        _print(
            f"\n=== {name}\nrepeat: --seed {job[0]} --overlay {job[1]}{without}\n"
            f"schedule {shortest.spec.schedule}, {found.failures[name]} of {found.runs} runs, "
            f"first after {found.first_after[name]}; "
            f"shrunk to {len(shortest.actions)} actions in {shrinker.tried} tries\n{shortest.failure}\n"
            + "\n".join(shown)
        )
    return {
        "kind": shortest.kind,
        "text": str(shortest.failure),
        "count": found.failures[name],
        "first_after": found.first_after[name],
        "run": record,
        "trace": shown,
    }


def _head_and_tail(lines: list[str], count: int) -> list[str]:
    """Return at most this many lines: two thirds from the beginning, where clients act, the others from the end."""
    if len(lines) <= count:
        return lines
    head = 2 * count // 3
    return [*lines[:head], f"      ... {len(lines) - count} lines ...", *lines[len(lines) - count + head :]]


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    known = FEATURES | DEATHS | LIVING | REMOTE | MOVERS | RIVALS | MEMBERS
    features = "; ".join(f"{name}: {text}" for name, text in known.items())
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.search", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to search")
    parser.add_argument("--overlay", choices=(*OVERLAYS, "all"), default="all")
    parser.add_argument("--seed-first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="do this seed only")
    parser.add_argument("--schedule", choices=(*SCHEDULES, QUICK), help="this schedule instead of the seed's")
    parser.add_argument("--without", default="", help=f"features that no run has, by comma: {features}")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shrink-seconds", type=float, default=60.0, help="for each sort of failure")
    parser.add_argument("--trace-lines", type=int, default=TRACE_LINES_MAX)
    parser.add_argument("--record", help="folder for the shortest failing runs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:  # Equal seeds must give equal runs, whatever the order of sets.
        again = [sys.executable, "-m", "tests.scenarios.search", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
