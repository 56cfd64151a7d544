"""What every planner gets and gives: the state of its kind of overlay over a horizon in, proposals out.

A planner is a pure function: it reads no clock, does no I/O and draws only from the generator passed in. Which planners
there are stands in :mod:`controller.decide.planner_table`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from controller.state.overlay_state import OverlayState
from overlay.bloom_filters import HASHES_MAX, PAPER_HASHES, FilterShape
from schemas.plan import ClientMove, Proposal


@dataclass(frozen=True)
class PlannerSettings:
    """What planners can be told.

    ``horizon_hops`` is eta of paper 000 (its default 4): only brokers within so many hops are joined. ``degree_max``
    caps the links of a broker, None is the paper's unbounded rule. ``proposals_max`` bounds one call.
    ``order``: of the swaps that the paper's planners find at once, "gain" takes the best first by true cost,
    "arrival" takes them as they come at random and knows no true cost, like the paper's brokers.
    What the brokers of swap_links_ci know of common interest: ``cache_ids_max`` newest identifiers in each broker's
    cache (the paper's: 8,192), None for all of the horizon; told to others as Bloom filters of ``bloom_bits`` bits and
    ``bloom_hashes`` hash functions (the paper's: 100,000 and 5), None bits for exact masks. ``path_interest``: what
    three brokers have in common is the paper's "estimate" by the mean over the neighbourhood, or counted from the
    "conjunction" of what two of them told the third, which the paper leaves to future work.
    ``search_words_max`` bounds the search of swap_links_cost in 64-bit words of delivery sets that it looks at,
    default 4e9, some seconds; ``escape_words_max`` likewise once no single swap helps, default 3e6, some 30 ms.
    Planners of publishers' homes. GRAPE: ``grape_priority`` is the metric that it minimises first, "load" (messages) or
    "delay", by ``grape_weight`` percent, 1 to 100; ``grape_notifications_min`` (G_threshold, the paper's: 100) is the
    length of a trace session. POP: ``pop_traces_min`` (P_threshold, the paper's: 100) notifications must have been
    traced, at most ``pop_traces_max`` (N, the paper's: 50) in ``pop_window_s`` (W, the paper's: 60 s).
    ``link_delays`` lets the delay of links count in delivery delays, which the paper's does not. ``delay_weight`` is
    the share of the mean delivery delay, 0 to 1, in what relocate_publishers_joint minimises; the rest is the one cost.
    Planners of a ring (paper 002). ``ring_delay_weight`` is w_d, what a hop of delay weighs against a message;
    ``ring_free_s`` is T_free, the time over which a reassignment of IDs must pay; ``ring_demand_share_min`` is beta
    (the paper's: 0.1), the share of the dearest reassignment that the notifications of that time must cost before one
    is computed. ``user_load_weight`` is w_l, what a broker's load weighs against likeness of interests;
    ``user_cluster_brokers`` is c, the brokers that tell each other what their users want; ``user_load_max`` caps what
    a broker may serve, as a multiple of the mean. ``user_utility_min`` is by how much a move must better a user's
    utility; ``users_moved_max`` bounds one call.
    """

    horizon_hops: int = 4
    degree_max: int | None = None
    proposals_max: int = 16
    order: Literal["gain", "arrival"] = "gain"
    cache_ids_max: int | None = None
    bloom_bits: int | None = None
    bloom_hashes: int = PAPER_HASHES
    path_interest: Literal["estimate", "conjunction"] = "estimate"
    search_words_max: int = 4_000_000_000
    escape_words_max: int = 3_000_000
    grape_priority: Literal["load", "delay"] = "load"
    grape_weight: int = 100
    grape_notifications_min: int = 100
    pop_traces_min: int = 100
    pop_traces_max: int = 50
    pop_window_s: float = 60.0
    link_delays: bool = False
    delay_weight: float = 0.0
    ring_delay_weight: float = 1.0
    ring_free_s: float = 600.0
    ring_demand_share_min: float = 0.1
    user_load_weight: float = 1.0
    user_cluster_brokers: int = 10
    user_load_max: float = 2.0
    user_utility_min: float = 0.1
    users_moved_max: int = 1_000

    @property
    def filter_shape(self) -> FilterShape | None:
        """The shape of the brokers' Bloom filters, None for exact masks."""
        return None if self.bloom_bits is None else FilterShape(self.bloom_bits, self.bloom_hashes)

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        found = self._interest_faults() + self._home_faults() + self._ring_faults()
        if self.horizon_hops < 2:
            found.append(f"horizon_hops is {self.horizon_hops}: at least 2, a direct neighbour is joined already")
        if self.degree_max is not None and self.degree_max < 2:
            found.append(f"degree_max is {self.degree_max}: a tree needs at least 2")
        if self.proposals_max < 1:
            found.append(f"proposals_max is {self.proposals_max}: at least 1")
        if self.order not in ("gain", "arrival"):
            found.append(f"order is {self.order!r}: gain or arrival")
        if self.search_words_max < 1:
            found.append(f"search_words_max is {self.search_words_max}: at least 1, or nothing is searched")
        if self.escape_words_max < 0:
            found.append(f"escape_words_max is {self.escape_words_max}: at least 0")
        return found

    def _interest_faults(self) -> list[str]:
        found = []
        if self.cache_ids_max is not None and self.cache_ids_max < 1:
            found.append(f"cache_ids_max is {self.cache_ids_max}: at least 1, or none for the whole horizon")
        if self.bloom_bits is not None and self.bloom_bits < 1:
            found.append(f"bloom_bits is {self.bloom_bits}: at least 1, or none for exact masks")
        if not 1 <= self.bloom_hashes <= HASHES_MAX:
            found.append(f"bloom_hashes is {self.bloom_hashes}: from 1 to {HASHES_MAX}")
        if self.path_interest not in ("estimate", "conjunction"):
            found.append(f"path_interest is {self.path_interest!r}: estimate or conjunction")
        return found

    def _ring_faults(self) -> list[str]:
        found = []
        for name in ("ring_delay_weight", "ring_demand_share_min", "user_load_weight", "user_utility_min"):
            if not 0 <= getattr(self, name) < math.inf:
                found.append(f"{name} is {getattr(self, name)}: at least 0")
        if not 0 < self.ring_free_s < math.inf:
            found.append(f"ring_free_s is {self.ring_free_s}: above 0, or no reassignment could ever pay")
        if self.user_cluster_brokers < 1:
            found.append(f"user_cluster_brokers is {self.user_cluster_brokers}: at least 1, a broker by itself")
        if self.user_load_max < 1:
            found.append(f"user_load_max is {self.user_load_max}: at least 1, the mean, or no placement could hold it")
        if self.users_moved_max < 1:
            found.append(f"users_moved_max is {self.users_moved_max}: at least 1, or nobody could move")
        return found

    def _home_faults(self) -> list[str]:
        found = []
        if self.grape_priority not in ("load", "delay"):
            found.append(f"grape_priority is {self.grape_priority!r}: load or delay")
        if not 1 <= self.grape_weight <= 100:
            found.append(f"grape_weight is {self.grape_weight}: from 1 to 100 percent")
        for name in ("grape_notifications_min", "pop_traces_min", "pop_traces_max"):
            if getattr(self, name) < 1:
                found.append(f"{name} is {getattr(self, name)}: at least 1, or nothing is known of a publisher")
        if not 0 < self.pop_window_s < math.inf:
            found.append(f"pop_window_s is {self.pop_window_s}: above 0, the bound of tracing is for so long")
        if not 0 <= self.delay_weight <= 1:
            found.append(f"delay_weight is {self.delay_weight}: a share from 0 to 1")
        return found


State = TypeVar("State", bound=OverlayState)

# Typed by the state it takes, so that a planner of another kind of overlay is a type error.
PlannerOf = Callable[[State, PlannerSettings, random.Random], list[Proposal]]
Planner = PlannerOf[Any]


def moving_proposal(
    planner: str, moves: tuple[ClientMove, ...], before_per_s: float, after_per_s: float, reason: str
) -> Proposal:
    """Return a proposal that exchanges no link and moves these clients."""
    return Proposal(planner, (), (), before_per_s, after_per_s, 0.0, reason, moves=moves)
