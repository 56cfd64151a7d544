"""TreeState: the state for planners of a tree, computed on first use and shared between them.

In: a tree and the windows of the horizon. Out: their delivery sets, interests and costs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.tree.charge_access import access_by_span_per_s
from regraft.controller.state.overlay_state import ContentState
from regraft.controller.state.planner_interface import PlannerContext
from regraft.overlay.cut_off import CutOff, DeliveryPairs
from regraft.overlay.derived_values import derived_value, hand_on
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.sets.publisher_sets import PublisherSets
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.time_slices import time_slices
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.overlay_costs import HomeCosts, OverlayCosts
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.swap_sequences import SwapCursor
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import TreeCosts
from regraft.overlay.tree.tree_cut_off import tree_cut_off
from regraft.schemas.agent_names import client_of, publishing_client
from regraft.schemas.arrays import Floats


@dataclass(frozen=True, kw_only=True)
class TreeContext(PlannerContext):
    """The context of planners on a tree.

    ``links_max`` is how many links one plan may exchange. ``degree_max`` caps the links of a broker, None is the
    paper's unbounded rule. ``frailty_weight`` is the judge's: the penalty, as a share of the cost, if one death cuts
    off all deliveries instead of none. ``subscribers_max`` is how many subscribers one plan may move by emptying
    brokers, ``single_max`` how many by name.
    """

    links_max: int = sys.maxsize
    degree_max: int | None = None
    frailty_weight: float = 0.0
    subscribers_max: int = sys.maxsize
    single_max: int = sys.maxsize


@dataclass(frozen=True, eq=False)
class TreeState(ContentState):
    """A tree with the homes of its publishers, and the windows of the horizon, oldest first."""

    configuration: TreeConfiguration

    @derived_value
    def window_sets(self) -> tuple[DeliverySets, ...]:
        """The delivery sets of each window, with every publisher at its home in the configuration."""
        homes = self.configuration.home_of
        return tuple(window.sets_at(homes) for window in self.windows)

    @derived_value
    def sets(self) -> DeliverySets:
        """The delivery sets of the whole horizon, each notification once."""
        return DeliverySets.joined(self.window_sets)

    @derived_value
    def weighted(self) -> WeightedSets:
        """The delivery sets of the whole horizon as one span, with equal ones merged."""
        return WeightedSets.over_all(self.window_sets)

    @derived_value
    def interest(self) -> NDArray[np.int64]:
        """I_ij over the horizon, counted from the delivery sets on first use."""
        return self.weighted.interest()

    @cached_property
    def tree_costs(self) -> TreeCosts:
        """The true cost of the tree and of every swap, over the horizon. Shared: copy it before making a swap."""
        return TreeCosts(self.configuration, self.inventory, self.weighted)

    @cached_property
    def span_cursor(self) -> SwapCursor:
        """The true cost with separate spans, which shows the noise of a gain. Shared: go to the tree that is meant."""
        cut: list[DeliverySets] = []
        for sets, window, slices in zip(self.window_sets, self.windows, self.slices, strict=True):
            cut.extend(slices if sets is window.sets else time_slices(sets, self.slice_count))
        return SwapCursor(TreeCosts(self.configuration, self.inventory, SpanSets.of(cut)))

    @cached_property
    def access_by_span_per_s(self) -> NDArray[np.float64]:
        """The cost of handing over to subscribers in each span, and of clients' ways from where they are now."""
        homes, nearest = self.configuration.home_of, self.newest.nearest
        return access_by_span_per_s(self.inventory, self.windows, self.slice_count, homes, nearest)

    @property
    def cost_per_s(self) -> float:
        """The cost of links, hand-overs and clients' ways over the horizon."""
        return self.tree_costs.cost_per_s + float(self.access_by_span_per_s.mean())

    @derived_value
    def publisher_costs(self) -> PublisherCosts:
        """The cost of each publisher at each home, over the horizon and in each span, on the configuration's tree."""
        return PublisherCosts(self.configuration, self.inventory, self.span_sets)

    @derived_value
    def publisher_sets(self) -> PublisherSets:
        """The delivery sets of the whole horizon by publisher, for any homes; all fixed if publishers cannot move."""
        if not self.can_move_publishers:
            return PublisherSets.fixed(self.weighted)
        return PublisherSets.of([window.sets for window in self.windows], self.configuration.home_of)

    @derived_value
    def home_costs(self) -> HomeCosts:
        """The cost of each publisher at each home over the horizon as a whole: cheaper than ``publisher_costs``."""
        return HomeCosts(RootedTree.of(self.configuration), self.inventory, self.publisher_sets)

    @cached_property
    def costs_at_homes_per_s(self) -> Floats:
        """The cost of each of ``publisher_sets.publishers`` at its home, shape (publishers,)."""
        home_of, index = self.configuration.home_of, self.inventory.index
        homes = [index[home_of[name]] for name in self.publisher_sets.publishers]
        return np.asarray(self.home_costs.costs_per_s[np.arange(len(homes)), homes])

    @cached_property
    def overlay_costs(self) -> OverlayCosts:
        """The true cost of the tree with its publishers, over the horizon. Shared: copy it before making a change."""
        return OverlayCosts(self.configuration, self.inventory, self.publisher_sets)

    @derived_value
    def deliveries(self) -> DeliveryPairs:
        """Hand-overs to subscribers at each broker of what is published at each."""
        return self.hand_overs.between(self.configuration.home_of, self.inventory.index)

    @property
    def horizon_s(self) -> float:
        """The total length of the windows in seconds, which full counts such as hand-overs cover."""
        return self.hand_overs.length_s

    @cached_property
    def cut_off(self) -> CutOff | None:
        """What the death of each broker would cut off; publishers without known home are left out."""
        return tree_cut_off(self.configuration, self.deliveries) if self.hand_overs.publishers else None

    @property
    def subscribers_at(self) -> Mapping[str, int] | None:
        """The number of subscribers at each broker with any, in the newest window; None if unknown."""
        return self.newest.subscribers_at

    def with_subscribers_moved(self, moved: Mapping[str, str]) -> TreeState:
        """Return the state as if these brokers' subscribers had been at the others. Raises as ClosedWindow does."""
        windows = tuple(window.with_subscribers_moved(moved) for window in self.windows)
        return TreeState(self.configuration, self.inventory, windows)

    def with_single_moved(self, moved: Mapping[str, str]) -> TreeState:
        """Return the state as if these of ``movers`` had been at other brokers. Raises as ClosedWindow does."""
        single, homes = self.newest.single, self.movers
        parts = {single[name]: home_to for name, home_to in moved.items() if name in single}
        windows = [window.with_parts_moved(parts) for window in self.windows] if parts else list(self.windows)
        registered = {
            one: to for name, to in moved.items() for one in self.subscriptions_of(name) if name not in single
        }
        if registered:
            windows[-1] = replace(windows[-1], movable={**windows[-1].movable, **registered})
        published = {one: to for name, to in moved.items() for one in self.publishers_of(name, homes[name])}
        configuration = self.configuration
        if published:
            configuration = configuration.with_homes({**configuration.home_of, **published})
        return TreeState(configuration, self.inventory, tuple(windows))

    @cached_property
    def movers(self) -> Mapping[str, str]:
        """What can move by name at a known price, with their homes: ``single``, and clients beside agents that publish.

        Of a client that publishes, but is not among those that receive most, deliveries count as none.
        """
        stays, movable = self.inventory.clients_stay, self._movable
        single = {name: home for name, home in self.single.items() if not stays or (name, home) in movable}
        publishing = {client: home for client, home in self._publishers_by_client if (client, home) in movable}
        return {name: home for name, home in publishing.items() if name not in self.newest.single} | single

    def subscriptions_of(self, name: str) -> tuple[str, ...]:
        """Return the subscribers that form a part of this name: a client's beside an agent, or the one itself."""
        return self._movable.get((name, self.movers[name]), (name,))

    def publishers_of(self, client: str, home: str) -> tuple[str, ...]:
        """Return the publishers that a client beside an agent is at its home: they move with it."""
        return self._publishers_by_client.get((client, home), ())

    @cached_property
    def _movable(self) -> dict[tuple[str, str], tuple[str, ...]]:
        names: dict[tuple[str, str], list[str]] = {}
        for name, home in self.newest.movable.items():
            names.setdefault((client_of(name), home), []).append(name)
        return {key: tuple(sorted(each)) for key, each in names.items()}

    @cached_property
    def _publishers_by_client(self) -> dict[tuple[str, str], tuple[str, ...]]:
        names: dict[tuple[str, str], tuple[str, ...]] = {}
        for publisher, home in self.configuration.homes if self.newest.movable else ():
            if client := publishing_client(publisher):
                names[client, home] = (*names.get((client, home), ()), publisher)
        return names

    def with_movable_moved(self, moved: Mapping[str, str]) -> TreeState:
        """Return the state with these subscribers registered elsewhere; deliveries stay: theirs alone are unknown."""
        newest = replace(self.newest, movable={**self.newest.movable, **moved})
        seen = TreeState(self.configuration, self.inventory, (*self.windows[:-1], newest))
        self._hand_on_deliveries(seen)
        hand_on(self, seen, TreeState.hand_overs, TreeState.publisher_costs)
        return seen

    @cached_property
    def single(self) -> Mapping[str, str]:
        """The subscribers whose own deliveries each window but the oldest reports, with their homes."""
        here, others = self.newest.single, self.windows[1:-1]
        return {name: at[0] for name, at in here.items() if all(window.single.get(name) == at for window in others)}

    def split_single(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64], float]:
        """Return the deliveries of one of ``movers``, those of all others at its home, and its hand-overs per second.

        Deliveries are over the columns of ``sets``.
        """
        going, staying = (np.zeros(len(self.sets.columns), dtype=np.uint64) for _ in range(2))
        key = self.newest.single.get(name)
        if key is None:
            return going, staying, 0.0
        columns, count = {column: place for place, column in enumerate(self.sets.columns)}, 0.0
        for window, sets in zip(self.windows, self.window_sets, strict=True):
            own = {column: place for place, column in enumerate(sets.columns)}
            places = [columns[column] for column in sets.columns]
            delivered = sets.delivered[sets.brokers.index(key[0])]
            part = window.parts.received.get(key)
            if part is None:
                staying[places] |= delivered
                continue
            going[places] |= part.words(own)
            staying[places] |= window.parts.received_by_others(key, delivered, own)
            count += sum(part.handed.values())
        return going, staying, count / self.horizon_s

    def with_configuration(self, configuration: TreeConfiguration) -> TreeState:
        """Return the same windows on another tree; what does not depend on it is not computed again."""
        seen = TreeState(configuration, self.inventory, self.windows)
        self.hand_on_of_windows(seen)
        if configuration.homes == self.configuration.homes:
            self._hand_on_deliveries(seen)
        if configuration.links == self.configuration.links:
            hand_on(self, seen, TreeState.publisher_costs)
        self.hand_on_publishers(seen)
        return seen

    def hand_on_publishers(self, seen: TreeState) -> None:
        """Give another tree on the same windows what is known of publishers, if the same ones have a home there."""
        here, there = self.configuration, seen.configuration
        if seen.windows is self.windows and here.homes and here.home_of.keys() == there.home_of.keys():
            hand_on(self, seen, TreeState.publisher_sets)
            if here.links == there.links:
                hand_on(self, seen, TreeState.home_costs)

    def _hand_on_deliveries(self, seen: TreeState) -> None:
        hand_on(self, seen, TreeState.window_sets, TreeState.sets, TreeState.weighted, TreeState.interest)
        hand_on(self, seen, TreeState.deliveries)
