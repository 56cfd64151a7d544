"""Turn refusals and incomplete windows into few events: only what differs from the last report.

Counting every single refusal belongs to :mod:`controller.decide.loop_state`.
"""

from __future__ import annotations

from collections import Counter

from regraft.controller.decide.decide_plan import Decision
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.describe_changes import changes_text
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import Verdict
from regraft.schemas.texts import window_name

REPEAT_EVERY = 30  # The same cause is reported again after this many times, so that it is not forgotten.


class RefusalEvents:
    """Remembers the last report of each kind; ``overlay`` is any one of the kind of overlay."""

    def __init__(self, overlay: OverlayConfiguration) -> None:
        self._has_places = overlay.HAS_SLOTS
        self._reported: dict[EventKind, str] = {}
        self._repeats: Counter[EventKind] = Counter()

    def about_window(self, window: ClosedWindow, now_ms: int) -> AdaptationEvent | None:
        """Return an event if a window is incomplete for another reason than the last one reported, else None."""
        if window.is_complete:
            self._reported.pop(EventKind.WINDOW_INCOMPLETE, None)
            return None
        subject = window_name(window.end_ms)
        cause = ",".join(window.short_brokers) or "rows"
        return self._event(EventKind.WINDOW_INCOMPLETE, cause, subject, window.error, now_ms, Severity.WARNING)

    def about_decision(self, decision: Decision, now_ms: int, *, is_usual: bool = False) -> AdaptationEvent | None:
        """Return an event if a decision refused for other reasons than the last one reported, else None.

        ``is_usual``: a plan was executed during the window, so it is naturally of an epoch before.
        """
        subject = window_name(decision.window_end_ms)
        if decision.state_verdict is Verdict.STALE_STATE:
            if is_usual:
                return None
            reason = decision.state_reason
            return self._event(EventKind.WINDOW_STALE, "stale", subject, reason, now_ms, Severity.WARNING)
        if decision.state_verdict is Verdict.EPOCH_MISMATCH:
            reason = decision.state_reason
            return self._event(EventKind.EPOCH_MISMATCH, reason, "epochs", reason, now_ms, Severity.CRITICAL)
        if decision.state_verdict is not None:
            return None  # Incomplete windows are reported by about_window, and a running plan has its own events.
        self._reported.pop(EventKind.WINDOW_STALE, None)
        self._reported.pop(EventKind.EPOCH_MISMATCH, None)
        if not decision.refused:
            return None
        counts = Counter(str(proposal.verdict) for proposal in decision.refused)
        first = decision.refused[0]
        change = changes_text(first, has_places=self._has_places)
        many = (
            f"{len(decision.refused)} proposals refused, such as {change}"
            if decision.refused[1:]
            else f"{change} refused"
        )
        # A conflict has another reason, which only holds after the earlier changes.
        verdict = "" if first.verdict is Verdict.CONFLICT else f" ({first.verdict.replace('_', ' ')})"
        text = f"{many}{verdict}: {first.verdict_reason}"
        cause = ",".join(sorted(counts))
        event = self._event(EventKind.PROPOSAL_REFUSED, cause, subject, text, now_ms, Severity.INFO)
        if event is not None:
            event.details.update({verdict: str(count) for verdict, count in counts.items()})
        return event

    def _event(
        self, kind: EventKind, cause: str, subject: str, text: str, now_ms: int, severity: Severity
    ) -> AdaptationEvent | None:
        self._repeats[kind] += 1
        if self._reported.get(kind) == cause and self._repeats[kind] % REPEAT_EVERY:
            return None
        self._reported[kind] = cause
        self._repeats[kind] = 0
        return AdaptationEvent(subject, kind, severity, now_ms, text, details={})
