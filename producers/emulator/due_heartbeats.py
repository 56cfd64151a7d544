"""When a broker that has nothing new to report still sends a batch: its heartbeat.

In: what a broker has to report, and the times of its flushes. Out: whether a flush sends. Used by emulated brokers and
by nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass

from regraft.producers.brokers.broker_reports import BrokerPhase

# The longest pause, even if the job has other windows than the rule: so each of them, of two seconds or more, has a
# batch of each broker, and none waits longer for one. Nodes measure their links about as often.
PAUSE_MS_MAX = 1_250.0


def has_news(deliveries: Sized, client_changes: Sized, phase: BrokerPhase) -> bool:
    """Return True if a batch would report anything new. A plan under way is news: links come and go with it.

    Counters of queues are none: windows show only their change from the first batch to the last.
    """
    return bool(deliveries or client_changes) or phase is not BrokerPhase.STEADY


@dataclass(frozen=True, slots=True)
class HeartbeatRule:
    """Which flushes, one each ``flush_ms``, send a batch without news; windows are the job's, by a broker's own time.

    A window closes once every broker has reported a time that is later than its end by the settling time, which only
    the job knows, or once the grace is over: counted from when Kafka received the first batch after the end, which may
    be a flush later. So all flushes until then send, and the next one: whatever closes the window, the flush that did
    so before is sent, and no window waits for one that was left out. The last flush in a window sends as well: a
    window's rates of queues are differences between its first and its last batch. Queues report their longest length
    since the last batch, so all that a window shows is as if every flush were sent.
    """

    flush_ms: float
    window_ms: int
    grace_ms: int

    def is_due(self, now_ms: float, flushed_ms: float, sent_ms: float) -> bool:
        """Return True if the flush now must send, given when the last one was, and the last one that sent."""
        begun_ms = now_ms - now_ms % self.window_ms
        next_ms = now_ms + self.flush_ms
        may_close = flushed_ms < begun_ms + self.grace_ms + self.flush_ms
        is_last = next_ms >= begun_ms + self.window_ms
        was_set_back = now_ms < flushed_ms  # The clock: earlier times say nothing.
        return may_close or is_last or was_set_back or next_ms - sent_ms > PAUSE_MS_MAX


class Heartbeats:
    """The flushes of one incarnation of a broker."""

    __slots__ = ("_flushed_ms", "_sent_ms")

    def __init__(self) -> None:
        self._flushed_ms = self._sent_ms = -math.inf

    def take_turn(self, rule: HeartbeatRule | None, now_ms: float, *, has_news: bool) -> bool:
        """Note a flush, and return True if it sends: it has news or is due. Without a rule every flush is due."""
        is_sent = has_news or rule is None or rule.is_due(now_ms, self._flushed_ms, self._sent_ms)
        self._flushed_ms = now_ms
        if is_sent:
            self._sent_ms = now_ms
        return is_sent
