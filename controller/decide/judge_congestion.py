"""Refuse changes that would load a congested link or broker further, or whose worth congestion hides, on any overlay.

Changes nothing, sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from regraft.controller.kinds.overlay_kind import AnyKind, Objection, Reached
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.hot_spots import HotSpots
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.schemas.plan import Verdict
from regraft.schemas.texts import figure


def judge_waiting(window: ClosedWindow, settings: DecisionSettings) -> Objection | None:
    """Return the refusal that names the queue that hides what changes would save, or None if no queue is too long.

    Deliveries behind a long queue are reported after their window has closed, so the window shows no interest in them.
    """
    queue = window.slowest_queue
    if queue is None or not window.is_delayed(settings.queue_wait_ms_max):
        return None
    where = f"{queue.broker}>{queue.peer}" if queue.peer else queue.broker
    return Verdict.CONGESTED, (
        f"messages wait {figure(queue.wait_ms_mean)} ms at {where}, limit {figure(settings.queue_wait_ms_max)} ms: "
        "deliveries behind it are reported too late to count, so savings are unknown"
    )


def judge_congestion(kind: AnyKind, hot: HotSpots, before: Reached, after: Reached) -> Objection | None:
    """Return the refusal that names a congested link or broker that would carry more than it does now, or None.

    Loads are those of the newest window only, because older ones say nothing about present congestion. Nothing is
    computed unless something is congested.
    """
    if not hot:
        return None
    newest = (before.state.newest,)
    now, then = (kind.breakdown(one.configuration, newest) for one in (before, after))
    for what, measured, load_now, load_then in _loads(hot, now, then):
        if load_then > load_now * (1 + ROUNDING_SHARE) + ROUNDING_SHARE:
            return Verdict.CONGESTED, (
                f"{what} is congested ({figure(measured)}) and would carry {figure(load_then)}/s "
                f"instead of {figure(load_now)}/s"
            )
    return None


def _loads(hot: HotSpots, now: CostBreakdown, then: CostBreakdown) -> Iterator[tuple[str, float, float, float]]:
    """Yield (what, measure, load now, load then) for everything congested, links first, each sorted by name."""
    for pair in sorted(hot.links):
        load_now, load_then = (one.link_notifications_per_s.get(pair, 0.0) for one in (now, then))
        yield f"link {pair[0]}-{pair[1]}", hot.links[pair], load_now, load_then
    for broker in sorted(hot.brokers):
        yield f"broker {broker}", hot.brokers[broker], _broker_load(now, broker), _broker_load(then, broker)


def _broker_load(breakdown: CostBreakdown, broker: str) -> float:
    """Return the work of a broker, or the load of its links if the kind does not charge for brokers."""
    if any(breakdown.brokers_per_s.values()):
        return breakdown.brokers_per_s.get(broker, 0.0)
    return sum(rate for pair, rate in breakdown.link_notifications_per_s.items() if broker in pair)
