"""What the death of each broker of a structured cyclic overlay would cut off, with static routing. Pure.

In: an overlay and the rate of deliveries at each broker. Out: for each broker, the deliveries per second that its death
cuts off until the overlay is repaired, as :mod:`overlay.tree.tree_cut_off` gives it for other kinds. A detour can avoid
a congested link but not a dead broker: the sender does not know which subscriptions are behind it.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from regraft.overlay.cut_off import CutOff
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.arrays import Floats


def scot_cut_off(overlay: ScotConfiguration, deliveries_per_s: Floats) -> CutOff:
    """Return what the death of each broker cuts off; ``deliveries_per_s`` (brokers, brokers) by home and broker.

    A route leads from the home within its region to the target's cluster, then from region to region within that
    cluster. So publications are first summed by region. Cost O(regions * brokers * length of routes).
    """
    row = {broker: place for place, broker in enumerate(overlay.brokers)}
    of_region = np.zeros((len(overlay.regions), len(row)))
    for broker, place in row.items():
        of_region[overlay.place_of[broker][0]] += deliveries_per_s[place]
    cut_off = np.zeros(len(row))
    paths = dict(nx.all_pairs_shortest_path(overlay.shape.tree))
    for region in range(len(overlay.regions)):
        for target, (number, cluster) in overlay.place_of.items():
            per_s = of_region[region, row[target]]
            if per_s:
                held = {overlay.regions[int(one)][cluster] for one in paths[str(region)][str(number)]}
                for broker in held - {target}:
                    cut_off[row[broker]] += per_s
    for home, (_, cluster) in overlay.place_of.items():  # A home that starts the route relays nothing.
        own = [row[broker] for broker, (_, other) in overlay.place_of.items() if other == cluster and broker != home]
        cut_off[row[home]] -= deliveries_per_s[row[home], own].sum()
    return CutOff(overlay.brokers, np.maximum(cut_off, 0.0), float(deliveries_per_s.sum()))
