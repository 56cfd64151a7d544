"""The interface of every planner: the state of its kind of overlay over a horizon in, proposals out.

A planner is a pure function: it reads no clock, does no I/O and draws only from the generator passed in.
:mod:`controller.planners.planner_registry` finds the planners.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.hot_spots import HotSpots
from regraft.controller.state.overlay_state import OverlayState
from regraft.schemas.plan import ClientMove, HomeMove, Proposal


@dataclass(frozen=True, kw_only=True)
class PlannerContext:
    """The context that every planner gets with the state; kinds of overlay add their weights and caps.

    ``proposals_max`` bounds one call. ``moves_max`` is how many clients one plan may move; a plan that moves more would
    be refused as a whole, again and again. ``hot`` is what is congested at present.
    """

    proposals_max: int = sys.maxsize
    moves_max: int = sys.maxsize
    hot: HotSpots = field(default_factory=HotSpots)


StateT = TypeVar("StateT", bound=OverlayState)
SettingsT = TypeVar("SettingsT", bound=PlannerSettings)
ContextT = TypeVar("ContextT", bound=PlannerContext)

# Typed by the state it takes, so that a planner of another kind of overlay is a type error.
PlannerOf = Callable[[StateT, SettingsT, ContextT, random.Random], list[Proposal]]
# A planner bound to its settings, so that planners with different settings fit one chain.
Planner = Callable[[Any, Any, random.Random], list[Proposal]]


@dataclass(frozen=True)
class PlannerSpec(Generic[StateT, SettingsT, ContextT]):
    """One planner: the function, and what is needed to find, configure and call it.

    ``name`` is that of its proposals and, as ``[planners.name]``, of its settings. ``kind`` is the ``KIND`` of the
    overlays that it plans for. ``summary`` is a few words on what it changes and by what, ``source`` where it comes
    from.
    """

    name: str
    kind: str
    plan: PlannerOf[StateT, SettingsT, ContextT]
    settings: type[SettingsT]
    summary: str
    source: str

    def with_settings(self, settings: SettingsT) -> Planner:
        """Return the planner with its settings."""

        def planner(state: StateT, context: ContextT, rng: random.Random) -> list[Proposal]:
            return self.plan(state, settings, context, rng)

        return planner


AnyPlannerSpec = PlannerSpec[Any, Any, Any]


def moving_proposal(
    planner: str, moves: tuple[ClientMove, ...], before_per_s: float, after_per_s: float, reason: str
) -> Proposal:
    """Return a proposal that moves these clients and exchanges no link."""
    return Proposal(planner, (), (), before_per_s, after_per_s, 0.0, reason, moves=moves)


def emptying_proposal(
    planner: str, moves: tuple[HomeMove, ...], before_per_s: float, after_per_s: float, reason: str
) -> Proposal:
    """Return a proposal that moves all subscribers of some brokers and exchanges no link."""
    return Proposal(planner, (), (), before_per_s, after_per_s, 0.0, reason, subscribers_moved=moves)
