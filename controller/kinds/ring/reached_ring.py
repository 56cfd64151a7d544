"""The ring that a sequence of proposals leads to, with its cost in each window and the load of each broker.

Whether a proposal is worth it is judged elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.overlay_kind import HomeError, RingIdError
from regraft.controller.kinds.ring.ring_state import RingState, RingTraffic
from regraft.controller.state.overlay_state import Span, cut_spans
from regraft.overlay.overlay_configuration import LinkError
from regraft.overlay.ring.chord_ring import RingError
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import topic_costs, topic_roots
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import ClientMove, IdMove, Proposal


class ReachedRing:
    """One ring on the windows of a state; :meth:`after` returns the next and leaves this one unchanged.

    The newest interests hold for all windows: the register knows them exactly, so windows differ only by the rates at
    which topics are published. ``cost_per_s`` is at the filtered rates that planners see. A reassignment of IDs
    reprices all topics; a move only those that a broker starts or stops wanting.
    """

    def __init__(self, state: RingState, delay_weight: float) -> None:
        if state.traffic is None:
            raise ValueError("the users of the ring are unknown")
        self._start = state
        self._ring: RingTraffic = state.traffic
        self._delay_weight = delay_weight
        self._present: RingConfiguration = self._ring.configuration  # Homes are those at the start.
        self._homes: dict[str, str] = {}  # Homes of the users moved since.
        self._counts: NDArray[np.int32] = self._ring.interests.user_counts
        self._topic_costs: Floats = self._ring.topic_costs.total(delay_weight)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The start and end of each window, in seconds."""
        return cut_spans(self._start.windows)

    @property
    def costs_per_s(self) -> Floats:
        """The cost of the ring in each window, shape (windows,)."""
        return np.asarray(self._ring.window_rates_per_s @ self._topic_costs)

    @property
    def cost_per_s(self) -> float:
        """The cost of the ring at the filtered rates."""
        return float(self._ring.rates_per_s @ self._topic_costs)

    @property
    def loads(self) -> Floats:
        """The share of all subscriptions that each broker serves, shape (brokers,)."""
        return np.asarray(self._counts.sum(axis=1) / max(self._ring.interests.subscription_count, 1))

    @cached_property
    def configuration(self) -> RingConfiguration:
        """The IDs reached, with the homes of all users that were ever moved; its epoch is still the present one."""
        homes = self._present.home_of | self._homes
        return replace(self._present, homes=tuple(sorted(homes.items()))) if self._homes else self._present

    @cached_property
    def state(self) -> RingState:
        """The state with this configuration."""
        if self.configuration == self._start.configuration:
            return self._start
        return self._start.with_configuration(self.configuration)

    def after(self, proposal: Proposal) -> ReachedRing:
        """Return the ring after the proposal.

        Raises LinkError if links are to be exchanged, RingIdError if IDs do not fit, HomeError for a user that is
        not at the home it leaves, or that would go to a missing broker. Moves of users missing from the register are
        ignored: they have left.
        """
        if proposal.links_added or proposal.links_removed:
            raise LinkError("links of a ring follow from its IDs and cannot be exchanged")
        reached = self._copy()
        if proposal.id_moves:
            reached._reassign(proposal.id_moves)
        if proposal.moves:
            reached._move(proposal.moves)
        return reached

    def _copy(self) -> ReachedRing:
        """Return a ring to change; nothing is priced again, and its configuration and state are its own."""
        copied = object.__new__(ReachedRing)
        copied._start, copied._ring, copied._delay_weight = self._start, self._ring, self._delay_weight
        copied._present, copied._homes, copied._counts = self._present, self._homes, self._counts
        copied._topic_costs = self._topic_costs
        return copied

    def _reassign(self, id_moves: tuple[IdMove, ...]) -> None:
        id_of = dict(self._present.id_of)
        for move in id_moves:
            position = id_of.get(move.broker)
            if position != move.id_from:
                has = "is not in the overlay" if position is None else f"has {position}"
                raise RingIdError(f"{move.broker} must give up ring ID {move.id_from}, but {has}")
            id_of[move.broker] = move.id_to
        try:
            present = self._present
            self._present = RingConfiguration.of(present.epoch, present.bits, id_of, present.home_of)
        except RingError as error:
            raise RingIdError(str(error)) from error
        self._topic_costs = self._priced(np.arange(len(self._topic_costs)))

    def _move(self, moves: tuple[ClientMove, ...]) -> None:
        interests = self._ring.interests
        row = {broker: position for position, broker in enumerate(interests.brokers)}
        before = self._counts
        self._counts, self._homes = before.copy(), dict(self._homes)
        for move in moves:
            if move.home_to not in row:
                raise HomeError(f"user {move.client} would move to {move.home_to}, which is not in the overlay")
            user = interests.position_of.get(move.client)
            if user is None:
                continue
            home = self._homes.get(move.client, interests.brokers[interests.homes[user]])
            if home != move.home_from:
                raise HomeError(f"user {move.client} would leave {move.home_from}, but its home is {home}")
            wanted = interests.wanted[interests.starts[user] : interests.starts[user + 1]]
            self._counts[row[home], wanted] -= 1
            self._counts[row[move.home_to], wanted] += 1
            self._homes[move.client] = move.home_to
        changed = np.flatnonzero(((before > 0) != (self._counts > 0)).any(axis=0))
        self._topic_costs = self._topic_costs.copy()
        self._topic_costs[changed] = self._priced(changed)

    def _priced(self, topics: NDArray[np.intp]) -> Floats:
        """Return the cost of one notification of each of these topics (by position)."""
        ring, names = self._present, self._ring.interests.topics
        row = {broker: position for position, broker in enumerate(ring.brokers)}
        at_position = np.array([row[broker] for broker in ring.broker_at])
        wanted = self._counts[np.ix_(at_position, topics)] > 0
        roots = topic_roots(ring, tuple(names[topic] for topic in topics))
        return topic_costs(ring.ring, roots, wanted).total(self._delay_weight)
