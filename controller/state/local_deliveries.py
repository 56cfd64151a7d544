"""Count hand-overs to subscribers by publishing and delivering broker, over the windows of a horizon. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regraft.controller.state.closed_window import ClosedWindow


def deliveries_between_per_s(
    windows: Sequence[ClosedWindow], homes: Mapping[str, str], index: Mapping[str, int]
) -> NDArray[np.float64]:
    """Return hand-overs per second at each broker (column) of what is published at each (row), by ``index``.

    Publishers without a home are left out. Full counts, such as hand-overs, cover the whole length of the windows,
    whatever share of notifications is sampled.
    """
    length_s = max(sum(window.sets.span_s / window.sets.share for window in windows), 1e-9)
    deliveries = np.zeros((len(index), len(index)))
    for window in windows:
        for (publisher, broker), count in window.local_deliveries.items():
            home = index.get(homes.get(publisher, ""))
            if home is not None and broker in index:
                deliveries[home, index[broker]] += count
    return deliveries / length_s
