"""The structured cyclic overlay that a sequence of proposals leads to, with its cost in each span.

Whether a proposal is worth it is judged elsewhere.
"""

from __future__ import annotations

from functools import cached_property

from regraft.controller.kinds.overlay_kind import HomeError, RingIdError
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.state.overlay_state import Span
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import Proposal


class ReachedScot:
    """One overlay on the windows of a state; :meth:`after` returns the next and leaves this one unchanged.

    Exact for static routing (:mod:`overlay.scot.scot_costs`). A publisher without known home costs nothing, before and
    after alike.
    """

    def __init__(self, state: ScotState) -> None:
        self.state = state

    @property
    def spans(self) -> tuple[Span, ...]:
        """The start and end of each span, in seconds: windows, cut if they are few."""
        return self.state.spans

    @cached_property
    def costs_per_s(self) -> Floats:
        """The cost of the overlay in each span, shape (spans,)."""
        return self.state.costs.at_homes(self.configuration.home_of)

    @property
    def cost_per_s(self) -> float:
        """The cost of the overlay over all windows."""
        return self.state.costs.total_per_s(self.configuration.home_of)

    @property
    def configuration(self) -> ScotConfiguration:
        """The slots, links and homes reached; its epoch is still the present one."""
        return self.state.configuration

    def after(self, proposal: Proposal) -> ReachedScot:
        """Return the overlay after the proposal.

        Raises RingIdError if its slots and links do not form an overlay of this kind, KeyError for a broker that is
        not in it, HomeError for a publisher that is not at the home it leaves.
        """
        reached, present = self.configuration, self.configuration
        if proposal.id_moves or proposal.links_removed or proposal.links_added:
            exchanged = proposal.links_removed, proposal.links_added
            try:
                changed = present.replaced(present.epoch + 1, proposal.id_moves, *exchanged, BrokerChange())
            except ValueError as error:
                raise RingIdError(str(error)) from error
            reached = changed.at_epoch(present.epoch)
        homes = dict(reached.home_of)
        for move in proposal.moves:
            if homes.get(move.client) != move.home_from:
                home = homes.get(move.client, "not known")
                raise HomeError(f"publisher {move.client} would leave {move.home_from}, but its home is {home}")
            if move.home_to not in reached.neighbours:
                raise KeyError(move.home_to)
            homes[move.client] = move.home_to
        return ReachedScot(self.state.with_configuration(reached.with_homes(homes)))
