"""One broker that decides by itself: broadcasts, evaluation and consensus of Jaeger07, section 4.

In: messages of neighbours, one at a time, the broker's view of its tree, and the time. Out: messages and agreed
exchanges. A pure state machine without clock or links; :mod:`experiments.psoop.distributed_exchanges` executes
exchanges.

Our reading where the paper is silent: a broker takes part in one cycle at a time. It refuses any other request, which
frees the brokers that the request has passed; it is free again when notified, once the exchange is in its tree, or
after a bounded time. So cycles agreed at the same time have no broker in common, and their exchanges are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.api.trees import TreeConfiguration
from regraft_lab.psoop.distributed_cache import NotificationCache
from regraft_lab.psoop.distributed_estimates import cycle_share, indirect_costs, removals
from regraft_lab.psoop.distributed_messages import (
    Agreed,
    Broadcast,
    Cycle,
    Effect,
    Exchange,
    HandOver,
    ProtocolMessage,
    Release,
    Request,
    Send,
    Step,
)
from regraft_lab.psoop.distributed_settings import CommonInterest, DistributedSettings, FilterContent
from regraft_lab.yardsticks.bloom_filters import BloomFilter, filter_shape

# Reasons to free the brokers of a cycle.
BUSY = "busy"  # A broker takes part in another cycle.
UNSETTLED = "unsettled"  # During a transition, or in another tree.
UNKNOWN = "unknown"  # A broker has not heard from every other broker of the cycle.
LATE = "late"  # The request took too long.
NO_GAIN = "no_gain"  # Eq. 10 keeps the tree.
NOT_EXECUTED = "not_carried_out"  # The exchange no longer fits, or its transition was aborted.


@dataclass(frozen=True, slots=True)
class LocalView:
    """A broker's view of the overlay: the trees it has tables for, and the epoch it publishes in.

    ``is_steady``: the broker is not in a transition.
    """

    trees: Mapping[int, TreeConfiguration]
    epoch: int
    is_steady: bool


@dataclass(slots=True)
class ReceivedFilter:
    """The last broadcast of another broker: which cached ids are in its filter.

    ``members``: a flag for each cached id with a number below ``noted_count``. ``is_fresh``: received since the
    last sweep.
    """

    members: NDArray[np.bool_]
    noted_count: int
    common: int
    is_fresh: bool = True

    def between(self, since: int, until: int) -> NDArray[np.bool_]:
        """Return which of the ids with these numbers are in the filter; empty if there are no such ids."""
        first = self.noted_count - len(self.members)
        return self.members[since - first : max(since, until) - first]


@dataclass(slots=True)
class _Engagement:
    """The one cycle a broker takes part in."""

    cycle: Cycle
    until_ms: float


class DistributedBroker:
    """The protocol state of one broker. ``link_cost`` returns the measured cost of a link to any other broker."""

    def __init__(
        self,
        name: str,
        processing_cost: float,
        settings: DistributedSettings,
        cache: NotificationCache,
        link_cost: Callable[[str], float],
    ) -> None:
        self.name = name
        self.processing_cost = processing_cost
        self.cache = cache
        self.received: dict[str, ReceivedFilter] = {}
        self._settings = settings
        self._measure = link_cost
        self._link_costs: dict[str, float] = {}
        self._engagement: _Engagement | None = None
        self._asked = 0
        self._noted_at_broadcast = 0

    @property
    def cycle(self) -> Cycle | None:
        """The cycle that the broker takes part in, as far as it knows; None if it takes part in none."""
        return None if self._engagement is None else self._engagement.cycle

    # --- broadcasts (4.3.1) ----------------------------------------------------------------------------------------

    def broadcast(self, view: LocalView) -> list[Effect]:
        """Send the filter of the broker's ids to all neighbours; forget brokers not heard from for two intervals."""
        self._sweep()
        ids = self.cache.ids
        if self._settings.filter_content is FilterContent.INTERVAL:
            ids = self.cache.newest(self.cache.noted_count - self._noted_at_broadcast)
        self._noted_at_broadcast = self.cache.noted_count
        share = self._settings.false_positive_share
        bits, hashes = self._settings.filter_bits, self._settings.filter_hashes
        if share is not None:
            bits, hashes = filter_shape(max(len(ids), 1), share)
        filter_ = BloomFilter(bits, hashes)
        filter_.add(ids)
        own = Step(self.name, self.processing_cost, 0.0)
        message = Broadcast(self.name, view.epoch, self._settings.horizon_hops, (own,), filter_)
        return [Send(peer, message) for peer in view.trees[view.epoch].neighbours[self.name]]

    def handle(self, source: str, message: ProtocolMessage, view: LocalView, now_ms: float) -> list[Effect]:
        """Process one message of a neighbour and return what to send, in order."""
        match message:
            case Broadcast():
                return self._on_broadcast(source, message, view, now_ms)
            case Request():
                return self._join(source, message, view, now_ms)
            case Agreed(cycle):
                if self._is_engaged_in(cycle):
                    self._engage(cycle, now_ms + self._settings.agreed_ms_max)
                return self._pass_back(cycle, message)
            case Release(cycle):
                if self._is_engaged_in(cycle):
                    self._engagement = None
                return self._pass_back(cycle, message)

    def _on_broadcast(self, source: str, message: Broadcast, view: LocalView, now_ms: float) -> list[Effect]:
        members = message.filter_.contains(self.cache.ids)
        self.received[message.origin] = ReceivedFilter(members, self.cache.noted_count, int(np.count_nonzero(members)))
        tree = view.trees.get(message.epoch)
        if tree is None:  # Its tree no longer exists here.
            return []
        here = Step(self.name, self.processing_cost, self._cost_of_link(source))
        path = (*message.path, here)
        effects: list[Effect] = []
        if message.hops_left > 1:
            onward = Broadcast(message.origin, message.epoch, message.hops_left - 1, path, message.filter_)
            effects += [Send(peer, onward) for peer in tree.neighbours[self.name] if peer != source]
        if message.epoch == view.epoch:
            effects += self._evaluate(path, view, now_ms)
        return effects

    def _sweep(self) -> None:
        """Forget brokers not heard from since the last sweep, and mark the others as not fresh."""
        for broker in [broker for broker, reception in self.received.items() if not reception.is_fresh]:
            del self.received[broker]
            self._link_costs.pop(broker, None)
        for reception in self.received.values():
            reception.is_fresh = False

    # --- evaluation (4.1) ------------------------------------------------------------------------------------------

    def common_with(self, broker: str) -> int:
        """Return I_ij; raise KeyError if the broker has not been heard from."""
        return self.received[broker].common

    @property
    def mean_common(self) -> float:
        """The mean of I_ij over all brokers heard from: phi of Eq. 6."""
        return sum(reception.common for reception in self.received.values()) / max(len(self.received), 1)

    def shared_with(self, broker: str, other: str) -> float:
        """Return I_ikj for two other brokers; raise KeyError if one has not been heard from."""
        one, two = self.received[broker], self.received[other]
        if self._settings.common_interest is CommonInterest.MEAN:
            return min(self.mean_common, one.common, two.common)
        # Ids cached after the older of the two broadcasts cannot be in its filter; ids dropped before the newer one
        # were not looked up.
        until = min(one.noted_count, two.noted_count)
        since = max(one.noted_count - len(one.members), two.noted_count - len(two.members))
        return float(np.count_nonzero(one.between(since, until) & two.between(since, until)))

    def indirect_cost(self, path: tuple[Step, ...]) -> float | None:
        """Return C_ij to the origin of a path that ends here; 0 without common interest, so that no link is cheaper.

        None if a broker of the path has not been heard from, so that the cost is unknown.
        """
        if any(step.broker not in self.received for step in path[:-1]):
            return None
        if not self.common_with(path[0].broker):
            return 0.0
        homeward = path[::-1]
        return indirect_costs(
            [step.broker for step in homeward],
            [step.link_cost for step in homeward[:-1]],
            [step.processing_cost for step in homeward],
            self.common_with,
            self.shared_with,
        )[-1]

    def _cost_of_link(self, peer: str) -> float:
        if peer not in self._link_costs:
            self._link_costs[peer] = self._measure(peer)
        return self._link_costs[peer]

    def _evaluate(self, path: tuple[Step, ...], view: LocalView, now_ms: float) -> list[Effect]:
        if len(path) < 3 or not view.is_steady or not self._is_free(view, now_ms):
            return []
        indirect_cost = self.indirect_cost(path)
        if not indirect_cost or self._cost_of_link(path[0].broker) >= indirect_cost:
            return []
        homeward = path[::-1]
        cycle = Cycle(
            f"{self.name}:{self._asked}",
            view.epoch,
            tuple(step.broker for step in homeward),
            (*(step.link_cost for step in homeward[:-1]), self._cost_of_link(path[0].broker)),
            tuple(step.processing_cost for step in homeward),
        )
        self._asked += 1
        deadline_ms = now_ms + self._settings.request_ms_max
        self._engage(cycle, deadline_ms)
        costs = cycle_share(cycle, 0, self.common_with, self.shared_with)
        return [Send(cycle.brokers[1], Request(cycle, tuple(costs), deadline_ms))]

    # --- consensus (4.2, 4.3.2) ------------------------------------------------------------------------------------

    def share_of(self, cycle: Cycle) -> list[float] | None:
        """Return this broker's part of the cost vector; None if it has not heard from all others of the cycle."""
        if any(broker not in self.received for broker in cycle.brokers if broker != self.name):
            return None
        return cycle_share(cycle, cycle.brokers.index(self.name), self.common_with, self.shared_with)

    def _join(self, source: str, message: Request, view: LocalView, now_ms: float) -> list[Effect]:
        cycle = message.cycle
        share = self.share_of(cycle)
        reason = self._reason_to_refuse(message, view, now_ms)
        if reason or share is None:
            return [Send(source, Release(cycle, reason or UNKNOWN))]
        self._engage(cycle, message.deadline_ms)
        costs = tuple(sum(pair) for pair in zip(message.costs, share, strict=True))
        position = cycle.brokers.index(self.name)
        if position < len(cycle.brokers) - 1:
            return [Send(cycle.brokers[position + 1], Request(cycle, costs, message.deadline_ms))]
        chosen = removals(costs)
        if not chosen:
            self._engagement = None
            return [Send(source, Release(cycle, NO_GAIN))]
        self._engage(cycle, now_ms + self._settings.agreed_ms_max)
        return [HandOver(Exchange(cycle, cycle.path_links[chosen[0]])), Send(source, Agreed(cycle))]

    def _reason_to_refuse(self, message: Request, view: LocalView, now_ms: float) -> str:
        if now_ms > message.deadline_ms:
            return LATE
        if not view.is_steady or message.cycle.epoch != view.epoch:
            return UNSETTLED
        return "" if self._is_free(view, now_ms) else BUSY

    def give_up(self, cycle: Cycle, reason: str) -> list[Effect]:
        """Free the cycle, as its last broker, because the exchange will not be executed."""
        if self._is_engaged_in(cycle):
            self._engagement = None
        return self._pass_back(cycle, Release(cycle, reason))

    def _pass_back(self, cycle: Cycle, message: Agreed | Release) -> list[Effect]:
        position = cycle.brokers.index(self.name)
        return [Send(cycle.brokers[position - 1], message)] if position else []

    def _engage(self, cycle: Cycle, until_ms: float) -> None:
        self._engagement = _Engagement(cycle, until_ms)

    def _is_engaged_in(self, cycle: Cycle) -> bool:
        return self._engagement is not None and self._engagement.cycle.name == cycle.name

    def _is_free(self, view: LocalView, now_ms: float) -> bool:
        """Return True if the broker may take part in a cycle; forget its last cycle if that is over."""
        if self._engagement is None:
            return True
        is_done = self._engagement.cycle.link_added in view.trees[view.epoch].links
        if is_done or now_ms > self._engagement.until_ms:
            self._engagement = None
        return self._engagement is None
