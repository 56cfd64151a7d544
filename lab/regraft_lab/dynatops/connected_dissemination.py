"""The cost of events on a topic-connected overlay: from one subscriber to all others, over subscribers only.

Building the overlay does not belong here (:mod:`experiments.dynatops.topic_connected`).

An overlay of this kind has no root: an event spreads among the brokers that want its topic. Reading: it enters at a
uniformly random subscribed broker and follows a tree of shortest paths from there. The path from the publisher to the
entry does not count, just as the path to the root does not count for rooted systems.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.connect_topics import unconnected_topics
from regraft_lab.dynatops.dissemination import Flags, Floats, TopicMeasures

ENTRIES = 8


def connected_measures(
    adjacency: Flags,
    wanted: Flags,
    rng: np.random.Generator,
    entries: int = ENTRIES,
    hop_delays: Floats | None = None,
    audience: NDArray[np.integer] | None = None,
) -> TopicMeasures:
    """Return the cost of one event of each topic, its delay averaged over ``entries`` random entries.

    ``adjacency`` (brokers, brokers), ``wanted`` (brokers, topics). ``hop_delays`` (brokers, brokers) is the delay of a
    hop, by default 1; among paths of fewest hops the one over the lowest-numbered broker counts. ``audience`` as in
    :func:`topic_measures`. Raises ValueError if a topic is not connected or ``entries`` is below 1. Cost
    O(entries * topics * brokers^2) for each hop of the longest path.
    """
    if entries < 1:
        raise ValueError(f"entries is {entries}: must be at least 1")
    split = unconnected_topics(adjacency, wanted)
    if len(split):
        raise ValueError(
            f"{len(split)} topics are not connected on this overlay, the first is {split[0]}: rebuild it first"
        )
    members = np.ascontiguousarray(wanted.T)
    weights = (members if audience is None else audience.T).astype(np.float64)
    delay = np.zeros(len(members))
    for _ in range(entries):
        delay += (weights * _path_delays(adjacency, members, _drawn_members(members, rng), hop_delays)).sum(axis=1)
    subscribers = members.sum(axis=1)
    return TopicMeasures(
        subscriber=np.maximum(subscribers - 1, 0).astype(np.float64),
        relay=np.zeros(len(members)),
        delay=delay / entries,
        deliveries=weights.sum(axis=1),
    )


def _drawn_members(members: Flags, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random member of each topic; broker 0 if a topic has none."""
    drawn: NDArray[np.int64] = np.where(members, rng.random(members.shape), -1.0).argmax(axis=1)
    return drawn


def _path_delays(adjacency: Flags, members: Flags, entries: NDArray[np.int64], hop_delays: Floats | None) -> Floats:
    """Return the delay from its topic's entry to each member, shape (topics, brokers); 0 for other brokers."""
    links = adjacency.astype(np.float32)
    delays = np.zeros(members.shape)
    frontier = np.zeros(members.shape, dtype=np.bool_)
    frontier[np.arange(len(members)), entries] = True
    frontier &= members
    reached = frontier.copy()
    hops = 0
    while frontier.any():
        hops += 1
        new = (frontier.astype(np.float32) @ links > 0) & members & ~reached
        topics, brokers = np.nonzero(new)
        if hop_delays is None:
            delays[topics, brokers] = hops
        else:
            above = (frontier[topics] & adjacency[brokers]).argmax(axis=1)
            delays[topics, brokers] = delays[topics, above] + hop_delays[above, brokers]
        reached |= new
        frontier = new
    return delays
