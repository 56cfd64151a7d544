"""Explain why the controller makes no plan now, or which one it made: the reason that holds, with its figures. Pure.

Judging proposals belongs to :mod:`controller.decide.judge_proposals`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from regraft.schemas.live_view import LiveView, ShownDecision, ShownProposal
from regraft.schemas.texts import time_text

REASONS_SHOWN = 3
NOTHING_PROPOSED = "no planner proposes a change: the overlay suits the traffic"


def decision_of(view: LiveView) -> dict[str, Any] | None:
    """Return the last decision: its window, plan, reason and refused changes by verdict; None for a standby."""
    if view.is_standby:
        return None
    decision = view.last_decision
    if decision is None:
        waits = "it waits for the first window" if view.window is None else "it waits for a complete window"
        return {"window_end_ms": None, "plan": "", "reason": f"nothing has been decided yet: {waits}", "refused": {}}
    return {
        "window_end_ms": decision.window_end_ms,
        "plan": decision.plan.plan if decision.plan is not None else "",
        "reason": _reason(decision),
        "refused": dict(Counter(one.verdict for one in decision.refused)),
    }


def decision_line(decision: dict[str, Any]) -> str:
    """Return the decision as a sentence."""
    if decision["window_end_ms"] is None:
        return f"decision: {decision['reason']}"
    outcome = f"{decision['plan']} made" if decision["plan"] else f"no plan, {decision['reason']}"
    return f"decision on the window ending {time_text(decision['window_end_ms'])}: {outcome}"


def _reason(decision: ShownDecision) -> str:
    """Return why no plan was made; of several refusals the most frequent verdicts, each with its first reason."""
    if decision.plan is not None:
        return ""
    if decision.state_verdict:
        return decision.state_reason
    if not decision.refused:
        return NOTHING_PROPOSED
    first: dict[str, ShownProposal] = {}
    for proposal in decision.refused:
        first.setdefault(proposal.verdict, proposal)
    counts = Counter(one.verdict for one in decision.refused).most_common()
    shown = [f"{count} {_words(verdict)} ({_first(first[verdict])})" for verdict, count in counts[:REASONS_SHOWN]]
    rest = sum(count for _, count in counts[REASONS_SHOWN:])
    total = len(decision.refused)
    more = f", {rest} for other reasons" if rest else ""
    return f"{total} change{'s' * (total != 1)} refused: {', '.join(shown)}{more}"


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _first(proposal: ShownProposal) -> str:
    return f"{proposal.planner}: {proposal.verdict_reason}" if proposal.verdict_reason else proposal.planner
