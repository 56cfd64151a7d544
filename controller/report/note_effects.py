"""Note in the loop's state, and count, what goes out: events as they are emitted, the first command of each plan.

In: events and commands on their way. Out: the same on their way, and the state. What they mean does not belong here.
"""

from __future__ import annotations

from regraft.controller.control_ports import EventSink
from regraft.controller.loop_state import LoopState
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.schemas.command import Command
from regraft.schemas.event import AdaptationEvent


class NotedEvents:
    """The way to people; the state keeps the last events."""

    def __init__(self, events: EventSink, state: LoopState, metrics: LoopMetrics) -> None:
        self._events = events
        self._state = state
        self._metrics = metrics

    def emit(self, event: AdaptationEvent) -> None:
        """Hand the event over."""
        self._events.emit(event)
        self._state.add_event(event)
        self._metrics.events.labels(event.kind).inc()


class CommandNotes:
    """How long it takes from the end of a window to the first command of its plan; which answers were left out."""

    def __init__(self, state: LoopState, metrics: LoopMetrics) -> None:
        self._state = state
        self._metrics = metrics

    def note_foreign(self, part: str) -> None:
        """Count an answer that was not of our plan, its digest, our term or a broker of ours."""
        self._metrics.results_foreign.labels(part).inc()

    def note(self, command: Command, now_ms: int) -> None:
        """Take a command that was sent now."""
        self._metrics.commands.labels(command.phase).inc()
        state = self._state
        plan = None if command.plan in state.command_latencies_ms else state.plan_log.moving
        if plan is not None and plan.plan == command.plan:
            state.add_first_command(plan, now_ms)
            self._metrics.command_latency_ms.observe(now_ms - plan.window_end_ms)
