"""Shorten a failing any-order run: as few actions as still fail in the same way.

In: a failing RunResult. Out: one with fewer actions. Actions are self-contained and impossible ones are skipped, so any
of them can be dropped: first all after the failure, then those of clients, then the rest, in ever smaller pieces (delta
debugging). What the remaining actions leave undone happens after them, in the plain order of the finish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.scenarios.any_order import Action
from tests.scenarios.any_order_account import AccountRules
from tests.scenarios.any_order_run import RunResult, run
from tests.scenarios.any_order_schedules import PLAIN

NETWORK = frozenset({"cross", "serve", "command", "result", "advance"})
SECONDS_MAX = 60.0


class RunShrinker:
    """Tries shorter lists of actions until the time is over; ``shortest`` is the best so far."""

    def __init__(self, failing: RunResult, seconds_max: float = SECONDS_MAX, rules: AccountRules | None = None) -> None:
        self.shortest = failing
        self.tried = 0
        self._kind = failing.kind
        self._rules = rules
        self._end_s = time.monotonic() + seconds_max

    def shrink(self) -> RunResult:
        """Return the shortest run found that fails in the same way."""
        self._try(self.shortest.actions)
        self._use_plain_finish()
        self._cut_the_end()
        before = -1
        while before != len(self.shortest.actions) and self._has_time:
            before = len(self.shortest.actions)
            self._drop(lambda action: action[0] not in NETWORK)
            self._drop(lambda _: True)
            self._simplify_plans()
        return self.shortest

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._end_s

    def _try(self, actions: Sequence[Action], finish: str | None = None) -> bool:
        """Run these actions; keep them if the failure is the same."""
        self.tried += 1
        spec = replace(self.shortest.spec, finish=finish or self.shortest.spec.finish)
        result = run(spec, actions, rules=self._rules)
        if result.kind == self._kind:
            self.shortest = result
        return result.kind == self._kind

    def _use_plain_finish(self) -> None:
        self._try(self.shortest.actions, PLAIN)

    def _cut_the_end(self) -> None:
        """Keep the shortest sufficient beginning, by bisection."""
        shortest, longest = 0, len(self.shortest.actions)
        while shortest < longest and self._has_time:
            middle = (shortest + longest) // 2
            if self._try(self.shortest.actions[:middle]):
                longest = min(middle, len(self.shortest.actions))
            else:
                shortest = middle + 1

    def _drop(self, may_drop: Callable[[Action], bool]) -> None:
        """Drop pieces of the actions that may be dropped, first half of them, finally one at a time."""
        size = max(len(self.shortest.actions) // 2, 1)
        while self._has_time:
            at = 0
            while at < len(self.shortest.actions) and self._has_time:
                actions = self.shortest.actions
                chosen = [position for position, action in enumerate(actions) if may_drop(action)]
                piece = set(chosen[at : at + size])
                if not piece:
                    break
                if not self._try([action for position, action in enumerate(actions) if position not in piece]):
                    at += size
            if size == 1:
                return
            size //= 2

    def _simplify_plans(self) -> None:
        """Let plans change and move less."""
        for position, action in enumerate(self.shortest.actions):
            if action[0] != "plan":
                continue
            for part in (1, 2):
                for dropped in range(len(action[part]) - 1, -1, -1):
                    actions = list(self.shortest.actions)
                    if position < len(actions) and actions[position][0] == "plan" and self._has_time:
                        kept = [one for at, one in enumerate(actions[position][part]) if at != dropped]
                        simpler = list(actions[position])
                        simpler[part] = tuple(kept)
                        actions[position] = tuple(simpler)
                        self._try(actions)


def trace_of(result: RunResult, rules: AccountRules | None = None) -> list[str]:
    """Repeat the actions of a result and return what happened, line by line."""
    traced = run(result.spec, result.actions, rules=rules, is_traced=True)
    return [*(traced.overlay.trace or ()), f"      {traced.failure or 'nothing broke'}"]
