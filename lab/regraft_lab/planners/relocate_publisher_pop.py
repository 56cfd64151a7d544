"""Move publishers by POP (Cheung09, section 3): to the broker closest to most of their matching subscribers.

In: the state over a horizon. Out: a proposal for each publisher whose closest broker is not its home.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regraft.api.overlays import Words
from regraft.api.planners import columns_by_publisher, subscribers_mean
from regraft.api.planning import ClosedWindow, OrderSettings, PlannerSpec, TreeContext, TreeState
from regraft.api.records import ClientMove, Proposal, figure
from regraft.api.trees import Floats, RootedTree, TreeConfiguration
from regraft_lab.planners.rank_moves import rank_moves

PLANNER = "relocate_publisher_pop"
NEWEST_SHARE = 0.25  # "a weight of 0.25 to the newest value and 0.75 to the last average value" (3.1).
TIE_SHARE = 1e-9  # Sides that differ by less than this share are equal up to the rounding of floats.

Part = tuple[ClosedWindow, list[int], Words]


@dataclass(frozen=True)
class TraceSettings(OrderSettings):
    """How many notifications POP traces."""

    # How many notifications of a publisher must have been traced, the paper's P_threshold of 100.
    pop_traces_min: int = 100
    # At most this many notifications are traced (N of Cheung09, its 50) in pop_window_s.
    pop_traces_max: int = 50
    # W of Cheung09, its 60 s.
    pop_window_s: float = 60.0


def relocate_publisher_pop(
    state: TreeState, settings: TraceSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return a move to the closest broker for each publisher with enough traced notifications.

    Source: Cheung09, sections 3.1 (tracing, running average) and 3.2 (the walk of the relocation request). Cost
    O(brokers) for each traced notification and publisher. Guarantee: the broker at which the walk ends is a median of
    the traced subscribers, so the mean number of hops to them is least; none for the overlay's cost, which POP does not
    consider. Departures: a notification of the windows is traced with the paper's probability drawn from ``rng``
    instead of being tagged; the number of a broker's subscribers that received it is the mean of its window; a traced
    notification counts 0 at brokers it did not reach, so that all counts are averages over the same notifications,
    which the paper leaves open.
    """
    if not state.can_move_publishers:
        return []
    tree = state.publisher_costs.tree
    index, homes = state.inventory.index, state.configuration.home_of
    whole = [(window, columns_by_publisher(window.sets), window.sets.delivered) for window in state.windows]
    reasons = {}
    for publisher in state.publisher_costs.publishers:
        parts = [(window, of[publisher], delivered) for window, of, delivered in whole if publisher in of]
        traced = trace(parts, publisher, settings, rng)
        if publisher not in homes or traced is None or traced.count < settings.pop_traces_min:
            continue
        home = homes[publisher]
        walk = probe_walk(state.configuration, tree, traced.subscribers, index[home])
        target = state.inventory.brokers[walk.path[-1]]
        if target != home:
            total, first = float(traced.subscribers.sum()), state.inventory.brokers[walk.path[1]]
            reasons[ClientMove(publisher, home, target)] = (
                f"of {figure(total)} matching subscribers, {figure(walk.behind_first)} are behind the link to {first}; "
                f"{target} is {len(walk.path) - 1} hops that way ({traced.count} notifications traced)"
            )
    return rank_moves(state, settings.order, context, PLANNER, reasons, rng)


@dataclass(frozen=True, eq=False)
class Traced:
    """The number of traced notifications, and the running average of the subscribers that received them, by broker."""

    count: int
    subscribers: Floats


@dataclass(frozen=True, slots=True)
class ProbeWalk:
    """The brokers that a relocation request passes, home first, and the subscribers behind its first link."""

    path: tuple[int, ...]
    behind_first: float


def trace_probability(traced_in_window: int, traces_max: int) -> float:
    """Return P_trace = 1 - T / N (3.1), after T of at most N traced notifications of this window."""
    return max(1 - traced_in_window / traces_max, 0.0)


def running_average(last: Floats | None, newest: Floats) -> Floats:
    """Return the paper's running average after one more value; the first value is the first average."""
    return newest if last is None else NEWEST_SHARE * newest + (1 - NEWEST_SHARE) * last


def trace(parts: Sequence[Part], publisher: str, settings: TraceSettings, rng: random.Random) -> Traced | None:
    """Trace a publisher's notifications, oldest window first, at most ``pop_traces_max`` in ``pop_window_s``.

    ``parts`` are the windows in which it published, with its columns and all deliveries. A window's notifications are
    assumed to be spread evenly over it. Return None if nothing was traced.
    """
    average: Floats | None = None
    count, now, traced_now = 0, -1, 0
    for window, columns, delivered in parts:
        chosen = []
        notifications = list(_notifications(window, columns))
        length_ms = window.end_ms - window.start_ms
        for place, notification in enumerate(notifications):
            period = int((window.start_ms + length_ms * place / len(notifications)) / (settings.pop_window_s * 1000))
            if period != now:
                now, traced_now = period, 0
            if rng.random() < trace_probability(traced_now, settings.pop_traces_max):
                traced_now += 1
                chosen.append(notification)
        for subscribers in _subscribers(window, publisher, delivered, columns, chosen):
            average = running_average(average, subscribers)
        count += len(chosen)
    return None if average is None else Traced(count, average)


def probe_walk(configuration: TreeConfiguration, tree: RootedTree, subscribers: Floats, home: int) -> ProbeWalk:
    """Follow the link with more subscribers behind it than all other links and the broker have, while there is one.

    Source: Cheung09, section 3.2. The request's count of the side it comes from is the total less what lies ahead.
    """
    below = tree.summed_below(subscribers)
    total = float(below[0])
    index = {broker: position for position, broker in enumerate(configuration.brokers)}
    path, behind_first = [home], 0.0
    while True:
        here = path[-1]
        for name in configuration.neighbours[configuration.brokers[here]]:
            peer = index[name]
            behind = float(below[peer] if tree.parents[peer] == here and peer else total - below[here])
            if behind > total - behind + TIE_SHARE * total:
                path.append(peer)
                behind_first = behind_first or behind
                break
        else:
            return ProbeWalk(tuple(path), behind_first)


def _notifications(window: ClosedWindow, columns: list[int]) -> Iterator[tuple[int, int]]:
    """Yield column and bit of each notification, oldest first."""
    for column in columns:
        mask = int(window.sets.published[column])
        while mask:
            yield column, (mask & -mask).bit_length() - 1
            mask &= mask - 1


def _subscribers(
    window: ClosedWindow, publisher: str, delivered: Words, columns: list[int], chosen: list[tuple[int, int]]
) -> Iterator[Floats]:
    """Yield for each chosen notification how many subscribers received it, by broker."""
    mean = subscribers_mean(window, publisher, delivered[:, columns])
    for column, bit in chosen:
        yield mean * (delivered[:, column] >> np.uint64(bit) & np.uint64(1))


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    relocate_publisher_pop,
    TraceSettings,
    summary="a publisher's home, by the number of its subscribers",
    source="Cheung09, section 3",
)
