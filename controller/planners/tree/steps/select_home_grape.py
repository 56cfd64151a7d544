"""Select a publisher's broker as GRAPE does, by both metrics over the candidates.

Source: Cheung09, section 4.2. In: the state. Out: choices. Making proposals of them does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.planners.shared_settings import SessionSettings
from regraft.controller.planners.tree.steps.trace_publishers import hop_delays, trace_sessions
from regraft.overlay.tree.trace_sessions import SessionMetrics
from regraft.schemas.arrays import Floats

TIE_SHARE = 1e-9  # Values that differ by less than this share are equal up to the rounding of floats.

Priority = Literal["load", "delay"]


@dataclass(frozen=True, slots=True)
class GrapeChoice:
    """The broker that GRAPE wants for one publisher, with both metrics there and at its present home.

    ``messages``: through all brokers, per notification traced. ``delay_ms``: mean over all hand-overs to subscribers.
    """

    publisher: str
    home_from: str
    home_to: str
    messages_from: float
    messages_to: float
    delay_ms_from: float
    delay_ms_to: float


class GrapeSelection:
    """GRAPE's metrics of every publisher that has published enough, and its choices for any priority and weight."""

    def __init__(self, state: TreeState, settings: SessionSettings) -> None:
        self._state = state
        self._settings = settings
        self._tree = state.publisher_costs.tree
        count = settings.grape_notifications_min
        self._metrics = SessionMetrics(self._tree, trace_sessions(state.windows, count, count))

    def choices(self, priority: Priority, weight: int) -> Iterator[GrapeChoice]:
        """Yield the choice for each publisher whose home is known, also if that is to stay."""
        names, index = self._state.inventory.brokers, self._state.inventory.index
        sessions = self._metrics.sessions
        for place, publisher in enumerate(sessions.publishers):
            home = self._state.configuration.home_of.get(publisher)
            if home is None:
                continue
            present = index[home]
            candidates = np.flatnonzero(self._metrics.reached(place, present))
            messages, delays_ms = self._metrics.messages[place] / sessions.lengths[place], self._delays_ms[place]
            load, delay = messages[candidates], delays_ms[candidates]
            chosen = int(candidates[select(load, delay, candidates == present, priority, weight)])
            yield GrapeChoice(
                publisher=publisher,
                home_from=home,
                home_to=names[chosen],
                messages_from=float(messages[present]),
                messages_to=float(messages[chosen]),
                delay_ms_from=float(delays_ms[present]),
                delay_ms_to=float(delays_ms[chosen]),
            )

    @cached_property
    def _delays_ms(self) -> Floats:
        state, links = self._state, self._settings.link_delays
        delays = hop_delays(state.configuration, state.inventory, state.windows, self._tree, link_delays=links)
        return self._metrics.delays_ms(delays)


def select(load: Floats, delay: Floats, is_present: NDArray[np.bool_], priority: Priority, weight: int) -> int:
    """Return the position of the candidate to choose; candidates are ordered by name.

    The metric that has priority is normalised to 0..100 over the candidates, those above 100 - ``weight`` are dropped,
    and the one with the least of the other metric is chosen from the rest. Among equals this is the present broker,
    else the first.
    """
    first, second = (load, delay) if priority == "load" else (delay, load)
    least, most = float(first.min()), float(first.max())
    spread = most - least
    kept = np.ones(len(first), dtype=bool)
    if spread > TIE_SHARE * most:
        kept = first <= least + spread * (100 - weight) / 100 + TIE_SHARE * most
    best = kept & (second <= second[kept].min() + TIE_SHARE * float(second.max()))
    present = np.flatnonzero(best & is_present)
    return int(present[0] if len(present) else np.flatnonzero(best)[0])
