"""Bound what one broker may have in one open window, so that no sender uses up the memory of all.

In: the brokers, windows and sizes of parts, and what was charged before. Out: which parts are kept. Pure: the same
parts in any order leave the same ones, so a micro-batch that runs again writes the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from regraft.schemas.arrays import Longs

Charged = dict[int, dict[str, int]]  # By the start of the window and the broker, in bytes.

# Four telemetry batches in a second, each as long as Kafka permits, are half of this.
SHARE_BYTES_PER_S = 8 << 20
PART_BYTES = SHARE_BYTES_PER_S // 200  # Charged for each part besides its size: 200 in a second at most.


class Kept(NamedTuple):
    """Which parts are kept, by their places, and what is charged for all so far."""

    places: Longs
    charged: Charged


def keep_shares(
    brokers: Sequence[str], starts_ms: Sequence[int], parts: Sequence[bytes], charged: Mapping[int, Mapping[str, int]],
    window_ms: int,
) -> Kept:  # fmt: skip
    """Return the parts that fit into their brokers' shares of their windows: of too many, the first in byte order."""
    after: Charged = {start_ms: dict(of_window) for start_ms, of_window in charged.items()}
    share = SHARE_BYTES_PER_S * window_ms // 1_000
    groups: dict[tuple[int, str], list[int]] = {}
    for place, (broker, start_ms) in enumerate(zip(brokers, starts_ms, strict=True)):
        groups.setdefault((start_ms, broker), []).append(place)
    dropped: list[int] = []
    for (start_ms, broker), places in groups.items():
        of_window = after.setdefault(start_ms, {})
        sizes = [len(parts[place]) + PART_BYTES for place in places]
        left = share - of_window.get(broker, 0)
        if sum(sizes) > left:
            ordered = sorted(places, key=lambda place: parts[place])
            fit = int(np.searchsorted(np.cumsum([len(parts[place]) + PART_BYTES for place in ordered]), left, "right"))
            dropped += ordered[fit:]
            sizes = [len(parts[place]) + PART_BYTES for place in ordered[:fit]]
        of_window[broker] = of_window.get(broker, 0) + sum(sizes)
    return Kept(np.setdiff1d(np.arange(len(parts)), dropped), after)
