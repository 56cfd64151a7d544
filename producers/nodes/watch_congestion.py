"""Let a core that routes around congested links learn the queues of a node's links, and count what it does then.

In: the links' counts, every 50 ms. Out: measurements for the core. Which links are congested is decided there
(:mod:`producers.brokers.scot_routing`). On a tree there is only one way, so nothing is measured.
"""

from __future__ import annotations

import time
from collections import Counter

from regraft.overlay.link_congestion import LENGTH
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.nodes.links.meter_links import LinkMeter
from regraft.producers.nodes.links.run_links import Links

CONGESTED, DIVERTED = "congested_link_windows", "clusters_diverted"


class CongestionWatch:
    """The watch of one node; ``counts`` are the node's.

    It lets the core judge a queue by its length: over TCP, what has left a queue is known a round trip late, and once
    everything takes a detour, nothing enters, so that CE is 0 although the queue is as long as before.
    """

    def __init__(self, core: BrokerProtocol, links: Links, counts: Counter[str]) -> None:
        self._core, self._links, self._counts = core, links, counts
        self._loads = core.links if isinstance(core, ScotBroker) else None
        self._meter = LinkMeter(links.standing)
        if self._loads is not None:
            self._loads.rule = LENGTH

    def measure(self) -> None:
        """Measure all links; call it every :data:`overlay.link_congestion.WINDOW_MS`."""
        if self._loads is not None:
            self._loads.observe(self._meter.windows(self._core.live_neighbours, time.monotonic()))
            self._counts[CONGESTED] += len(self._loads.hot)
            self._counts[DIVERTED] = self._loads.diverted

    def round_trips(self) -> list[tuple[str, float]]:
        """Return the round trips to report, in ms by peer: without queues if the core routes around these."""
        measured = self._links.round_trips()
        if self._loads is None:
            return measured
        idle = {peer: self._links.standing(peer).least_rtt_ms for peer, _ in measured}
        return [(peer, rtt_ms if (least := idle[peer]) is None else least) for peer, rtt_ms in measured]

    @property
    def is_measuring(self) -> bool:
        """Whether there are detours, so that queues matter."""
        return self._loads is not None

    def set_detours(self, takes_detours: bool) -> None:
        """Let notifications go around congested links from now on, or not."""
        if self._loads is not None:
            self._loads.is_dynamic = takes_detours

    @property
    def congested(self) -> frozenset[str]:
        """The peers behind congested links."""
        return frozenset() if self._loads is None else self._loads.hot
