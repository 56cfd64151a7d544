"""The result of a backtest of one planner in one mode: plain values that processes can exchange.

It computes nothing but sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from regraft.schemas.shown_state import DecisionTimes

RECORDED, BOOTSTRAP, LEAST = "as recorded", "bootstrap overlay", "lower bound"


class Mode(StrEnum):
    """Whether the planner decided on recorded windows, or on an emulated overlay that executed its plans."""

    OPEN_LOOP = "open_loop"
    CLOSED_LOOP = "closed_loop"


MODE_TITLES = {
    Mode.OPEN_LOOP: "Open loop: decided on what was recorded",
    Mode.CLOSED_LOOP: "Closed loop: acted on the emulator again",
}


class CostPoint(msgspec.Struct, frozen=True, array_like=True):
    """The cost per second of one complete window, and what it would have been on the bootstrap overlay.

    ``cost_least_per_s`` is a lower bound on the cost of any overlay in this window, None if unknown.
    """

    end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_least_per_s: float | None = None


class PlanMark(msgspec.Struct, frozen=True):
    """One plan: when it was made, what it changed, its predicted gain and, once verified, its observed cost."""

    plan: str
    time_ms: int
    links: int
    moves: int
    id_moves: int
    gain_predicted_per_s: float
    cost_observed_per_s: float | None
    is_undo: bool = False


class Deliveries(msgspec.Struct, frozen=True):
    """Deliveries in a closed loop: ``published`` counts notifications, the others count hand-overs to subscriptions.

    ``lost_to_deaths`` had to cross a broker that died; this is not an error, and they are not counted in ``lost``.
    """

    published: int
    expected: int
    lost: int
    lost_to_deaths: int
    repeated: int
    out_of_order: int


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one planner, or of a yardstick.

    ``planner`` is its chain, or one of RECORDED, BOOTSTRAP and LEAST (a lower bound on the cost of any tree).
    ``plans_rolled_back`` counts the ``plans`` that were rolled back because they made things worse. ``windows_unknown``
    counts windows whose overlay no recorded plan describes. ``refusals`` counts proposals by verdict, ``errors`` counts
    decisions that raised. ``deliveries`` is None in an open loop, which has no transitions. ``is_settled`` is False if
    a plan was still in progress at the end. ``links_corrected`` counts the links whose cost at the end came from round
    trips instead of the inventory. ``changes_found_ms`` lists the start of each change of traffic that was detected.
    ``subscribers`` is the most in any window if clients stay by the inventory, ``movable`` how many of those may move.
    """

    planner: str
    mode: Mode
    points: tuple[CostPoint, ...]
    plans: tuple[PlanMark, ...] = ()
    plans_rolled_back: int = 0
    windows_incomplete: int = 0
    windows_unknown: int = 0
    refusals: dict[str, int] = msgspec.field(default_factory=dict)
    decision_time: DecisionTimes = DecisionTimes()
    errors: int = 0
    error_text: str = ""
    deliveries: Deliveries | None = None
    is_settled: bool = True
    links_corrected: int = 0
    changes_found_ms: tuple[int, ...] = ()
    subscribers: int = 0
    movable: int = 0

    @property
    def is_yardstick(self) -> bool:
        """Return True if no planner made this outcome."""
        return self.planner in (RECORDED, BOOTSTRAP, LEAST)

    @property
    def cost_mean_per_s(self) -> float | None:
        """The mean cost over the complete windows; None if there is none."""
        return sum(point.cost_per_s for point in self.points) / len(self.points) if self.points else None

    @property
    def saved_share(self) -> float | None:
        """The saving as a share of the bootstrap overlay's cost on the same windows; None if that is 0 or unknown."""
        total = sum(point.cost_bootstrap_per_s for point in self.points)
        return 1 - sum(point.cost_per_s for point in self.points) / total if total > 0 else None

    @property
    def links_exchanged(self) -> int:
        """How many links the plans added."""
        return sum(plan.links for plan in self.plans)

    @property
    def moves(self) -> int:
        """How many clients the plans moved, counting each move."""
        return sum(plan.moves for plan in self.plans)

    @property
    def id_moves(self) -> int:
        """How many ring IDs the plans reassigned."""
        return sum(plan.id_moves for plan in self.plans)


def outcomes_by_mode(outcomes: Sequence[Outcome]) -> list[tuple[Mode, list[Outcome]]]:
    """Return each mode that has outcomes with its outcomes, in the given order."""
    by_mode = [(mode, [outcome for outcome in outcomes if outcome.mode is mode]) for mode in Mode]
    return [(mode, shown) for mode, shown in by_mode if shown]
