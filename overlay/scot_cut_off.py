"""What the death of each broker of a structured cyclic overlay would cut off, with static routing. Pure.

In: an overlay and how often something is handed over where. Out: deliveries a second by broker, until the overlay is
repaired, as :mod:`overlay.cut_off` has it for other kinds. A detour may lead around a congested link, not around a
death: a sender to a dead broker does not know which subscriptions lie behind it.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from regraft.overlay.cut_off import CutOff
from regraft.overlay.scot_configuration import ScotConfiguration

Floats = NDArray[np.float64]


def scot_cut_off(overlay: ScotConfiguration, deliveries_per_s: Floats) -> CutOff:
    """Return what the deaths of brokers cut off; ``deliveries_per_s`` (brokers, brokers) by home and broker.

    The way from a home leads within its region to the target's cluster, then from region to region within that. So
    what is published in a region is added up first. Cost O(regions * brokers * length of ways).
    """
    row = {broker: place for place, broker in enumerate(overlay.brokers)}
    of_region = np.zeros((len(overlay.regions), len(row)))
    for broker, place in row.items():
        of_region[overlay.place_of[broker][0]] += deliveries_per_s[place]
    cut_off = np.zeros(len(row))
    ways = dict(nx.all_pairs_shortest_path(overlay.shape.tree))
    for region in range(len(overlay.regions)):
        for target, (number, cluster) in overlay.place_of.items():
            per_s = of_region[region, row[target]]
            if per_s:
                held = {overlay.regions[int(one)][cluster] for one in ways[str(region)][str(number)]}
                for broker in held - {target}:
                    cut_off[row[broker]] += per_s
    for home, (_, cluster) in overlay.place_of.items():  # Where it is the first on the way, nothing has to pass it.
        own = [row[broker] for broker, (_, other) in overlay.place_of.items() if other == cluster and broker != home]
        cut_off[row[home]] -= deliveries_per_s[row[home], own].sum()
    return CutOff(overlay.brokers, np.maximum(cut_off, 0.0), float(deliveries_per_s.sum()))
