"""The result of a backtest of one planner in one mode: plain values that processes can exchange.

Nothing but sums is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

RECORDED, BOOTSTRAP, LEAST = "as recorded", "bootstrap overlay", "lower bound"


class Mode(StrEnum):
    """Whether the planner decided on what was recorded, or on an overlay that obeyed it."""

    OPEN_LOOP = "open_loop"
    CLOSED_LOOP = "closed_loop"


MODE_TITLES = {
    Mode.OPEN_LOOP: "Open loop: decided on what was recorded",
    Mode.CLOSED_LOOP: "Closed loop: acted on the emulator again",
}


class CostPoint(msgspec.Struct, frozen=True, array_like=True):
    """What one complete window cost, per second, and would have cost on the bootstrap overlay.

    ``cost_least_per_s`` is a lower bound on any overlay's cost in it, None if unknown.
    """

    end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_least_per_s: float | None = None


class PlanMark(msgspec.Struct, frozen=True):
    """One plan: when it was made, what it changed, its predicted and, once verified, its observed gain."""

    plan: str
    time_ms: int
    links: int
    moves: int
    id_moves: int
    gain_predicted_per_s: float
    cost_observed_per_s: float | None
    is_undo: bool = False


class Deliveries(msgspec.Struct, frozen=True):
    """The account of a re-simulation: ``published`` counts notifications, the rest hand-overs to subscriptions.

    ``lost_to_deaths`` had to cross a broker that died: no fault, and not among the ``lost``.
    """

    published: int
    expected: int
    lost: int
    lost_to_deaths: int
    repeated: int
    out_of_order: int


class DecisionTime(msgspec.Struct, frozen=True):
    """How long decisions took, judge and choice included."""

    count: int = 0
    mean_ms: float = 0.0
    max_ms: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one planner, or of an overlay left as it was.

    ``planner`` is its chain, or one of RECORDED, BOOTSTRAP and LEAST, a lower bound on any tree's cost.
    ``plans_taken_back`` of the ``plans`` made things worse and were undone. ``windows_unknown`` have an overlay that
    nothing recorded describes. ``refusals`` is by verdict, ``faults`` counts decisions that raised. ``deliveries`` is
    None in an open loop, which has no transitions. ``is_settled`` is False where a plan was still under way at the end.
    ``links_corrected`` counts the links that cost at the end what round trips say instead of what the inventory says,
    ``changes_found_ms`` lists since when traffic was different, change by change.
    """

    planner: str
    mode: Mode
    points: tuple[CostPoint, ...]
    plans: tuple[PlanMark, ...] = ()
    plans_taken_back: int = 0
    windows_incomplete: int = 0
    windows_unknown: int = 0
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    decision_time: DecisionTime = DecisionTime()
    faults: int = 0
    fault_text: str = ""
    deliveries: Deliveries | None = None
    is_settled: bool = True
    links_corrected: int = 0
    changes_found_ms: tuple[int, ...] = ()

    @property
    def is_yardstick(self) -> bool:
        """Return True if nobody decided anything here."""
        return self.planner in (RECORDED, BOOTSTRAP, LEAST)

    @property
    def cost_mean_per_s(self) -> float | None:
        """The mean cost over the complete windows; None without one."""
        return sum(point.cost_per_s for point in self.points) / len(self.points) if self.points else None

    @property
    def saved_share(self) -> float | None:
        """The share of what the bootstrap overlay would have cost on the same windows; None where that is nothing."""
        total = sum(point.cost_bootstrap_per_s for point in self.points)
        return 1 - sum(point.cost_per_s for point in self.points) / total if total > 0 else None

    @property
    def links_exchanged(self) -> int:
        """How many links plans put in."""
        return sum(plan.links for plan in self.plans)

    @property
    def moves(self) -> int:
        """How often plans moved a client."""
        return sum(plan.moves for plan in self.plans)

    @property
    def id_moves(self) -> int:
        """How many ring IDs plans reassigned."""
        return sum(plan.id_moves for plan in self.plans)


def outcomes_by_mode(outcomes: Sequence[Outcome]) -> list[tuple[Mode, list[Outcome]]]:
    """Return the outcomes of each mode that has any, in their order."""
    found = [(mode, [outcome for outcome in outcomes if outcome.mode is mode]) for mode in Mode]
    return [(mode, shown) for mode, shown in found if shown]
