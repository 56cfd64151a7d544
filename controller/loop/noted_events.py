"""Note outgoing events and the first command of each plan in the loop's state, and count them."""

from __future__ import annotations

from collections import Counter

import msgspec

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.schemas.bounds import TEXT_LENGTH_MAX
from regraft.schemas.command import Command
from regraft.schemas.event import ENDED, FORGED, SENDER, AdaptationEvent
from regraft.schemas.texts import shortened

SPAN_MS = 60_000
SHARE_EVENTS_MAX = 20  # Of one kind, by one sender, within a span: no living broker changes its state so often.
SENDERS_MAX = 20_000  # Senders and kinds that are remembered; the oldest is forgotten first.
Sender = tuple[str, str]  # The kind of event, and who caused it.


class EventShare:
    """Gives each sender a share of each kind of event.

    The sender is the one whose records caused the event: its subject, or what its details name, if the sender chooses
    the subject. An event that ends what another one reported is always passed on, or an alert about it would stay.
    ``left_out`` counts the events beyond shares, by kind.
    """

    def __init__(self) -> None:
        self._spans: dict[Sender, tuple[int, int]] = {}  # The span, and the events in it.
        self._untold: Counter[Sender] = Counter()
        self._lasting: dict[tuple[str, str], None] = {}  # Kind and subject of the last ones passed on that did not end.
        self.left_out: Counter[str] = Counter()

    def shared(self, event: AdaptationEvent) -> AdaptationEvent | None:
        """Return the event to report, or None for one beyond the share of its sender."""
        sender, about = _sender_of(event), (str(event.kind), event.subject)
        if ENDED in event.details and about in self._lasting:
            del self._lasting[about]
            return event
        span, (known_span, count) = event.time_ms // SPAN_MS, self._spans.get(sender, (-1, 0))
        count = count + 1 if span == known_span else 1
        if count > SHARE_EVENTS_MAX:
            self._untold[sender] += 1
            self.left_out[event.kind] += 1
            return None
        self._spans[sender] = span, count
        if ENDED not in event.details:
            self._lasting[about] = None
        if len(self._spans) > SENDERS_MAX:
            oldest = next(iter(self._spans))
            del self._spans[oldest], self._untold[oldest]
        if len(self._lasting) > SENDERS_MAX:
            del self._lasting[next(iter(self._lasting))]
        if untold := self._untold.pop(sender, 0):
            return _with_note(event, f"{untold} events like this one before it were only counted")
        if count == SHARE_EVENTS_MAX:
            return _with_note(event, f"the {count}th within {SPAN_MS // 1_000} s; further ones are only counted")
        return event


def _sender_of(event: AdaptationEvent) -> Sender:
    """Return the kind and the sender: all who forge orders are one."""
    return event.kind, FORGED if FORGED in event.details else event.details.get(SENDER) or event.subject


def _with_note(event: AdaptationEvent, note: str) -> AdaptationEvent:
    """Return the event with a note that is not cut off, however long its text is."""
    return msgspec.structs.replace(event, text=f"{shortened(event.text, TEXT_LENGTH_MAX - len(note) - 3)} ({note})")


class NotedEvents:
    """Passes events on to people, within the share of their senders; the state keeps the last ones."""

    def __init__(self, events: EventSink, state: LoopState, metrics: LoopMetrics) -> None:
        self._events = events
        self._state = state
        self._metrics = metrics
        self._share = EventShare()

    def emit(self, event: AdaptationEvent) -> None:
        """Note the event and pass it on, with a text that readers accept: it may repeat others."""
        shared = self._share.shared(event)
        if shared is None:
            self._metrics.events_left_out.labels(event.kind).inc()
            return
        event = msgspec.structs.replace(shared, text=shortened(shared.text))
        self._events.emit(event)
        self._state.add_event(event)
        self._metrics.events.labels(event.kind).inc()


class CommandNotes:
    """Notes the time from the end of a window to the first command of its plan, and counts ignored answers."""

    def __init__(self, state: LoopState, metrics: LoopMetrics) -> None:
        self._state = state
        self._metrics = metrics

    def note_foreign(self, part: str) -> None:
        """Count an answer ignored for its foreign ``part``: plan, digest, term or broker."""
        self._metrics.results_foreign.labels(part).inc()

    def note_claim(self, outcome: str) -> None:
        """Count a broker's claim that a neighbour is dead, by its outcome."""
        self._metrics.peer_claims.labels(outcome).inc()

    def note(self, command: Command, now_ms: int) -> None:
        """Note a command that has just been sent."""
        self._metrics.commands.labels(command.phase).inc()
        state = self._state
        plan = None if command.plan in state.command_latencies_ms else state.plan_log.moving
        if plan is not None and plan.plan == command.plan:
            state.add_first_command(plan, now_ms)
            self._metrics.command_latency_ms.observe(now_ms - plan.window_end_ms)
