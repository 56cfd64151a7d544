"""Breadth-first search over all states of a model: the shortest path to a fault, or the proof that there is none.

In: a model and bounds. Out: a Result, with the moves of a counterexample. Each state is expanded once. Runs are finite
(each move consumes a message, a command or a step of a script), so every run ends in a state without moves, in which
the promises about endings are checked; all other promises are checked with each move.
"""

from __future__ import annotations

import sys
import time
from array import array
from dataclasses import dataclass

from tests.scenarios.model.check_endings import EndingChecks
from tests.scenarios.model.kept_account import Violation
from tests.scenarios.model.overlay_model import Move, OverlayModel, State
from tests.scenarios.model.reduce_moves import Reduction

PROGRESS_S = 10.0


@dataclass(frozen=True)
class Bounds:
    """When a search is cut off: ``states_max``, ``seconds_max``; and whether moves are left out if that is sound."""

    states_max: int = 5_000_000
    seconds_max: float = 3600.0
    is_reduced: bool = True


@dataclass(frozen=True)
class Result:
    """The result of a search; ``moves`` lead to the fault. ``is_complete``: nothing was cut off."""

    states: int
    transitions: int
    endings: int
    depth: int
    seconds: float
    is_complete: bool
    fault: str = ""
    moves: tuple[Move, ...] = ()


class Search:
    """One search; states are numbered in the order in which they are found."""

    def __init__(self, name: str, model: OverlayModel, first: State, bounds: Bounds) -> None:
        self._name = name
        self._model = model
        self._bounds = bounds
        self._endings = EndingChecks(model)
        self._reduction = Reduction(model)
        self._first = first
        self._seen: set[State] = {first}
        self._came_from = array("q", [0])
        self._came_by: list[Move] = [()]
        self.endings: list[State] = []
        self._transitions = self._depth = 0
        self._begin_s = self._told_s = time.monotonic()

    def run(self) -> Result:
        """Search until a fault is found, all states are seen or a bound is reached."""
        level = [(0, self._first)]
        while level:
            following: list[tuple[int, State]] = []
            for number, state in level:
                fault, moves = self._expand(number, state, following)
                if fault:
                    return self._result(is_complete=False, fault=fault, moves=moves)
                if self._is_cut():
                    return self._result(is_complete=False)
            self._depth += bool(following)
            level = following
        return self._result(is_complete=True)

    def _expand(self, number: int, state: State, following: list[tuple[int, State]]) -> tuple[str, tuple[Move, ...]]:
        model, seen = self._model, self._seen
        moves = model.moves(state)
        if not moves:
            self.endings.append(state)
            fault = self._endings.fault(state)
            return (fault, self._way_to(number)) if fault else ("", ())
        for move in self._reduction.chosen(state, moves) if self._bounds.is_reduced else moves:
            self._transitions += 1
            try:
                after = model.take(state, move)
            except Violation as violation:
                return str(violation), (*self._way_to(number), move)
            seen.add(after)
            if len(seen) > len(self._came_by):  # It is new.
                following.append((len(self._came_by), after))
                self._came_from.append(number)
                self._came_by.append(move)
        return "", ()

    def _way_to(self, number: int) -> tuple[Move, ...]:
        moves: list[Move] = []
        while number:
            moves.append(self._came_by[number])
            number = self._came_from[number]
        return tuple(reversed(moves))

    def _is_cut(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._told_s > PROGRESS_S:
            self._told_s = now_s
            rate = len(self._seen) / (now_s - self._begin_s)
            text = f"{self._name}: {len(self._seen):,} states at depth {self._depth}, {rate:,.0f}/s"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
        return len(self._seen) >= self._bounds.states_max or now_s - self._begin_s > self._bounds.seconds_max

    def _result(self, *, is_complete: bool, fault: str = "", moves: tuple[Move, ...] = ()) -> Result:
        seconds = time.monotonic() - self._begin_s
        return Result(
            len(self._seen), self._transitions, len(self.endings), self._depth, seconds, is_complete, fault, moves
        )
