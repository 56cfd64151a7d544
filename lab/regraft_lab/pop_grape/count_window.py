"""Count closed windows from the workload itself: what brokers would report of given publications.

In: a workload, homes, a range of publications. Out: ClosedWindows whose queues only show the service time. They are
exact and need no simulated events, so they suit dozens of draws and hundreds of trace sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from regraft.api.brokers import Filter, matches
from regraft.api.emulation import Quote
from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import ClosedWindow
from regraft.api.records import BLOCK_SIZE, QueueState
from regraft_lab.pop_grape.quote_workload import QuotePublisher, QuoteWorkload

SECOND_MS = 1_000


class WorkloadCounter:
    """Counts any publications of one workload; matches of a quote are computed once."""

    def __init__(self, inventory: Inventory, workload: QuoteWorkload, publications_max: int) -> None:
        self._inventory = inventory
        self._queues = tuple(
            _idle_queue(*each) for each in zip(inventory.brokers, inventory.processing_cost, strict=True)
        )
        self._workload = workload
        self._quotes = {each.name: _first(each, publications_max) for each in workload.publishers}
        self._wanted: dict[str, list[Counter[str]]] = {
            publisher.name: self._matched(publisher.name, workload) for publisher in workload.publishers
        }

    def window(self, homes: Mapping[str, str], first: int, count: int) -> ClosedWindow:
        """Return the window with publications ``first`` to ``first`` + ``count`` of each publisher, all at ``homes``.

        All publish at the same rate, so an equal number of publications of each corresponds to a span of time.
        """
        delivered: dict[tuple[str, str, int], int] = {}
        published: dict[tuple[str, str, int], int] = {}
        local: Counter[tuple[str, str]] = Counter()
        for publisher, wanted in self._wanted.items():
            for sequence in range(first, first + count):
                block, bit = divmod(sequence, BLOCK_SIZE)
                here = (homes[publisher], publisher, block)
                published[here] = published.get(here, 0) | 1 << bit
                for broker, subscribers in wanted[sequence].items():
                    there = (broker, publisher, block)
                    delivered[there] = delivered.get(there, 0) | 1 << bit
                    local[publisher, broker] += subscribers
        per_s = self._workload.publishers[0].notifications_per_s
        return ClosedWindow(
            start_ms=round(first / per_s * SECOND_MS),
            end_ms=round((first + count) / per_s * SECOND_MS),
            sets=DeliverySets.of(self._inventory.brokers, delivered, count / per_s, published),
            queues=self._queues,
            epoch_min=0,
            epoch_max=0,
            homes=dict(homes),
            local_deliveries=local,
        )

    def _matched(self, publisher: str, workload: QuoteWorkload) -> list[Counter[str]]:
        """Return for each publication the number of interested subscribers by broker."""
        homes: dict[Filter, Counter[str]] = {}
        for subscription in workload.subscriptions:
            if subscription.publisher == publisher:
                homes.setdefault(subscription.filter_, Counter())[subscription.home] += 1
        known: dict[int, Counter[str]] = {}
        for quote in self._quotes[publisher]:
            if id(quote) not in known:
                known[id(quote)] = Counter()
                for filter_, at_brokers in homes.items():
                    if matches(filter_, quote.content):
                        known[id(quote)] += at_brokers
        return [known[id(quote)] for quote in self._quotes[publisher]]


def _first(publisher: QuotePublisher, count: int) -> list[Quote]:
    return [quote for _, quote in islice(publisher.publications(), count)]


def _idle_queue(broker: str, service_ms: float) -> QueueState:
    """Return the queue of a broker that has served one notification in a second without any waiting."""
    return QueueState(
        broker=broker,
        peer="",
        messages_in_per_s=1.0,
        messages_out_per_s=1.0,
        notifications_out_per_s=1.0,
        bytes_in_per_s=0.0,
        bytes_out_per_s=0.0,
        busy_share=float(service_ms) / SECOND_MS,
        queue_length_last=0,
        queue_length_max=1,
        congestion=0.0,
        span_ms=SECOND_MS,
    )
