"""Where the subscribers that a plan has moved would be without it, on the windows after it.

In: an executed plan, windows of its epoch and after, later plans. Out: the same windows with these subscribers at other
brokers, as far as brokers told what they take apart from the others (:mod:`schemas.part_blocks`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.window_parts import PartKey
from regraft.schemas.part_blocks import number_of_moved
from regraft.schemas.plan import HomeMove, Plan


def follower_of(plan: Plan, in_force: Iterable[Plan]) -> Plan | None:
    """Return the first later plan that moved subscribers on which this one had moved, None where there is none."""
    homes = {move.home_to for move in plan.subscribers_moved}
    later = (one for one in in_force if one.epoch_to > plan.epoch_to)
    return next((one for one in later if homes & {move.home_from for move in one.subscribers_moved}), None)


def is_told(plan: Plan, window: ClosedWindow) -> bool:
    """Return True if each broker to which the plan moved subscribers tells parts, or delivered nothing."""
    serving = {broker for _, broker in window.local_deliveries}
    homes = {move.home_to for move in plan.subscribers_moved}
    return all(window.parts.are_told_at(home) for home in homes & serving)


def windows_before(plan: Plan, windows: Sequence[ClosedWindow]) -> list[ClosedWindow]:
    """Return the windows as if the plan had moved no subscribers."""
    back = {_part(plan, move): move.home_from for move in plan.subscribers_moved}
    return [window.with_parts_moved(back) for window in windows]


class MovedGroups:
    """The groups of subscribers that a plan moves, followed through its proposals one after the other."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._at = {move.home_from: move.home_from for move in plan.subscribers_moved}

    def after(self, moves: Sequence[HomeMove], windows: Sequence[ClosedWindow]) -> list[ClosedWindow]:
        """Return the windows with the groups where the next proposal sends them."""
        to: dict[PartKey, str] = {}
        targets = {move.home_from: move.home_to for move in moves}
        for first, now in self._at.items():
            if now in targets:
                to[now, number_of_moved(self._plan.epoch_to, first)] = self._at[first] = targets[now]
        return [window.with_parts_moved(to) for window in windows]


def _part(plan: Plan, move: HomeMove) -> PartKey:
    return move.home_to, number_of_moved(plan.epoch_to, move.home_from)
