"""Pack the users of a tree onto fewer and cheaper brokers: empty brokers while that saves, then search links and homes.

In: the state of a tree with the cost of its traffic, and how many subscribers each broker has. Out: a sequence of
proposals, each costed on the overlay after the earlier ones. Whether a gain is worth its transition cost does not
belong here. ``regraft_lab.yardsticks.pack_drop`` applies the same idea to an instance of the paper, with a bound.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from regraft.controller.kinds.overlay_kind import OVERLOAD
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.move_single import single_moves
from regraft.controller.planners.tree.steps.propose_overlay import overlay_proposals
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec, emptying_proposal
from regraft.overlay.tree.group_moves import group_move_changes_per_s
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import HomeMove, Proposal
from regraft.schemas.texts import figure

PLANNER = "pack_drop"
TIE_SHARE = 1e-9  # A saving below this share of the cost is rounding of floats.
MOVES_TRIED_MAX = 12  # Moves checked against the caps in one evaluation: each needs the loads of a whole tree.


@dataclass(frozen=True)
class PackingSettings(PlannerSettings):
    """How far users may move, and how much is evaluated."""

    detour_ms_max: Annotated[
        float,
        "longest delay between the broker that subscribers leave and the one they go to",
    ] = 40.0
    # How often all pairs of brokers are priced in one call, once for each move found. Default 24, at 100 brokers some
    # seconds.
    evaluations_max: int = 24
    # A move that saves less than this share of the cost is not proposed.
    saving_share_min: float = 0.0005
    # Single subscribers moved in one call, of those that brokers report separately
    # (emulator.subscribers_reported_max). Default 8.
    single_max: int = 8
    # Bound of the search for links and publishers' homes that follows, in 64-bit words of delivery sets.
    search_words_max: int = 500_000_000
    # The same for kicks after it.
    escape_words_max: int = 50_000_000

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if not 0 <= self.detour_ms_max < math.inf:
            errors.append(f"detour_ms_max is {self.detour_ms_max}: must be at least 0, or no user could move")
        return errors


def pack_drop(state: TreeState, settings: PackingSettings, context: TreeContext, rng: random.Random) -> list[Proposal]:
    """Return moves of brokers' subscribers, best first, then of single ones, then swaps and moves of publishers.

    First, subscribers of a broker above its cap go to the cheapest place, at any cost. Then the move of all subscribers
    of one broker to another that saves most is made, and all are priced again, until none saves or ``subscribers_max``
    or ``evaluations_max`` is reached. Then single subscribers move one by one, if windows report their deliveries. The
    price of a move is that of the links on its way, of handing over at either broker, and of the delay between the two
    for each hand-over. No move puts a broker above its cap. Links and publishers' homes are then searched on the
    resulting overlay. Source: drop heuristics of facility location for the problem of Zhao11, on the cost of the
    present tree. Departures: most users of a broker move together, because windows do not report what each receives;
    access is priced by broker, not by user and broker; all traffic shares one tree. Cost O(brokers^2 * degree * words)
    for an evaluation. Guarantee: each proposal except those for a cap lowers the cost of the links and of access; none
    of the optimum. Deterministic except for kicks drawn from ``rng``.
    """
    if not state.can_move_publishers:
        return []
    proposals, reached = [], state
    for proposal, after in _moves(state, settings, context):
        proposals.append(proposal)
        reached = after
    single_max = min(settings.single_max, context.single_max)
    for proposal, after in single_moves(PLANNER, reached, single_max, settings.detour_ms_max, _saving_min(settings)):
        proposals.append(proposal)
        reached = after
    budget = settings.search_words_max, settings.escape_words_max
    return proposals + overlay_proposals(PLANNER, reached, context, rng, *budget)


def _moves(state: TreeState, settings: PackingSettings, context: TreeContext) -> Iterator[tuple[Proposal, TreeState]]:
    """Yield moves of subscribers, each with the state after it."""
    room = context.subscribers_max
    if not state.subscribers_at or not room:
        return
    for _ in range(min(settings.evaluations_max, context.proposals_max)):
        priced = _PricedMoves(state, settings, room)
        move = priced.relief() or priced.best()
        if move is None:
            return
        proposal, after = priced.proposal(*move)
        yield proposal, after
        room -= priced.counts[move[0]]
        state = after


def _saving_min(settings: PackingSettings) -> float:
    return max(settings.saving_share_min, TIE_SHARE)


class _PricedMoves:
    """All moves of the subscribers of one broker to another, priced on one state."""

    def __init__(self, state: TreeState, settings: PackingSettings, room: int) -> None:
        self.state = state
        inventory = state.inventory
        self._names, subscribers_at = inventory.brokers, state.subscribers_at or {}
        self.counts = [subscribers_at.get(broker, 0) for broker in self._names]
        handed = state.hand_overs
        handed_per_s = np.bincount(handed.targets, handed.counts, len(self._names)) / handed.length_s
        links = group_move_changes_per_s(state.configuration, inventory, state.sets, state.configuration.home_of)
        changes = links + handed_per_s[:, None] * inventory.delay_cost
        if inventory.prices is not None:
            access = inventory.prices.access_money
            changes += handed_per_s[:, None] * (access[None, :] - access[:, None])
        may_go = np.array([0 < count <= room for count in self.counts])
        changes[~may_go] = np.inf
        changes[inventory.delay_ms > settings.detour_ms_max] = np.inf
        np.fill_diagonal(changes, np.inf)
        self.changes_per_s: Floats = changes
        self._saving_share_min = _saving_min(settings)
        self._cost_per_s = state.cost_per_s

    def best(self) -> tuple[int, int] | None:
        """Return the move (from, to) that saves most without putting a broker above its cap, or None if none saves."""
        for place in np.argsort(self.changes_per_s, axis=None, kind="stable").tolist()[:MOVES_TRIED_MAX]:
            start, end = divmod(place, len(self._names))
            if self.changes_per_s[start, end] >= -self._saving_min_per_s:
                return None
            if self._caps is None or (self._loads_after(start, end) <= self._limits_per_s).all():
                return start, end
        return None

    def relief(self) -> tuple[int, int] | None:
        """Return the cheapest move (from, to) off a broker above its cap that reduces the total excess, or None."""
        caps = self._caps
        if caps is None or not (over := np.flatnonzero(self.state.tree_costs.loads_per_s > self._limit(caps))).size:
            return None
        excess_per_s = float(np.maximum(self.state.tree_costs.loads_per_s - caps, 0.0).sum())
        changes = self.changes_per_s[over]
        for place in np.argsort(changes, axis=None, kind="stable").tolist()[:MOVES_TRIED_MAX]:
            row, end = divmod(place, len(self._names))
            if not np.isfinite(changes[row, end]):
                return None
            after = self._loads_after(int(over[row]), end)
            left_per_s = float(np.maximum(after - caps, 0.0).sum())
            if (after <= self._limits_per_s).all() and left_per_s < excess_per_s * (1 - ROUNDING_SHARE):
                return int(over[row]), end
        return None

    def proposal(self, start: int, end: int) -> tuple[Proposal, TreeState]:
        """Return the proposal of a move, and the state after it."""
        here, there = self._names[start], self._names[end]
        change_per_s, caps = float(self.changes_per_s[start, end]), self._caps
        load_per_s = float(self.state.tree_costs.loads_per_s[start])
        is_relief = caps is not None and load_per_s > self._limit(caps)[start]
        delay = f"{self.state.inventory.delay_ms[start, end]:.3g} ms away"
        reason = f"{self.counts[start]} subscribers of {here} cost least at {there}, {delay}; {here} then serves none"
        if is_relief and caps is not None:
            reason = f"{here} passes {figure(load_per_s)}/s, but its limit is {figure(caps[start])}/s; {reason}"
        moves = (HomeMove(here, there),)
        name = OVERLOAD if is_relief else PLANNER
        proposal = emptying_proposal(name, moves, self._cost_per_s, self._cost_per_s + change_per_s, reason)
        return proposal, self._after(start, end)

    @property
    def _saving_min_per_s(self) -> float:
        return self._saving_share_min * self._cost_per_s

    @property
    def _caps(self) -> Floats | None:
        return self.state.inventory.load_max_per_s

    @property
    def _limits_per_s(self) -> Floats:
        """The highest load of each broker after a move: its cap, or its present load if that is higher."""
        assert self._caps is not None
        return self._limit(np.maximum(self._caps, self.state.tree_costs.loads_per_s))

    @staticmethod
    def _limit(loads_per_s: Floats) -> Floats:
        return np.asarray(loads_per_s * (1 + ROUNDING_SHARE))

    def _loads_after(self, start: int, end: int) -> Floats:
        return self._after(start, end).tree_costs.loads_per_s

    def _after(self, start: int, end: int) -> TreeState:
        return self.state.with_subscribers_moved({self._names[start]: self._names[end]})


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    pack_drop,
    PackingSettings,
    summary="subscribers onto fewer and cheaper brokers, then links and publishers' homes",
    source="ours, for the problem of Zhao11",
)
