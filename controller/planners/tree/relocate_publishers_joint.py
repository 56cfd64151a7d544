"""Move all publishers together by true cost, under caps of load: ours, in place of POP and GRAPE of Cheung09.

In: the state over a horizon. Out: a sequence of proposals; any prefix of it pays off and keeps the caps. The search
itself belongs to :mod:`controller.planners.tree.steps.search_homes`, the order of its moves to
:mod:`controller.planners.tree.steps.sequence_moves`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.tree.describe_moves import effect_text, move_gain_per_s, present_cost_per_s
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.shared_settings import SessionSettings
from regraft.controller.planners.tree.steps.search_homes import HomeSearch
from regraft.controller.planners.tree.steps.select_home_grape import GrapeSelection, Priority
from regraft.controller.planners.tree.steps.trace_publishers import hop_delays, trace_sessions
from regraft.controller.state.planner_interface import PlannerSpec, moving_proposal
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft.overlay.tree.trace_sessions import SessionMetrics
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import ClientMove, Proposal

GROUP_TRIALS_MAX = 3_000  # Groups tried for one step, smallest first, before all remaining moves become one.

Homes = NDArray[np.intp]
Step = tuple[int, ...]


def steps_to(present: PublisherPlacement, homes: Homes, gains: Floats, least: float) -> list[Step]:
    """Return steps from ``present`` to ``homes``, each the publishers (by position) that move in it.

    Single moves come first, best first, while one saves more than ``least`` and breaks no cap; then the smallest group
    that does both, and so on. Moves that no longer save are left out. In a step, a broker above its cap may stay there
    but gets no more load. All moves together must keep the limits of ``present``.
    """
    reached = present.copy()
    steps: list[Step] = []
    left = [int(place) for place in np.flatnonzero(present.homes != homes)]
    while left:
        step = _next_step(reached, homes, gains, left, least)
        if step is None and _sum(gains, left) <= least:
            break
        while step is None:
            # Earlier steps have lowered the limit of a broker above its cap: merge them into this step.
            undone = steps.pop() if steps else ()
            for place in undone:
                reached.move(place, int(present.homes[place]))
            left = sorted([*left, *undone])
            step = tuple(left) if not steps or _keeps(reached, homes, left) else None
        for place in step:
            reached.move(place, int(homes[place]))
        left = [place for place in left if place not in step]
        steps.append(step)
    return steps


def _next_step(
    reached: PublisherPlacement, homes: Homes, gains: Floats, left: Sequence[int], least: float
) -> Step | None:
    """Return the best single move that fits and saves enough, else the smallest group that does, else None."""
    for place in sorted(left, key=lambda place: (-gains[place], place)):
        if gains[place] > least and _keeps(reached, homes, (place,)):
            return (place,)
    groups = (group for size in range(2, len(left)) for group in combinations(left, size))
    for group in (*islice(groups, GROUP_TRIALS_MAX), tuple(left)):
        if _sum(gains, group) > least and _keeps(reached, homes, group):
            return group
    return None


def _sum(gains: Floats, places: Sequence[int]) -> float:
    return sum(float(gains[place]) for place in places)


def _keeps(reached: PublisherPlacement, homes: Homes, places: Sequence[int]) -> bool:
    return reached.keeps(reached.limits_now(), [(place, int(homes[place])) for place in places])


PLANNER = "relocate_publishers_joint"
HOMES_EVALUATED_MAX = 20_000_000  # Homes evaluated by all descents of one call: half a second if caps are tight.
STARTS_MAX = 4  # How many of the best starts a descent is made from.
GRAPE_WEIGHTS = (100, 75, 50, 25, 1)


@dataclass(frozen=True)
class JointSettings(SessionSettings):
    """What is minimised, and which of GRAPE's choices it is compared with under caps of load."""

    delay_weight: Annotated[
        float,
        "weight of the mean delivery delay, 0 to 1, against the overlay's cost",
    ] = 0.0

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if not 0 <= self.delay_weight <= 1:
            errors.append(f"delay_weight is {self.delay_weight}: must be a share from 0 to 1")
        return errors


def relocate_publishers_joint(
    state: TreeState, settings: JointSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return moves of publishers ordered by what they save; moves that keep the caps only together are one proposal.

    Without caps of load (``inventory.load_max_per_s``) each publisher goes to its cheapest home, because publishers do
    not influence each other's cost. With caps, single moves and chains of moves descend from the present homes and from
    those that GRAPE with any priority and weight would give, one publisher at a time within the caps. With
    ``delay_weight``, the mean delivery delay counts next to the cost, both as shares of the present ones. Source: the
    cost is Eq. 1-2 of Jaeger07, the problem that of Cheung09. Cost O(brokers * publishers) for an evaluation of all
    moves, one for every few moves or step of a chain. Guarantee: without caps the optimum; with caps none of the
    optimum, but with ``delay_weight`` 0 all proposals together lead to no higher cost than GRAPE with these settings or
    with any of ``GRAPE_WEIGHTS``, applied one at a time under the caps. The caps are kept after every proposal, except
    that a broker above its cap may stay there but gets no more load. Deterministic: the budget is counted in homes
    evaluated, and nothing is drawn from ``rng``.
    """
    if not state.can_move_publishers:
        return []
    costs, homes = state.publisher_costs, state.configuration.home_of
    index, names = state.inventory.index, state.inventory.brokers
    rows = [place for place, publisher in enumerate(costs.publishers) if publisher in homes]
    publishers = [costs.publishers[place] for place in rows]
    if not rows:
        return []
    caps_per_s = state.inventory.load_max_per_s
    present = PublisherPlacement(costs, rows, [index[homes[publisher]] for publisher in publishers], caps_per_s)
    values = _values(state, settings, rows, present)
    search = HomeSearch(values, HOMES_EVALUATED_MAX)
    starts = [present.copy()]
    if caps_per_s is not None:
        starts += _starts_of_grape(state, settings, publishers, present)
    target = _best(search, starts)
    gains = values[np.arange(len(rows)), present.homes] - values[np.arange(len(rows)), target.homes]
    steps = steps_to(present, target.homes, gains, search.least_gain(present))
    cost_per_s, proposals = present_cost_per_s(state), []
    for step in steps[: context.proposals_max]:
        moves = tuple(
            ClientMove(publishers[place], names[present.homes[place]], names[target.homes[place]]) for place in step
        )
        after_per_s = cost_per_s - sum(move_gain_per_s(state, move) for move in moves)
        reason = _reason(moves, settings, is_capped=caps_per_s is not None)
        proposals.append(
            moving_proposal(PLANNER, moves, cost_per_s, after_per_s, f"{reason}; {effect_text(state, moves)}")
        )
        cost_per_s = after_per_s
    return proposals


def _values(state: TreeState, settings: JointSettings, rows: Sequence[int], present: PublisherPlacement) -> Floats:
    """Return what is minimised, by publisher and home: the cost, or shares of cost and delay that now add up to 1."""
    costs = state.publisher_costs.costs_per_s[rows]
    if settings.delay_weight == 0:
        return np.asarray(costs)
    tree = state.publisher_costs.tree
    sessions = trace_sessions(state.windows, 1, None)
    delays = hop_delays(state.configuration, state.inventory, state.windows, tree, link_delays=settings.link_delays)
    sums_ms = np.zeros_like(state.publisher_costs.costs_per_s)
    traced = [state.publisher_costs.place_of(publisher) for publisher in sessions.publishers]
    sums_ms[traced] = SessionMetrics(tree, sessions).delays_ms(delays) * sessions.deliveries.sum(axis=1, keepdims=True)
    shares = []
    for values in (costs, sums_ms[rows]):
        whole = float(values[np.arange(len(rows)), present.homes].sum())
        shares.append(values / whole if whole > 0 else np.zeros_like(values))
    return np.asarray((1 - settings.delay_weight) * shares[0] + settings.delay_weight * shares[1])


def _best(search: HomeSearch, starts: Sequence[PublisherPlacement]) -> PublisherPlacement:
    """Return the best placement that descents from the best starts lead to."""
    by_value = {tuple(start.homes.tolist()): start for start in sorted(starts, key=search.value)}
    chosen = list(by_value.values())[:STARTS_MAX]
    budget = search.homes_left // len(chosen)
    for start in chosen:
        search.homes_left = budget
        search.descend(start)
    return min(chosen, key=search.value)


def _starts_of_grape(
    state: TreeState, settings: JointSettings, publishers: Sequence[str], present: PublisherPlacement
) -> Iterator[PublisherPlacement]:
    """Yield the placements that GRAPE's choices lead to, made one at a time in the order of what they save.

    One placement makes all choices that the caps allow, like the paper's brokers, the other only those that save.
    """
    selection = GrapeSelection(state, settings)
    place_of = {publisher: place for place, publisher in enumerate(publishers)}
    index = state.inventory.index
    priorities: tuple[Priority, Priority] = ("load", "delay")
    for priority in priorities:
        for weight in sorted({*GRAPE_WEIGHTS, settings.grape_weight}):
            moves = [
                ClientMove(choice.publisher, choice.home_from, choice.home_to)
                for choice in selection.choices(priority, weight)
                if choice.home_to != choice.home_from
            ]
            ranked = sorted(((move_gain_per_s(state, move), move) for move in moves), key=lambda pair: (-pair[0], pair))
            for gain_per_s_min in (-np.inf, 0.0):
                start = present.copy()
                for gain_per_s, move in ranked:
                    step = (place_of[move.client], index[move.home_to])
                    if gain_per_s > gain_per_s_min and start.keeps(start.limits_now(), [step]):
                        start.move(*step)
                yield start


def _reason(moves: Sequence[ClientMove], settings: JointSettings, *, is_capped: bool) -> str:
    what = "cost and delay" if settings.delay_weight else "cost"
    if len(moves) > 1:
        return f"only together do these {len(moves)} moves lower {what} and keep the caps of load"
    if is_capped:
        return (
            f"of the homes that the caps of load allow, {moves[0].home_to} is the best for {moves[0].client} by {what}"
        )
    return f"of all homes, {moves[0].home_to} is the best for {moves[0].client} by {what}"


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    relocate_publishers_joint,
    JointSettings,
    summary="all publishers' homes, by true cost under caps of load",
    source="ours, for the problem of Cheung09",
)
