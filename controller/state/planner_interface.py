"""What every planner gets and gives: the overlay's state over a horizon in, proposals out.

A planner is a pure function: it reads no clock, does no I/O and draws only from the generator passed in. Which planners
there are stands in :mod:`controller.decide.planner_table`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controller.state.closed_window import ClosedWindow
from controller.state.ring_state import RingState
from overlay.bloom_filters import HASHES_MAX, PAPER_HASHES, FilterShape
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.configuration import Configuration
from overlay.delivery_sets import DeliverySets
from overlay.interest_caches import InterestCaches, newest_ids
from overlay.inventory import Inventory
from overlay.publisher_costs import PublisherCosts
from overlay.tree_costs import TreeCosts
from overlay.weighted_sets import WeightedSets
from schemas.plan import Proposal


@dataclass(frozen=True, eq=False)
class OverlayState:
    """The present configuration, a tree or a ring, and the windows of the horizon, oldest first.

    The newest window must lie in the configuration's epoch (the judge checks it). The older ones may be of earlier
    epochs: what a broker delivered depends neither on the links it came over nor on the publisher's home. Raises
    ValueError without a window. ``ring`` is what planners of a ring look at, None on a tree, and where nothing is
    known of users. What rests on delivery sets alone (``sets``, ``weighted``, costs of links and publishers) is for
    planners of a tree.
    """

    configuration: AnyConfiguration
    inventory: Inventory
    windows: tuple[ClosedWindow, ...]
    ring: RingState | None = None

    def __post_init__(self) -> None:
        if not self.windows:
            raise ValueError("a state needs at least one closed window, got none")

    @property
    def tree(self) -> Configuration:
        """The configuration where only a tree will do. Raises ValueError when it is a ring."""
        if not isinstance(self.configuration, Configuration):
            raise ValueError("the overlay is a ring: only planners of a ring can look at it")
        return self.configuration

    @property
    def newest(self) -> ClosedWindow:
        """The window that closed last."""
        return self.windows[-1]

    @cached_property
    def window_sets(self) -> tuple[DeliverySets, ...]:
        """The delivery sets of each window, with every publisher at its home of the configuration."""
        homes = self.configuration.home_of
        return tuple(window.sets_at(homes) for window in self.windows)

    @cached_property
    def sets(self) -> DeliverySets:
        """The delivery sets of the whole horizon, each notification once."""
        return DeliverySets.joined(self.window_sets)

    @cached_property
    def weighted(self) -> WeightedSets:
        """The delivery sets of the whole horizon as one span, equal ones merged."""
        return WeightedSets.over_all(self.window_sets)

    @cached_property
    def interest(self) -> NDArray[np.int64]:
        """I_ij over the horizon, counted from the delivery sets on first use."""
        return self.weighted.interest()

    @cached_property
    def tree_costs(self) -> TreeCosts:
        """The true cost of the tree and of every swap, over the horizon. Shared: copy it before a swap is made."""
        return TreeCosts(self.tree, self.inventory, self.weighted)

    @cached_property
    def window_tree_costs(self) -> TreeCosts:
        """The same with each window a span of its own; the spread over windows is the noise of a gain."""
        return TreeCosts(self.tree, self.inventory, WeightedSets.by_span(self.window_sets))

    @property
    def can_move_publishers(self) -> bool:
        """Tell whether homes are known, and in every window what was delivered apart from what was published.

        Windows from telemetry of version 1 do not tell; until they have left the horizon, publishers stay.
        """
        if not isinstance(self.configuration, Configuration):
            return False  # On a ring the way from a publisher to the rendezvous does not count.
        return bool(self.configuration.homes) and all(window.sets.delivered is not None for window in self.windows)

    @cached_property
    def publisher_costs(self) -> PublisherCosts:
        """What each publisher costs at each home, over the horizon and in each window, on the configuration's tree.

        Raises ValueError when what was delivered is not known apart in every window.
        """
        return PublisherCosts(self.tree, self.inventory, [window.sets for window in self.windows])

    @cached_property
    def local_deliveries(self) -> dict[str, dict[str, int]]:
        """How often something of a publisher was handed to a subscriber at a broker, by publisher and broker."""
        found: dict[str, dict[str, int]] = {}
        for window in self.windows:
            for (publisher, broker), count in window.local_deliveries.items():
                at_broker = found.setdefault(publisher, {})
                at_broker[broker] = at_broker.get(broker, 0) + count
        return found

    def caches(self, ids_max: int | None, shape: FilterShape | None) -> InterestCaches:
        """Return what the brokers remember of the horizon and tell each other; found once for each pair of arguments.

        ``ids_max`` None remembers all of it; ``shape`` None tells it exactly instead of as Bloom filters.
        """
        if (ids_max, shape) not in self._caches:
            sets = self.sets if ids_max is None else newest_ids(self.window_sets, ids_max)
            self._caches[ids_max, shape] = (
                InterestCaches.of_masks(sets) if shape is None else InterestCaches.of_filters(sets, shape)
            )
        return self._caches[ids_max, shape]

    @cached_property
    def _caches(self) -> dict[tuple[int | None, FilterShape | None], InterestCaches]:
        return {}

    def with_configuration(self, configuration: AnyConfiguration) -> OverlayState:
        """Return the same windows seen on another overlay; what does not depend on it is not counted again."""
        if isinstance(configuration, ChordConfiguration):
            ring = None if self.ring is None else self.ring.with_configuration(configuration)
            return OverlayState(configuration, self.inventory, self.windows, ring)
        seen = OverlayState(configuration, self.inventory, self.windows)
        if configuration.homes == self.configuration.homes:
            for name in ("window_sets", "sets", "weighted", "interest", "_caches"):
                if name in self.__dict__:
                    seen.__dict__[name] = self.__dict__[name]
        if "local_deliveries" in self.__dict__:
            seen.__dict__["local_deliveries"] = self.local_deliveries
        if configuration.links == self.configuration.links and "publisher_costs" in self.__dict__:
            seen.__dict__["publisher_costs"] = self.publisher_costs
        return seen


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


Planner = Callable[[OverlayState, PlannerSettings, random.Random], list[Proposal]]
