"""Count hand-overs to subscribers by publishing and delivering broker, over the windows of a horizon. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cut_off import DeliveryPairs


def deliveries_between(
    windows: Sequence[ClosedWindow], homes: Mapping[str, str], index: Mapping[str, int]
) -> DeliveryPairs:
    """Return hand-overs at each broker of what is published at each, by ``index``.

    Publishers without a home are left out. Full counts, such as hand-overs, cover the whole length of the windows,
    whatever share of notifications is sampled.
    """
    length_s = max(sum(window.sets.span_s / window.sets.share for window in windows), 1e-9)
    deliveries: defaultdict[tuple[int, int], float] = defaultdict(float)
    for window in windows:
        for (publisher, broker), count in window.local_deliveries.items():
            home = index.get(homes.get(publisher, ""))
            if home is not None and broker in index:
                deliveries[home, index[broker]] += count
    return DeliveryPairs.of(deliveries, length_s)
