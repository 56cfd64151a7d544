"""Search seeds for a run of agents that breaks the promise: `python -m tests.scenarios.agents.search_agents mqtt 600`.

In: the protocol, seconds, and perhaps the first seed. Out: what the runs covered, and each sort of failure with its
first seed and the shortest run that fails alike. The exit code is 1 if there is one.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.scenarios.agents.agents_run import AgentsResult, AgentsSpec, run_agents
from tests.scenarios.agents.agents_site import Action


def shortened(failing: AgentsResult, seconds_max: float = 60.0) -> list[Action]:
    """Return the fewest actions found that fail alike: pieces are left out, ever smaller ones."""
    actions, end_s = list(failing.actions), time.monotonic() + seconds_max
    size = max(len(actions) // 2, 1)
    while size and time.monotonic() < end_s:
        place = 0
        while place < len(actions) and time.monotonic() < end_s:
            tried = actions[:place] + actions[place + size :]
            if run_agents(failing.spec, tried).kind == failing.kind:
                actions = tried
            else:
                place += size
        size //= 2
    return actions


def main(arguments: Sequence[str]) -> int:
    """Search as long as the arguments say; return the exit code."""
    protocol, seconds, *more = arguments
    end_s = time.monotonic() + float(seconds)
    counts: Counter[str] = Counter()
    first: dict[str, AgentsResult] = {}
    for seed in itertools.count(int(more[0]) if more else 0):
        if time.monotonic() > end_s:
            break
        result = run_agents(AgentsSpec.of(seed, protocol))
        counts += result.counts + Counter(runs=1)
        if result.failure is not None and result.kind not in first:
            first[result.kind] = result
            sys.stdout.write(f"{result.spec}: {result.failure}\n")
    for result in first.values():
        actions = "\n".join(map(str, shortened(result)))
        sys.stdout.write(f"\n{result.kind}, {result.spec}:\n{actions}\n")
    sys.stdout.write(f"{dict(counts)}\n")
    return int(bool(first))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
