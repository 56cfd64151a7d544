"""What every planner gets and gives: the overlay's state over a horizon in, proposals out.

A planner is a pure function: it reads no clock, does no I/O and draws only from the generator passed in. Which planners
there are stands in :mod:`controller.planner_table`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.closed_window import ClosedWindow
from overlay.configuration import Configuration
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
from overlay.swap_cost import SwapCosts
from schemas.plan import Proposal


@dataclass(frozen=True, eq=False)
class OverlayState:
    """The present configuration and the windows of the horizon, oldest first.

    The newest window must lie in the configuration's epoch (the judge checks it). The older ones may be of earlier
    epochs: what a broker delivered does not depend on the links it came over. Raises ValueError without a window.
    """

    configuration: Configuration
    inventory: Inventory
    windows: tuple[ClosedWindow, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise ValueError("a state needs at least one closed window, got none")

    @property
    def newest(self) -> ClosedWindow:
        """The window that closed last."""
        return self.windows[-1]

    @cached_property
    def sets(self) -> DeliverySets:
        """The delivery sets of the whole horizon, each notification once."""
        return DeliverySets.joined(window.sets for window in self.windows)

    @cached_property
    def interest(self) -> NDArray[np.int64]:
        """I_ij over the horizon, counted from the delivery sets on first use."""
        return self.sets.interest()

    @cached_property
    def swap_costs(self) -> SwapCosts:
        """The true cost of the tree and of every swap, over the horizon."""
        return SwapCosts(self.configuration, self.inventory, self.sets)

    @cached_property
    def window_swap_costs(self) -> tuple[SwapCosts, ...]:
        """The same for each window alone; their spread is the noise of a gain."""
        return tuple(SwapCosts(self.configuration, self.inventory, window.sets) for window in self.windows)

    def with_configuration(self, configuration: Configuration) -> OverlayState:
        """Return the same windows seen on another tree."""
        return OverlayState(configuration, self.inventory, self.windows)


@dataclass(frozen=True)
class PlannerSettings:
    """What planners of link swaps can be told.

    ``horizon_hops`` is eta of paper 000 (its default 4): only brokers within so many hops are joined. ``degree_max``
    caps the links of a broker, None is the paper's unbounded rule. ``proposals_max`` bounds one call.
    """

    horizon_hops: int = 4
    degree_max: int | None = None
    proposals_max: int = 16

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        found = []
        if self.horizon_hops < 2:
            found.append(f"horizon_hops is {self.horizon_hops}: at least 2, a direct neighbour is joined already")
        if self.degree_max is not None and self.degree_max < 2:
            found.append(f"degree_max is {self.degree_max}: a tree needs at least 2")
        if self.proposals_max < 1:
            found.append(f"proposals_max is {self.proposals_max}: at least 1")
        return found


Planner = Callable[[OverlayState, PlannerSettings, random.Random], list[Proposal]]
