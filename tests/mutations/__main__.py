"""Remove each safeguard of the protocol and check that a test notices: `python -m tests.mutations [--only NAME ...]`.

Out: a table of mutations, each with the test, scenario or seed that failed first and after how long; progress goes to
standard error. The exit code is 1 if a mutation is invalid, or survives and is not known to be equivalent.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.kill_mutation import INVALID, KILLED, SURVIVED, MutatedCopy, Options, Verdict
from tests.mutations.known_mutations import Mutation, known_mutations

ROOT = Path(__file__).parents[2]
EQUIVALENT = "equivalent"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the mutations that the command line selects; return the exit code."""
    asked = _parser().parse_args(arguments)
    known = known_mutations()
    chosen = [one for one in known if not asked.only or one.name in asked.only]
    unknown = sorted(set(asked.only) - {one.name for one in known})
    if unknown:
        sys.stderr.write(f"no mutation is called {', '.join(unknown)}: see the lists in tests/mutations\n")
        return 2
    options = Options(asked.search_seconds, is_thorough=not asked.quick)
    began_s = time.monotonic()
    verdicts = _judge_all(chosen, options, asked.jobs)
    if asked.json:
        document = [dataclasses.asdict(verdict) for verdict in verdicts]
        Path(asked.json).write_text(json.dumps(document, indent=1) + "\n")
    for verdict in verdicts:
        sys.stdout.write(_line(verdict) + "\n")
    counts = Counter(verdict.outcome for verdict in verdicts)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(f"{len(verdicts)} mutations in {time.monotonic() - began_s:.0f} s: {summary}\n")
    return int(counts[SURVIVED] + counts[INVALID] > 0)


def _judge_all(chosen: Sequence[Mutation], options: Options, jobs: int) -> list[Verdict]:
    """Judge mutations, each job in its own copy."""
    with tempfile.TemporaryDirectory(prefix="regraft-mutations-") as folder:
        copies: SimpleQueue[MutatedCopy] = SimpleQueue()
        for number in range(jobs):
            copies.put(MutatedCopy(ROOT, Path(folder) / str(number)))

        def judge(mutation: Mutation) -> Verdict:
            copy = copies.get()
            try:
                verdict = copy.judge(mutation, options)
            finally:
                copies.put(copy)
            if mutation.equivalent and verdict.outcome == SURVIVED:
                verdict = dataclasses.replace(verdict, outcome=EQUIVALENT, text=mutation.equivalent)
            sys.stderr.write(_line(verdict) + "\n")
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, chosen))


def _line(verdict: Verdict) -> str:
    word = verdict.outcome if verdict.outcome == KILLED else verdict.outcome.upper()
    what = verdict.killer or " ".join(verdict.text.split())
    return f"{verdict.name:<46} {word:<10} {verdict.seconds:>6.1f} s  {what}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutations only")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--search-seconds", type=float, default=20.0, help="for the random search, for each mutation")
    parser.add_argument("--quick", action="store_true", help="leave out the slow scenarios of the model")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
