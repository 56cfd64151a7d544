"""Verdicts on claims with their evidence, and lookup of the figures that they are based on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from regraft.api.programs import Figure

Value = str | int | float


class Verdict(StrEnum):
    """What the figures say about a claim; :mod:`regraft_lab.judge_size` has the rule."""

    REPRODUCED = "reproduced"
    EXCEEDED = "exceeded"
    SMALLER = "smaller"
    REFUTED = "refuted"
    UNDECIDED = "not decidable"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the figures behind it."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with half the width of its 95 % interval; None if unknown, which makes the interval infinite."""

    mean: float
    half: float | None

    @property
    def low(self) -> float:
        """The lower end; minus infinity without an interval."""
        return float("-inf") if self.half is None else self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end; infinity without an interval."""
        return float("inf") if self.half is None else self.mean + self.half

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.half is None else f"{self.mean:.3f} ± {self.half:.3f}"


class Measured:
    """Figures to look up by name and setting."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._by_name: dict[str, list[Figure]] = {}
        for figure in figures:
            self._by_name.setdefault(figure.name, []).append(figure)

    def value(self, name: str, **where: Value) -> float | None:
        """Return the first figure of that name whose setting contains ``where``; None if there is none."""
        for figure in self._by_name.get(name, []):
            if where.items() <= figure.where.items():
                return figure.value
        return None

    def interval(self, name: str, **where: Value) -> Interval | None:
        """Return a mean with its interval; None if there is no such figure."""
        mean = self.value(name, **where)
        return None if mean is None else Interval(mean, self.value(f"{name}_ci95", **where))

    def all(self, name: str, **where: Value) -> list[float]:
        """Return every figure of that name whose setting contains ``where``."""
        return [each.value for each in self._by_name.get(name, []) if where.items() <= each.where.items()]

    def steps(self, name: str, step: str, **where: Value) -> list[float]:
        """Return the values of the setting ``step`` for which there are figures, ascending."""
        steps = {
            float(figure.where[step])
            for figure in self._by_name.get(name, [])
            if step in figure.where and where.items() <= figure.where.items()
        }
        return sorted(steps)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: its place in the paper, its text, how it is tested, and its judge."""

    place: str
    text: str
    test: str
    judge: Callable[[Measured], Judgement]

    def judged(self, measured: Measured) -> Judgement:
        """Return the judgement on these figures."""
        return self.judge(measured)


def undecided(what: str = "no figure") -> Judgement:
    """Return the judgement "not decidable" with its reason."""
    return Judgement(Verdict.UNDECIDED, what)


def verdict(holds: bool, fails: bool, evidence: str) -> Judgement:
    """Return "reproduced" if ``holds``, else "refuted" if ``fails``, else "not decidable", with the evidence."""
    return Judgement(Verdict.REPRODUCED if holds else Verdict.REFUTED if fails else Verdict.UNDECIDED, evidence)


def listed(intervals: Mapping[float, Interval], share: bool = False) -> str:
    """Return means with their intervals by step as readable text."""
    return ", ".join(f"{step:g}: {each.mean:.2%}" if share else f"{step:g}: {each}" for step, each in intervals.items())
