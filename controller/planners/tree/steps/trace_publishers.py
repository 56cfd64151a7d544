"""Collect from closed windows what GRAPE traces: sessions of publishers, and the delays of notifications on their way.

The paper's brokers trace a session when a publisher asks for it; here it is cut out of the windows of the horizon, so
no request is needed. Its metrics belong to :mod:`overlay.tree.trace_sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.trace_sessions import HopDelays, TraceSessions
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats, Words


def trace_sessions(windows: Sequence[ClosedWindow], length_min: int, length_max: int | None) -> TraceSessions:
    """Return the newest ``length_max`` notifications (None: all) of each publisher that has at least ``length_min``.

    Windows are oldest first. How many subscribers a broker handed a notification to is known only as a sum over a
    window, so each counts the mean of its window, or 1 if that is unknown.
    """
    bound = 1 << 62 if length_max is None else length_max
    left: dict[str, int] = {}
    parts: dict[str, list[Words]] = {}
    sums: dict[str, Floats] = {}
    for window in reversed(windows):
        sets, words = window.sets, window.sets.delivered
        for publisher, columns in columns_by_publisher(sets).items():
            room = left.setdefault(publisher, bound)
            if room <= 0:
                continue
            masks = _newest_bits(sets.published[columns], room)
            left[publisher] = room - int(np.bitwise_count(masks).sum())
            delivered = words[:, columns]
            parts.setdefault(publisher, []).append(delivered & masks)
            traced = np.bitwise_count(delivered & masks).sum(axis=1)
            handed = traced * subscribers_mean(window, publisher, delivered)
            sums[publisher] = sums[publisher] + handed if publisher in sums else handed
    chosen = [name for name in sorted(parts) if bound - left[name] >= max(length_min, 1)]
    return _joined(chosen, parts, sums, [bound - left[name] for name in chosen], len(windows[0].sets.brokers))


def hop_delays(
    configuration: TreeConfiguration,
    inventory: Inventory,
    windows: Sequence[ClosedWindow],
    tree: RootedTree,
    *,
    link_delays: bool,
) -> HopDelays:
    """Return how long a notification takes from broker to broker in ms, from the windows' queues.

    At a broker: the mean wait before service, and matching, as busy time per notification served; a broker that served
    none gets the mean over all. On the way out: the mean wait for the link and, with ``link_delays``, half of the least
    round trip measured, or the inventory's cost of the link if none was.
    """
    waits = _mean_waits_ms(windows)
    matching = _matching_ms(windows)
    typical = matching.get("", 0.0)
    names = configuration.brokers
    at_broker = np.array([waits.get((name, ""), 0.0) + matching.get(name, typical) for name in names])
    delay_of = _link_delays_ms(inventory, windows) if link_delays else _no_delay
    outward, inward = np.zeros(len(names)), np.zeros(len(names))
    for child, parent in enumerate(tree.parents):
        if child != parent:
            down, up = (names[parent], names[child]), (names[child], names[parent])
            outward[child] = at_broker[parent] + waits.get(down, 0.0) + delay_of(*down)
            inward[child] = at_broker[child] + waits.get(up, 0.0) + delay_of(*up)
    return HopDelays(outward, inward, at_broker)


def columns_by_publisher(sets: DeliverySets) -> dict[str, list[int]]:
    """Return the columns of each publisher, oldest block first."""
    columns: dict[str, list[int]] = {}
    for (publisher, _), place in sorted((name, place) for place, name in enumerate(sets.columns)):
        columns.setdefault(publisher, []).append(place)
    return columns


def subscribers_mean(window: ClosedWindow, publisher: str, delivered: Words) -> Floats:
    """Return to how many subscribers each broker handed a delivered notification, as the mean of the window.

    ``delivered`` are the publisher's columns. The mean is at least 1 if anything was delivered, and 1 if it is unknown.
    """
    counts = np.bitwise_count(delivered).sum(axis=1, dtype=np.float64)
    deliveries = window.local_deliveries
    if not deliveries:
        return np.asarray(np.minimum(counts, 1.0))
    handed = np.array([deliveries.get((publisher, broker), 0) for broker in window.sets.brokers], dtype=np.float64)
    handed *= window.sets.share  # Hand-overs are counted in full, notifications are sampled.
    return np.asarray(np.maximum(handed, counts) / np.maximum(counts, 1.0) * (counts > 0))


def _newest_bits(published: Words, count: int) -> Words:
    """Return the bits of the newest ``count`` notifications; columns are oldest first."""
    masks = published.copy()
    excess = int(np.bitwise_count(masks).sum()) - count
    for place in range(len(masks)):
        while excess > 0 and masks[place]:
            masks[place] &= masks[place] - np.uint64(1)  # Clears its lowest bit, the oldest.
            excess -= 1
    return masks


def _joined(
    chosen: list[str], parts: dict[str, list[Words]], sums: dict[str, Floats], lengths: list[int], brokers: int
) -> TraceSessions:
    words = [np.concatenate(parts[name], axis=1) for name in chosen]
    starts = np.cumsum([0, *(each.shape[1] for each in words)], dtype=np.intp)[:-1]
    whole = np.concatenate(words, axis=1) if words else np.zeros((brokers, 0), dtype=np.uint64)
    deliveries = np.array([sums[name] for name in chosen]).reshape(len(chosen), brokers)
    return TraceSessions(tuple(chosen), whole, starts, np.array(lengths, dtype=np.int64), deliveries)


def _mean_waits_ms(windows: Sequence[ClosedWindow]) -> dict[tuple[str, str], float]:
    """Return the mean wait of a message in each queue in ms, by (broker, peer)."""
    waited_ms: dict[tuple[str, str], float] = {}
    messages: dict[tuple[str, str], float] = {}
    for window in windows:
        for queue in window.queues:
            key = queue.broker, queue.peer
            count = queue.messages_out_per_s * queue.span_ms / 1000
            waited_ms[key] = waited_ms.get(key, 0.0) + queue.wait_ms_mean * count
            messages[key] = messages.get(key, 0.0) + count
    return {key: waited_ms[key] / count for key, count in messages.items() if count > 0}


def _matching_ms(windows: Sequence[ClosedWindow]) -> dict[str, float]:
    """Return the busy time of each broker per notification in ms, and under "" the mean over all."""
    busy_ms: dict[str, float] = {}
    served: dict[str, float] = {}
    for window in windows:
        for queue in window.queues:
            if not queue.peer:
                for name in (queue.broker, ""):
                    busy_ms[name] = busy_ms.get(name, 0.0) + queue.busy_share * queue.span_ms
                    served[name] = served.get(name, 0.0) + queue.notifications_out_per_s * queue.span_ms / 1000
    return {name: busy_ms[name] / count for name, count in served.items() if count > 0}


def _link_delays_ms(inventory: Inventory, windows: Sequence[ClosedWindow]) -> Callable[[str, str], float]:
    least_ms: dict[tuple[str, str], float] = {}
    for window in windows:
        for rtt in window.rtts:
            pair = link(rtt.broker, rtt.peer)
            least_ms[pair] = min(least_ms.get(pair, rtt.rtt_ms_min), rtt.rtt_ms_min)

    def delay_ms(broker: str, peer: str) -> float:
        measured = least_ms.get(link(broker, peer))
        return inventory.cost_of_link(broker, peer) if measured is None else measured / 2

    return delay_ms


def _no_delay(_broker: str, _peer: str) -> float:
    return 0.0
