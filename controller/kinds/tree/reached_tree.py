"""The tree that a sequence of proposals leads to, with what it costs in each window and what each broker bears.

In: a state and proposals, one after the other. Out: the state that the next planner sees, costs, degrees and loads.
Whether a proposal is worth it is judged elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.overlay_kind import Floats, HomeError, RingIdError
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.overlay_state import Span
from regraft.overlay.configuration import Configuration
from regraft.overlay.tree_costs import TreeCosts, as_swaps
from regraft.schemas.plan import Proposal


class ReachedTree:
    """One overlay on the windows of a state; :meth:`after` leads to the next and leaves this one as it is.

    ``tree`` is what the state's tree costs in its windows, where that is known already.

    Exact: links are priced by :class:`TreeCosts`, homes by :class:`PublisherCosts`, both window by window.
    """

    def __init__(self, state: TreeState, tree: TreeCosts | None = None) -> None:
        self.state = state
        self._tree = tree or state.span_tree_costs
        self._spans_s = self._tree.sets.spans_s
        # What moves have changed since the tree was costed: links are priced at the homes of then.
        self._saved_per_s: Floats = np.zeros(len(self._spans_s))
        self._loads_moved_per_s: Floats = np.zeros(len(state.inventory.brokers))
        self._has_moved = False

    @property
    def spans(self) -> tuple[Span, ...]:
        """From when to when each span lasts, in seconds: windows, cut where they are few."""
        return self.state.spans

    @property
    def costs_per_s(self) -> Floats:
        """What the overlay costs in each span, shape (spans,)."""
        return np.asarray(self._tree.costs_per_s - self._saved_per_s)

    @property
    def cost_per_s(self) -> float:
        """What the overlay costs over all windows."""
        return self._tree.cost_per_s - float(self._saved_per_s @ self._spans_s / self._spans_s.sum())

    @property
    def loads_per_s(self) -> Floats:
        """The notifications that pass each broker, shape (brokers,)."""
        return self._tree.loads_per_s + self._loads_moved_per_s

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The links of each broker, shape (brokers,)."""
        return self._tree.degrees

    @property
    def configuration(self) -> Configuration:
        """The links and homes reached; its epoch is still the present one."""
        return self.state.configuration

    def after(self, proposal: Proposal) -> ReachedTree:
        """Return the overlay after the proposal.

        Raises NotATreeError when its links leave no tree, KeyError for a broker that is not in the overlay, HomeError
        for a publisher that is not at the home it is to leave, RingIdError for a reassignment of ring IDs.
        """
        if proposal.id_moves:
            raise RingIdError("the overlay is a tree: its brokers have no ring IDs")
        reached = self._linked(proposal) if proposal.links_removed or proposal.links_added else self
        return reached._moved(proposal) if proposal.moves else reached

    def _linked(self, proposal: Proposal) -> ReachedTree:
        base = self._tree if not self._has_moved else self.state.span_tree_costs
        tree = base.copy()
        for swap in as_swaps(base, proposal.links_removed, proposal.links_added):
            tree.apply(swap)
        present = self.configuration
        return ReachedTree(
            self.state.with_configuration(Configuration(present.epoch, present.brokers, tree.links, present.homes)),
            tree,
        )

    def _moved(self, proposal: Proposal) -> ReachedTree:
        state, present, priced = self.state, self.configuration, self.state.publisher_costs
        saved, loads = self._saved_per_s.copy(), self._loads_moved_per_s.copy()
        homes = dict(present.home_of)
        for move in proposal.moves:
            if homes.get(move.client) != move.home_from:
                known = homes.get(move.client, "not known")
                raise HomeError(f"publisher {move.client} is to leave {move.home_from}, but its home is {known}")
            before, after = state.inventory.index[move.home_from], state.inventory.index[move.home_to]
            if move.client in priced.publishers:  # Else it was silent in all windows: wherever it is costs nothing.
                costs = priced.costs_by_span_per_s(move.client)
                saved += costs[:, before] - costs[:, after]
                loads += priced.loads_per_s(move.client, move.home_to) - priced.loads_per_s(move.client, move.home_from)
            homes[move.client] = move.home_to
        target = Configuration.of(present.epoch, present.brokers, present.links, homes)
        reached = ReachedTree(state.with_configuration(target), self._tree)
        reached._saved_per_s, reached._loads_moved_per_s, reached._has_moved = saved, loads, True
        return reached
