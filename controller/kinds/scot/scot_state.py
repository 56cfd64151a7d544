"""ScotState: the state for planners of a structured cyclic overlay, computed on first use and shared between them.

In: an overlay and the windows of the horizon. Out: what publishers cost at all homes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from regraft.controller.state.local_deliveries import deliveries_between_per_s
from regraft.controller.state.overlay_state import ContentState
from regraft.overlay.cut_off import CutOff
from regraft.overlay.derived_values import derived_value, hand_on
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_costs import ScotCosts
from regraft.overlay.scot.scot_cut_off import scot_cut_off


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
        if not any(window.local_deliveries for window in self.windows):
            return None
        overlay = self.configuration
        index = {broker: place for place, broker in enumerate(overlay.brokers)}
        return scot_cut_off(overlay, deliveries_between_per_s(self.windows, overlay.home_of, index))

    def with_configuration(self, configuration: ScotConfiguration) -> ScotState:
        """Return the same windows on another overlay; costs do not depend on homes."""
        seen = ScotState(configuration, self.inventory, self.windows)
        is_same = configuration.regions == self.configuration.regions
        if is_same and configuration.region_links == self.configuration.region_links:
            hand_on(self, seen, ScotState.costs)
        return seen
