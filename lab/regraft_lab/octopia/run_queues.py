"""Run notifications through the queues of brokers and links, in virtual time.

In: streams with their times and routing. Out: delays, messages, arrival of the last notification. A broker matches one
notification at a time, and sends copies with one sender per link, or with one sender for all its links.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regraft.api.cyclic import PRODUCT, WINDOW_MS, CongestionRule, QueueWindow, ScotBroker
from regraft_lab.octopia.route_copies import Copy

Link = tuple[ScotBroker, ScotBroker]
Load = Callable[[ScotBroker, ScotBroker], float]
Copies = Callable[[ScotBroker, ScotBroker | None, int, Load], list[Copy]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Notifications of a publisher for one set of targets: times in ms, and how copies are routed.

    ``vector``: what the host must serve: other clusters, or on trees the targets as ``bits``. Without ``bits`` a copy
    is for each target that it reaches. Streams with the same ``publisher`` are parts of its notifications: their order
    is checked across all of them.
    """

    host: ScotBroker
    targets: frozenset[ScotBroker]
    vector: int
    copies: Copies
    times_ms: Sequence[float]
    publisher: str = ""
    bits: Mapping[ScotBroker, int] = field(default_factory=dict)

    def is_for(self, at: ScotBroker, vector: int) -> bool:
        """Return True if a copy is for a broker rather than just passing through it."""
        return at in self.targets and (not self.bits or at == self.host or bool(vector & self.bits[at]))


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a broker takes to match a notification, a sender to send a copy, and a link to carry it."""

    match_ms: float
    send_ms: float
    link_ms: float
    shared_sender: bool


@dataclass(slots=True)
class Outcome:
    """The results of a run; ``queue_measures``: by window, of the links out of the watched broker."""

    delays_ms: list[float] = field(default_factory=list)
    messages: int = 0
    last_ms: float = 0.0
    out_of_order: int = 0
    queue_measures: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Queue:
    window: int = 0
    entered: int = 0
    left: int = 0
    queued: int = 0
    reported: float = 0.0
    over_ms: float = WINDOW_MS


class _Carried(NamedTuple):
    stream: int
    number: int
    came_from: ScotBroker | None
    at: ScotBroker
    vector: int


class QueueRun:
    """One run over all streams, until no notification is waiting."""

    def __init__(
        self,
        streams: Sequence[Stream],
        pace: Pace,
        rule: CongestionRule = PRODUCT,
        watched: ScotBroker | None = None,
        link_ms: Callable[[ScotBroker, ScotBroker], float] | None = None,
    ) -> None:
        """Prepare a run; ``rule`` measures the windows of queues, ``link_ms`` overrides the pace's delay per link."""
        self.outcome = Outcome()
        self._link_ms = link_ms or (lambda one, other: pace.link_ms)
        self._streams, self._pace, self._rule, self._watched = streams, pace, rule, watched
        self._events: list[tuple[float, int, bool, _Carried]] = []
        self._event_count = 0
        self._now_ms = 0.0
        self._queues: dict[Link, _Queue] = {}
        self._free_ms: dict[ScotBroker | Link, float] = {}
        self._matcher_free_ms: dict[ScotBroker, float] = {}
        self._latest: dict[tuple[int | str, ScotBroker], float] = {}

    def run(self) -> Outcome:
        """Run to the end and return the results."""
        starts = (
            (time_ms, stream, number)
            for stream, each in enumerate(self._streams)
            for number, time_ms in enumerate(each.times_ms)
        )
        for time_ms, stream, number in sorted(starts):
            each = self._streams[stream]
            self._push(time_ms, False, _Carried(stream, number, None, each.host, each.vector))
        while self._events:
            self._now_ms, _, matched, carried = heapq.heappop(self._events)
            if matched:
                self._route(carried)
            else:
                self._receive(carried)
        return self.outcome

    def load(self, one: ScotBroker, other: ScotBroker) -> float:
        """Return the measure of a link's queue at the end of the last window."""
        return self._rolled((one, other)).reported

    def _push(self, time_ms: float, matched: bool, carried: _Carried) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time_ms, self._event_count, matched, carried))

    def _receive(self, carried: _Carried) -> None:
        """Let a copy leave its sender, cross the link, and be matched at its broker."""
        arrived_ms = self._now_ms
        if carried.came_from is not None:
            queue = self._rolled((carried.came_from, carried.at))
            queue.left += 1
            queue.queued -= 1
            arrived_ms += self._link_ms(carried.came_from, carried.at)
        done_ms = max(arrived_ms, self._matcher_free_ms.get(carried.at, 0.0)) + self._pace.match_ms
        self._matcher_free_ms[carried.at] = done_ms
        self._push(done_ms, True, carried)

    def _route(self, carried: _Carried) -> None:
        stream = self._streams[carried.stream]
        if stream.is_for(carried.at, carried.vector):
            self._deliver(carried, stream)
        for copy in stream.copies(carried.at, carried.came_from, carried.vector, self.load):
            link = (carried.at, copy.to)
            queue = self._rolled(link)
            queue.entered += 1
            queue.queued += 1
            sender = carried.at if self._pace.shared_sender else link
            sent_ms = max(self._now_ms, self._free_ms.get(sender, 0.0)) + self._pace.send_ms
            self._free_ms[sender] = sent_ms
            self._push(sent_ms, False, _Carried(carried.stream, carried.number, carried.at, copy.to, copy.vector))
            self.outcome.messages += 1

    def _deliver(self, carried: _Carried, stream: Stream) -> None:
        published_ms = stream.times_ms[carried.number]
        self.outcome.delays_ms.append(self._now_ms - published_ms)
        self.outcome.last_ms = self._now_ms
        key = stream.publisher or carried.stream, carried.at
        newest_ms = self._latest.get(key, 0.0)
        self.outcome.out_of_order += published_ms < newest_ms
        self._latest[key] = max(published_ms, newest_ms)

    def _rolled(self, link: Link) -> _Queue:
        """Return the queue of a link, with past windows closed; call it before each change of a queue."""
        queue = self._queues.get(link)
        if queue is None:
            queue = self._queues[link] = _Queue()
        if self._now_ms >= queue.over_ms:
            window = int(self._now_ms // WINDOW_MS)
            idle = window > queue.window + 1
            last = QueueWindow(0, 0, queue.queued) if idle else QueueWindow(queue.entered, queue.left, queue.queued)
            queue.reported = self._rule.measure(last)
            if link[0] == self._watched:
                self.outcome.queue_measures.append(queue.reported)
            queue.window, queue.entered, queue.left = window, 0, 0
            queue.over_ms = (window + 1) * WINDOW_MS
        return queue
