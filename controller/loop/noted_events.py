"""Note outgoing events and the first command of each plan in the loop's state, and count them."""

from __future__ import annotations

import msgspec

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.report.share_events import EventShare
from regraft.schemas.command import Command
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.shorten_text import shortened


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
