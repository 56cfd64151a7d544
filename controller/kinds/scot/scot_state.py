"""ScotState: the state for planners of a structured cyclic overlay, computed on first use and shared between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from regraft.controller.state.overlay_state import ContentState
from regraft.overlay.cut_off import CutOff
from regraft.overlay.derived_values import derived_value, hand_on
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import ScotCosts
from regraft.schemas.arrays import Floats


def scot_cut_off(overlay: ScotConfiguration, deliveries_per_s: Floats) -> CutOff:
    """Return what the death of each broker cuts off; ``deliveries_per_s`` (brokers, brokers) by home and broker.

    A route leads from the home within its region to the target's cluster, then from region to region within that
    cluster. So publications are first summed by region. Cost O(regions * brokers * length of routes).
    """
    row = {broker: slot for slot, broker in enumerate(overlay.brokers)}
    of_region = np.zeros((len(overlay.regions), len(row)))
    for broker, slot in row.items():
        of_region[overlay.slot_of[broker][0]] += deliveries_per_s[slot]
    cut_off = np.zeros(len(row))
    paths = dict(nx.all_pairs_shortest_path(overlay.shape.tree))
    for region in range(len(overlay.regions)):
        for target, (number, cluster) in overlay.slot_of.items():
            per_s = of_region[region, row[target]]
            if per_s:
                held = {overlay.regions[int(one)][cluster] for one in paths[str(region)][str(number)]}
                for broker in held - {target}:
                    cut_off[row[broker]] += per_s
    for home, (_, cluster) in overlay.slot_of.items():  # A home that starts the route relays nothing.
        own = [row[broker] for broker, (_, other) in overlay.slot_of.items() if other == cluster and broker != home]
        cut_off[row[home]] -= deliveries_per_s[row[home], own].sum()
    return CutOff(overlay.brokers, np.maximum(cut_off, 0.0), float(deliveries_per_s.sum()))


@dataclass(frozen=True, eq=False)
class ScotState(ContentState):
    """An overlay with the homes of its publishers, and the windows of the horizon, oldest first."""

    configuration: ScotConfiguration

    @derived_value
    def costs(self) -> ScotCosts:
        """The cost of each publisher at each home in each span. Raises ValueError if it is unknown."""
        return ScotCosts(self.configuration, self.inventory, self.span_sets)

    @cached_property
    def cut_off(self) -> CutOff | None:
        """What each broker's death would cut off with static routing; publishers without known home are left out."""
        if not self.hand_overs.publishers:
            return None
        overlay, index = self.configuration, self.inventory.index
        deliveries = self.hand_overs.between(overlay.home_of, index)
        return scot_cut_off(overlay, deliveries.matrix_per_s(len(index)))

    def with_configuration(self, configuration: ScotConfiguration) -> ScotState:
        """Return the same windows on another overlay; costs do not depend on homes."""
        seen = ScotState(configuration, self.inventory, self.windows)
        self.hand_on_of_windows(seen)
        is_same = configuration.regions == self.configuration.regions
        if is_same and configuration.region_links == self.configuration.region_links:
            hand_on(self, seen, ScotState.costs)
        return seen
