"""POP at one broker: probabilistic tagging, trace results, profile tables and the walk to the closest broker.

In: traced notifications with the neighbours that got them, and messages of neighbours, one at a time. Out: messages,
and at a publisher's home the path to move the publisher along. A pure state machine: Cheung09, sections 3.1, 3.2.

Our readings where the paper is silent: windows are consecutive, starting with a publisher's first notification at its
home; once enough notifications are tagged for the walk, no more are tagged until the walk and the move are complete, so
that no result stays outstanding; and a walk never turns back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from regraft.api.brokers import LOCAL, Notification
from regraft_lab.planners.relocate_publisher_pop import NEWEST_SHARE, TIE_SHARE, trace_probability
from regraft_lab.pop_grape.distributed_traces import (
    COUNT_BYTES,
    ID_BYTES,
    NUMBER_BYTES,
    TRACE_HEADER,
    Chosen,
    RelocationAnswer,
    RelocationRequest,
    SendTrace,
    TraceEffect,
    TraceMessage,
    TraceResult,
    TracingBroker,
    marked,
)

SECOND_MS = 1_000.0


class Profile(StrEnum):
    """How a profile table aggregates trace results."""

    OWN_AVERAGE = "own_average"  # As in the paper: each broker averages over the notifications that reached it.
    SHARED_AVERAGE = "shared_average"  # The same average over all traced notifications of the round.
    ROUND_SUM = "round_sum"  # The sum over them, which forgets nothing within the round.


@dataclass(frozen=True, slots=True)
class PopSettings:
    """The settings of POP.

    ``traced_max``: N, the most notifications of a publisher tagged in one window. ``window_s``: W. ``threshold``:
    P_threshold, notifications traced before a broker is chosen. ``profile``: the paper's tables, or one of ours, which
    require brokers to know the round and number of each trace.
    """

    traced_max: int = 50
    window_s: float = 60.0
    threshold: int = 100
    profile: Profile = Profile.OWN_AVERAGE

    def errors(self) -> list[str]:
        """Return every error as one sentence with the value, the limit and what to do; empty if there is none."""
        return [
            f"{name} is {value:g}: must be at least {least:g} ({reason})"
            for name, value, least, reason in (
                ("traced_max", self.traced_max, 1, "nothing would be traced"),
                ("window_s", self.window_s, 0.001, "it is a time"),
                ("threshold", self.threshold, 1, "a choice needs a trace"),
            )
            if not value >= least
        ]


class ProfileTable:
    """PPTable of one publisher at one broker: subscribers at and beyond each neighbour, and local ones.

    ``averages`` has a row for each neighbour that a traced notification was sent to, and one for LOCAL. Reading: a
    traced notification that was not sent to a neighbour counts as 0 for it.
    """

    def __init__(self, profile: Profile) -> None:
        self.averages: dict[str, float] = {}
        self._profile = profile
        self._newest = -1  # The newest trace in the averages.

    @property
    def size_bytes(self) -> int:
        """Bytes of the publisher, and of neighbour and average of each row."""
        return ID_BYTES + (ID_BYTES + NUMBER_BYTES) * len(self.averages)

    def note(self, counts: Mapping[str, int], trace: int) -> None:
        """Add the subscribers that a traced notification reached, by neighbour and LOCAL.

        ``trace``: its number in the round. The first counts become the averages. Results may arrive in another order
        than their notifications.
        """
        last_weight, newest_weight = self._weights(trace)
        for peer in sorted(self.averages.keys() | counts.keys()):
            self.averages[peer] = last_weight * self.averages.get(peer, 0.0) + newest_weight * counts.get(peer, 0)
        self._newest = max(self._newest, trace)

    def closest(self, source: str | None, source_total: float, trace: int) -> tuple[str, float] | None:
        """Return the next broker of the walk and the subscribers on this side of its link; None if this one is closest.

        The next one has more subscribers than all other neighbours and the local ones together (3.2). ``source_total``:
        the subscribers beyond ``source``, from which the request came and to which it does not return. ``trace``: the
        last trace of the round.
        """
        is_shared = self._profile is Profile.SHARED_AVERAGE
        scale = (1 - NEWEST_SHARE) ** (trace - self._newest) if is_shared else 1.0
        rows = {peer: scale * value for peer, value in self.averages.items() if peer != source}
        total = source_total + sum(rows.values())
        for peer, value in sorted(rows.items()):
            if peer != LOCAL and value > total - value + TIE_SHARE * total:
                return peer, total - value
        return None

    def _weights(self, trace: int) -> tuple[float, float]:
        """Return the weights of the averages so far and of this trace's counts."""
        last_share = 1 - NEWEST_SHARE
        match self._profile:
            case Profile.OWN_AVERAGE:
                return (last_share, NEWEST_SHARE) if self.averages else (0.0, 1.0)
            case Profile.SHARED_AVERAGE:
                # Traces that did not reach this broker count as 0; a late one is discounted as if it had been in time.
                weight = NEWEST_SHARE if trace else 1.0
                return last_share ** max(trace - self._newest, 0), weight * last_share ** max(self._newest - trace, 0)
            case Profile.ROUND_SUM:
                return 1.0, 1.0


@dataclass(slots=True)
class _Source:
    """A local publisher: the current window and the current round of traces."""

    window_began_ms: float
    tagged_in_window: int = 0
    tagged_in_round: int = 0
    round: str = ""  # Named by its first traced notification.
    is_held: bool = False  # During the walk or the move.


@dataclass(slots=True)
class _OpenTrace:
    """A traced notification with outstanding results."""

    source: str | None
    trace: int
    waiting: set[str]
    counts: dict[str, int]

    @property
    def size_bytes(self) -> int:
        """Bytes of advertisement, numbers of notification and trace, upstream neighbour, and a count per peer."""
        return 2 * ID_BYTES + 2 * COUNT_BYTES + (ID_BYTES + COUNT_BYTES) * (len(self.counts) + len(self.waiting))


@dataclass(slots=True)
class _Known:
    """A broker's knowledge of one publisher."""

    table: ProfileTable
    round: str = ""
    open_traces: dict[int, _OpenTrace] = field(default_factory=dict)


class PopBroker(TracingBroker):
    """POP's state at one broker."""

    def __init__(self, broker: str, settings: PopSettings, rng: random.Random) -> None:
        super().__init__(broker)
        self._settings = settings
        self._rng = rng
        self._sources: dict[str, _Source] = {}
        self._known: dict[str, _Known] = {}

    def table(self, publisher: str) -> Mapping[str, float]:
        """Return the publisher's PPTable, including LOCAL; empty if there is none."""
        known = self._known.get(publisher)
        return dict(known.table.averages) if known else {}

    # --- tagging (3.1) -----------------------------------------------------------------------------------------------

    def mark(self, notification: Notification, now_ms: float) -> Notification:
        """Tag the notification with probability P_trace, unless enough have been traced in this round."""
        settings = self._settings
        source = self._sources.setdefault(notification.publisher, _Source(now_ms))
        windows_over = (now_ms - source.window_began_ms) // (settings.window_s * SECOND_MS)
        if windows_over:
            source.window_began_ms += windows_over * settings.window_s * SECOND_MS
            source.tagged_in_window = 0
        if source.is_held or source.tagged_in_round >= settings.threshold:
            return notification
        if self._rng.random() >= trace_probability(source.tagged_in_window, settings.traced_max):
            return notification
        if not source.tagged_in_round:
            source.round = str(notification.sequence)
        source.tagged_in_window += 1
        source.tagged_in_round += 1
        return marked(notification, f"{source.round}.{source.tagged_in_round - 1}")

    # --- trace results (3.1) -----------------------------------------------------------------------------------------

    def on_notification(
        self, source: str | None, notification: Notification, peers: tuple[str, ...], local_count: int
    ) -> list[TraceEffect]:
        """Wait for the results of ``peers``; without any, answer at once."""
        known = self._known.get(notification.publisher)
        if known is None:
            known = self._known[notification.publisher] = _Known(ProfileTable(self._settings.profile))
            self.memory.add(known.table.size_bytes)
        round_, _, number = str(notification.content[TRACE_HEADER]).partition(".")
        self._begin_round(known, round_)
        trace = _OpenTrace(source, int(number), set(peers), {LOCAL: local_count})
        known.open_traces[notification.sequence] = trace
        self.memory.add(trace.size_bytes)
        return self._close(notification.publisher, known, notification.sequence)

    def on_message(self, source: str, message: TraceMessage) -> list[TraceEffect]:
        """Handle a trace result, or a request or answer to be forwarded."""
        match message:
            case TraceResult(publisher, sequence, subscriber_count):
                known = self._known[publisher]
                trace = known.open_traces[sequence]
                trace.waiting.discard(source)
                trace.counts[source] = subscriber_count
                return self._close(publisher, known, sequence)
            case RelocationRequest():
                return self._walk(source, message)
            case RelocationAnswer(publisher, brokers):
                place = brokers.index(self.broker) + 1
                if place < len(brokers):
                    return [SendTrace(brokers[place], message)]
                return [Chosen(publisher, brokers[::-1])]
        raise ValueError(f"{self.broker} got {type(message).__name__} from {source}: POP has no such message")

    def _begin_round(self, known: _Known, round_: str) -> None:
        if self._settings.profile is not Profile.OWN_AVERAGE and known.round != round_:
            self.memory.add(-known.table.size_bytes)
            known.table = ProfileTable(self._settings.profile)
            self.memory.add(known.table.size_bytes)
        known.round = round_

    def _close(self, publisher: str, known: _Known, sequence: int) -> list[TraceEffect]:
        """Once all results of a notification have arrived, add them to the table and report upstream, or decide."""
        trace = known.open_traces[sequence]
        if trace.waiting:
            return []
        del known.open_traces[sequence]
        before_bytes = known.table.size_bytes
        known.table.note(trace.counts, trace.trace)
        self.memory.add(known.table.size_bytes - before_bytes - trace.size_bytes)
        if trace.source is not None:
            return [SendTrace(trace.source, TraceResult(publisher, sequence, sum(trace.counts.values())))]
        source = self._sources[publisher]
        if source.tagged_in_round < self._settings.threshold or known.open_traces:
            return []
        source.is_held = True
        return self._walk(None, RelocationRequest(publisher, 0.0, (), source.tagged_in_round - 1))

    # --- the walk to the closest broker (3.2) ------------------------------------------------------------------------

    def _walk(self, source: str | None, request: RelocationRequest) -> list[TraceEffect]:
        publisher, brokers = request.publisher, (self.broker, *request.brokers)
        closest = self._known[publisher].table.closest(source, request.subscriber_total, request.trace)
        if closest is not None:
            peer, subscriber_total = closest
            return [SendTrace(peer, RelocationRequest(publisher, subscriber_total, brokers, request.trace))]
        if len(brokers) == 1:
            return [Chosen(publisher, brokers)]
        return [SendTrace(brokers[1], RelocationAnswer(publisher, brokers))]

    # --- after the decision ------------------------------------------------------------------------------------------

    def resume(self, publisher: str) -> None:
        """Begin the next round of traces."""
        source = self._sources[publisher]
        source.is_held = False
        source.tagged_in_round = 0

    def forget(self, publisher: str) -> None:
        """Clear the publisher's PPTable, as a MUM does, and its state as a local publisher."""
        self._sources.pop(publisher, None)
        known = self._known.pop(publisher, None)
        if known is not None:
            self.memory.add(-known.table.size_bytes)
