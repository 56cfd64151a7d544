"""The tree that a sequence of proposals leads to, with its cost in each window and the load of each broker.

Whether a proposal is worth it is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np

from regraft.controller.kinds.overlay_kind import HomeError, RingIdError
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.overlay_state import Span
from regraft.overlay.tree.swap_sequences import SwapCursor, as_swaps
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.agent_names import client_of
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import ClientMove, Proposal


class ReachedTree:
    """One overlay on the windows of a state; :meth:`after` returns the next and leaves this one unchanged.

    ``cursor`` is a tree that reaches this one by ``swaps``; overlays connected by swaps share one, because a copy for
    each would cost more than everything else.

    Exact: links are priced by :class:`TreeCosts`, homes by :class:`PublisherCosts`, both window by window; if all
    subscribers of a broker move, everything is counted again with their deliveries at the other one. ``degrees``
    (brokers,) are the links of each broker.
    """

    def __init__(self, state: TreeState, cursor: SwapCursor | None = None, swaps: tuple[LinkSwap, ...] = ()) -> None:
        self.state = state
        self._cursor, self._swaps = cursor, swaps
        tree = (cursor or state.span_cursor).go_to(swaps)
        # The shared tree moves on to other overlays: keep this one's values.
        self._spans_s = tree.sets.spans_s
        access_per_s, spans_s = state.access_by_span_per_s, tree.sets.spans_s
        self._costs_per_s = tree.costs_per_s + access_per_s
        self._cost_per_s = tree.cost_per_s + float(access_per_s @ spans_s / spans_s.sum())
        self._loads_per_s, self.degrees = tree.loads_per_s, tree.degrees

    @property
    def spans(self) -> tuple[Span, ...]:
        """The start and end of each span, in seconds: windows, cut if they are few."""
        return self.state.spans

    @property
    def costs_per_s(self) -> Floats:
        """The cost of the overlay in each span, shape (spans,)."""
        return self._costs_per_s

    @property
    def cost_per_s(self) -> float:
        """The cost of the overlay over all windows."""
        return self._cost_per_s

    @property
    def loads_per_s(self) -> Floats:
        """The notifications that pass each broker, shape (brokers,)."""
        return self._loads_per_s

    @property
    def configuration(self) -> TreeConfiguration:
        """The links and homes reached; its epoch is still the present one."""
        return self.state.configuration

    def after(self, proposal: Proposal) -> ReachedTree:
        """Return the overlay after the proposal.

        A subscriber that may move, but whose deliveries are not reported, moves at no cost: what it receives is
        unknown. What its client publishes moves along. Raises NotATreeError if its links leave no tree, KeyError for a
        broker that is not in the overlay, HomeError for a client that is not at the home it leaves, RingIdError for a
        reassignment of ring IDs.
        """
        if proposal.id_moves:
            raise RingIdError("the overlay is a tree: its brokers have no ring IDs")
        reached = self._linked(proposal) if proposal.links_removed or proposal.links_added else self
        single = {self._reported_as(move): move.home_to for move in proposal.moves if self._is_single(move)}
        unpriced = {move.client: move.home_to for move in proposal.moves if self._is_unpriced(move)}
        publishers = [move for move in proposal.moves if not self._is_single(move) and move.client not in unpriced]
        publishers += self._published(move for move in proposal.moves if move.client in unpriced)
        reached = reached._moved(publishers) if publishers else reached
        reached = ReachedTree(reached.state.with_single_moved(single)) if single else reached
        reached = reached._registered(unpriced) if unpriced else reached
        return reached._emptied(proposal) if proposal.subscribers_moved else reached

    def _is_single(self, move: ClientMove) -> bool:
        """Return True if a move is of a single subscriber whose deliveries windows report, or of such a client's."""
        return self.state.single.get(self._reported_as(move)) == move.home_from

    def _reported_as(self, move: ClientMove) -> str:
        """Return by which name windows report a subscriber's deliveries: an agent's with all of its client."""
        return client_of(move.client) if move.client in self.state.newest.movable else move.client

    def _is_unpriced(self, move: ClientMove) -> bool:
        """Return True if a move is of a subscriber that may move, or has left since: then nothing moves."""
        home = self.state.newest.movable.get(move.client)
        if home is None:
            return self.state.inventory.clients_stay and move.client not in self.configuration.home_of
        if home != move.home_from:
            raise HomeError(f"subscriber {move.client} would leave {move.home_from}, but its home is {home}")
        return not self._is_single(move)

    def _published(self, moves: Iterable[ClientMove]) -> list[ClientMove]:
        """Return the moves of what clients publish whose subscriptions move."""
        clients = {(client_of(move.client), move.home_from): move.home_to for move in moves}
        return [
            ClientMove(publisher, home_from, home_to)
            for (client, home_from), home_to in clients.items()
            for publisher in self.state.publishers_of(client, home_from)
        ]

    def _registered(self, moved: Mapping[str, str]) -> ReachedTree:
        if strangers := set(moved.values()) - set(self.configuration.brokers):
            raise KeyError(min(strangers))
        here = {name: home for name, home in moved.items() if name in self.state.newest.movable}
        reached = copy(self)
        reached.state = self.state.with_movable_moved(here)
        return reached

    def _emptied(self, proposal: Proposal) -> ReachedTree:
        moved = {move.home_from: move.home_to for move in proposal.subscribers_moved}
        if strangers := {*moved, *moved.values()} - set(self.configuration.brokers):
            raise KeyError(min(strangers))
        return ReachedTree(self.state.with_subscribers_moved(moved))

    def _linked(self, proposal: Proposal) -> ReachedTree:
        cursor = self._cursor or self.state.span_cursor
        tree = cursor.go_to(self._swaps)
        swaps = (*self._swaps, *as_swaps(tree, proposal.links_removed, proposal.links_added))
        links, present = cursor.go_to(swaps).links, self.configuration
        target = TreeConfiguration(present.epoch, present.brokers, links, present.homes)
        return ReachedTree(self.state.with_configuration(target), cursor, swaps)

    def _moved(self, moves: Sequence[ClientMove]) -> ReachedTree:
        state, present, priced = self.state, self.configuration, self.state.publisher_costs
        saved, loads = np.zeros(len(self._spans_s)), np.zeros(len(state.inventory.brokers))
        homes = dict(present.home_of)
        for move in moves:
            if homes.get(move.client) != move.home_from:
                home = homes.get(move.client, "not known")
                raise HomeError(f"publisher {move.client} would leave {move.home_from}, but its home is {home}")
            before, after = state.inventory.index[move.home_from], state.inventory.index[move.home_to]
            if move.client in priced.publishers:  # Else it was silent in all windows: its home costs nothing.
                costs = priced.costs_by_span_per_s(move.client)
                saved += costs[:, before] - costs[:, after]
                loads += priced.loads_per_s(move.client, move.home_to) - priced.loads_per_s(move.client, move.home_from)
            homes[move.client] = move.home_to
        target = TreeConfiguration.of(present.epoch, present.brokers, present.links, homes)
        reached = copy(self)
        reached.state = state.with_configuration(target)
        # Links are priced at the homes of their time: further swaps need a tree of these homes.
        reached._cursor, reached._swaps = None, ()
        reached._costs_per_s = self._costs_per_s - saved
        reached._cost_per_s = self._cost_per_s - float(saved @ self._spans_s / self._spans_s.sum())
        reached._loads_per_s = self._loads_per_s + loads
        return reached
