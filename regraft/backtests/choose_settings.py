"""Choose a planner and its horizon by what each would have cost on a recording, with confidence intervals.

In: the outcomes of candidates over the same windows. Out: a Choice. Running the candidates belongs to ``run_backtest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from regraft.backtests.backtest_outcome import Outcome
from regraft.controller.planners.planner_registry import PLANNERS, planner_names, planner_spec
from regraft.controller.settings.controller_settings import ControllerSettings

AUTO = "auto"
HORIZONS_LIFETIMES = (0.5, 1.0, 2.0, 4.0)
SAMPLES = 2_000
LEVEL = 0.95
SEED = 1


class Candidate(msgspec.Struct, frozen=True):
    """A chain of planners, and how many subscription lifetimes it looks back; None keeps the configured value."""

    planner: str
    horizon_lifetimes: float | None = None

    @property
    def name(self) -> str:
        """Its name: the chain, and the horizon unless it is the configured one."""
        if self.horizon_lifetimes is None:
            return self.planner
        return f"{self.planner}, horizon_lifetimes {self.horizon_lifetimes:g}"

    def applied_to(self, settings: ControllerSettings) -> ControllerSettings:
        """Return the settings with this planner, without shadows."""
        lifetimes = settings.horizon_lifetimes if self.horizon_lifetimes is None else self.horizon_lifetimes
        return replace(settings, planner=self.planner, horizon_lifetimes=lifetimes, shadow_planners=())


CHOICE_HEADS = ("candidate", "cost/s", "above best", "interval", "changes", "verdict")


@dataclass(frozen=True)
class Compared:
    """A candidate's mean cost, and by what share it exceeds the cheapest candidate's, with a confidence interval."""

    name: str
    cost_per_s: float
    above_share: float
    low_share: float
    high_share: float
    changes: int

    @property
    def is_indistinguishable(self) -> bool:
        """Return True if it is statistically indistinguishable from the best."""
        return self.low_share <= 0


@dataclass(frozen=True)
class Choice:
    """All candidates, best first; the choice is the one with the fewest changes of those as good as the best."""

    compared: tuple[Compared, ...]
    windows: int
    block_windows: int

    @property
    def chosen(self) -> Compared:
        """The chosen candidate."""
        return min(
            (one for one in self.compared if one.is_indistinguishable), key=lambda one: (one.changes, one.cost_per_s)
        )

    @property
    def text(self) -> str:
        """The choice and its reason."""
        return (
            f"Use {self.chosen.name}: of {len(self.compared)} candidates on {self.windows} windows it makes the fewest "
            "changes among those that are statistically indistinguishable from the best. Intervals hold "
            f"{LEVEL:.0%} of {SAMPLES:,} samples in blocks of {self.block_windows} windows; costs exclude "
            "the messages of the transitions themselves."
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each candidate, best first, under CHOICE_HEADS."""
        return [
            (
                one.name,
                f"{one.cost_per_s:,.0f}",
                f"{one.above_share:+.1%}",
                f"{one.low_share:+.1%} to {one.high_share:+.1%}",
                str(one.changes),
                "use this" if one is self.chosen else "as good" if one.is_indistinguishable else "",
            )
            for one in self.compared
        ]


def candidates_for(kind: str, acting: str) -> tuple[Candidate, ...]:
    """Return all planners of a kind of overlay, and the acting and the default chain with each horizon."""
    singles = sorted(name for name, spec in PLANNERS.items() if spec.kind == kind)
    default = ControllerSettings.planner
    suits = all(planner_spec(name).kind == kind for name in planner_names(default))
    chains = dict.fromkeys([acting, *([default] if suits else [])])
    candidates = [Candidate(name) for name in singles if name not in chains]
    return (*candidates, *(Candidate(chain, lifetimes) for chain in chains for lifetimes in HORIZONS_LIFETIMES))


def choose(outcomes: Iterable[Outcome]) -> Choice:
    """Compare candidates on the windows that all of them have.

    The confidence interval is that of the relative difference to the best. Each sample uses the same windows for both,
    so that what they have in common cancels out. Because subscriptions last for many windows, it is a circular block
    bootstrap; its blocks are of n^(1/2) windows, longer than those of Künsch (1989), because plans last as well. Raises
    ValueError if the candidates share no window.
    """
    costed = [outcome for outcome in outcomes if outcome.points]
    ends = sorted(set.intersection(*({point.end_ms for point in one.points} for one in costed))) if costed else []
    if not ends:
        raise ValueError("the candidates share no window: choose a longer part of the recording")
    costs = np.array([_costs(outcome, ends) for outcome in costed])
    best = int(costs.mean(axis=1).argmin())
    block = max(round(len(ends) ** 0.5), 1)
    picked = _block_samples(len(ends), block, np.random.default_rng(SEED))
    base = costs[best][picked].mean(axis=1)
    tail = (1 - LEVEL) / 2
    chosen = []
    for outcome, row in zip(costed, costs, strict=True):
        shares = row[picked].mean(axis=1) / base - 1
        low, high = np.quantile(shares, [tail, 1 - tail])
        changes = outcome.links_exchanged + outcome.moves + outcome.id_moves
        above = float(row.mean() / costs[best].mean() - 1)
        chosen.append(Compared(outcome.planner, float(row.mean()), above, float(low), float(high), changes))
    return Choice(tuple(sorted(chosen, key=lambda one: one.cost_per_s)), len(ends), block)


def _costs(outcome: Outcome, ends: Sequence[int]) -> list[float]:
    by_end = {point.end_ms: point.cost_per_s for point in outcome.points}
    return [by_end[end] for end in ends]


def _block_samples(count: int, block: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return indices of windows, shape (SAMPLES, count); each row joins blocks with random starts that wrap around."""
    starts = generator.integers(count, size=(SAMPLES, -(-count // block), 1))
    places = (starts + np.arange(block)) % count
    return places.reshape(SAMPLES, -1)[:, :count]
