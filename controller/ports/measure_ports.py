"""Measure the loop's ports: commands and their repetitions, answers, phases of plans, queues, views, and the clock.

In: ports, and the metrics. Out: ports that do the same and count. The loop itself is unaware of them. The clock is
compared with the times of the records that a port reads as they are written: those of windows are written all the time,
by the streaming job; with a topic whose timestamps are Kafka's own, the comparison is with Kafka's clock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import structlog
from structlog.contextvars import bind_contextvars, unbind_contextvars

from regraft.controller.control_ports import AuditSink, ControlPorts, EventSink, PlanStore, RecordSource
from regraft.controller.report.loop_metrics import LoopHealth, LoopMetrics
from regraft.schemas.audit import AuditEntry
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent, Severity
from regraft.schemas.live_view import LiveView
from regraft.schemas.member import Member
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.schemas.sample_request import SampleRequest

log = structlog.get_logger(__name__)

LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.CRITICAL: logging.ERROR}

OFF_MS_MAX = 10_000  # Ages of windows and phases may be off by some seconds, see docs/clocks.md.
SAMPLES = 8  # The least of these counts: a record may be read late, but not before it is written.

Record = TypeVar("Record")


class PlanBinder:
    """Binds the newest plan that is under way; one that waits for approval or is over is not bound."""

    def __init__(self) -> None:
        self._bound = ""
        self._newest: tuple[str, int] = ("", 0)

    def note(self, plan: Plan) -> None:
        """Note a plan's newest version."""
        if LIFE[plan.phase].is_under_way:
            bind_contextvars(plan=plan.plan, epoch=plan.epoch_to)
            self._bound = plan.plan
            self._newest = (plan.plan, plan.epoch_to)
        elif plan.plan == self._bound:
            unbind_contextvars("plan", "epoch")
            self._bound = ""

    def ids_of(self, plan: str) -> dict[str, str | int]:
        """Return the context of a line about ``plan``, also after its end; empty if the line is about no plan."""
        if not plan:
            return {}
        newest, epoch = self._newest
        return {"plan": plan, "epoch": epoch} if plan == newest else {"plan": plan}


def measured(ports: ControlPorts, metrics: LoopMetrics, health: LoopHealth) -> ControlPorts:
    """Return ports that count into ``metrics`` and log the plan under way; ``health`` learns when plans were read."""
    binder = PlanBinder()
    return replace(
        ports,
        state=MeasuredSource(ports.state, "state", metrics),
        results=MeasuredSource(ports.results, "results", metrics, lambda result: _count_result(metrics, result)),
        announcements=MeasuredSource(ports.announcements, "announcements", metrics),
        events=LoggedEvents(ports.events, binder),
        audit=MeasuredAudit(ports.audit, metrics),
        plans=MeasuredPlans(ports.plans, metrics, health, binder),
        views=(*ports.views, MetricsView(metrics)),
    )


class MeasuredSource(Generic[Record]):
    """Counts the records of a source; ``note`` is called with each."""

    def __init__(
        self,
        source: RecordSource[Record],
        name: str,
        metrics: LoopMetrics,
        note: Callable[[Record], None] | None = None,
    ) -> None:
        self._source = source
        self._count = metrics.records_read.labels(name)
        self._note = note

    def poll(self) -> list[Record]:
        """Return new records, and count them."""
        records = self._source.poll()
        self._count.inc(len(records))
        if self._note is not None:
            for record in records:
                self._note(record)
        return records


def _count_result(metrics: LoopMetrics, result: CommandResult) -> None:
    metrics.results.labels(result.outcome).inc()


class LoggedEvents:
    """Passes events on; each event is also a line of the log, with its plan and epoch."""

    def __init__(self, events: EventSink, binder: PlanBinder) -> None:
        self._events = events
        self._binder = binder

    def emit(self, event: AdaptationEvent) -> None:
        """Log the event and pass it on."""
        level, ids = LEVELS[event.severity], self._binder.ids_of(event.plan)
        log.log(level, "adaptation_event", kind=event.kind, subject=event.subject, text=event.text, **ids)
        self._events.emit(event)


class MeasuredAudit:
    """Counts the outcomes of orders."""

    def __init__(self, audit: AuditSink, metrics: LoopMetrics) -> None:
        self._audit = audit
        self._metrics = metrics

    def keep(self, entry: AuditEntry) -> None:
        """Count the entry and pass it on."""
        self._metrics.orders.labels(entry.kind or "none", entry.outcome).inc()
        self._audit.keep(entry)


class MeasuredPlans:
    """Measures the plan store: duration of each phase, failures to store or read, repeated commands.

    A command counts as repeated if the same broker was sent one before in the same phase.
    """

    def __init__(self, plans: PlanStore, metrics: LoopMetrics, health: LoopHealth, binder: PlanBinder) -> None:
        self._plans = plans
        self._metrics = metrics
        self._health = health
        self._binder = binder
        self._counted: tuple[str, int] | None = None
        self._asked: set[str] = set()  # The brokers asked in this phase of this plan.

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store them; return True once acknowledged."""
        if not self._plans.commit(plan, commands, members):
            self._metrics.plan_store_failures.inc()
            return False
        if plan is not None:
            self._show(plan)
            self._count_phase(plan)
        for command in commands:
            if command.broker in self._asked:
                self._metrics.commands_repeated.labels(command.phase).inc()
            self._asked.add(command.broker)
        return True

    def _count_phase(self, plan: Plan) -> None:
        version = (plan.plan, len(plan.history))
        if version == self._counted:
            return
        self._counted = version
        self._asked.clear()
        if len(plan.history) > 1:
            earlier, latest = plan.history[-2:]
            self._metrics.phase_ms.labels(earlier.phase).observe(latest.time_ms - earlier.time_ms)

    def load_members(self) -> list[Member] | None:
        """Return the newest record of every member."""
        members = self._plans.load_members()
        self._metrics.plan_store_failures.inc(members is None)
        return members

    def load_sample(self) -> list[SampleRequest] | None:
        """Return the newest requests for a share of telemetry."""
        requests = self._plans.load_sample()
        self._metrics.plan_store_failures.inc(requests is None)
        return requests

    def ask_sample(self, request: SampleRequest) -> None:
        """Ask brokers for a share of their telemetry."""
        self._plans.ask_sample(request)

    def load(self) -> list[Plan] | None:
        """Return the newest version of every plan."""
        plans = self._plans.load()
        if plans is None:
            self._metrics.plan_store_failures.inc()
            return None
        self._health.has_plans = True
        for plan in plans:
            self._show(plan)
        return plans

    def forget(self, plan: str) -> None:
        """Drop a plan."""
        self._plans.forget(plan)

    def flush(self) -> None:
        """Send what waits."""
        self._plans.flush()

    def _show(self, plan: Plan) -> None:
        self._binder.note(plan)
        for phase, facts in LIFE.items():
            if facts.is_under_way:
                self._metrics.plan_phase.labels(phase).set(phase is plan.phase)


class MetricsView:
    """Counts what only the live view shows."""

    def __init__(self, metrics: LoopMetrics) -> None:
        self._metrics = metrics

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Set the gauges to the values of the view."""
        if view.window_end_to_state_ms:
            self._metrics.window_to_state_ms.set(view.window_end_to_state_ms[-1])
        self._metrics.is_paused.set(view.orders.paused is not None)
        self._metrics.maintenance.set(len(view.orders.maintenance))


class ClockCheck:
    """The offsets in ms of the last records read at the end of a topic; a pause of the reader makes none of them."""

    def __init__(self) -> None:
        self._samples_ms: deque[int] = deque(maxlen=SAMPLES)

    def add(self, record_ms: int, read_ms: int) -> None:
        """Add the newest record of one read."""
        self._samples_ms.append(read_ms - record_ms)

    @property
    def ahead_ms(self) -> int:
        """How far this clock is ahead, below 0 if it is behind; 0 while that is unknown or within OFF_MS_MAX."""
        if len(self._samples_ms) < SAMPLES:
            return 0
        least_ms = min(self._samples_ms)
        return least_ms if abs(least_ms) > OFF_MS_MAX else 0


def clock_text(ahead_ms: int) -> str:
    """Describe an offset for people."""
    where = "ahead of" if ahead_ms > 0 else "behind"
    return f"its clock is {abs(ahead_ms) / 1000:,.0f} s {where} the times of records in Kafka"
