"""Refuse what would load a congested link or broker further, on any kind of overlay.

In: the queues of the windows of a state, and an overlay before and after a proposal. Out: what is congested, and a
verdict. Changes nothing, sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regraft.controller.decision_settings import DecisionSettings
from regraft.controller.kinds.overlay_kind import Against, AnyKind, Reached
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cost import CostBreakdown
from regraft.overlay.link_congestion import PRODUCT, CongestionRule
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.publisher_placement import ROUNDING_SHARE
from regraft.schemas.plan import Verdict
from regraft.schemas.state import QueueState
from regraft.schemas.write_figures import figure


@dataclass(frozen=True, slots=True)
class HotSpots:
    """The links and brokers that are congested at the end of the newest window, each with its measure there.

    A link is congested when its queue is at either end; the measure is the larger.
    """

    links: Mapping[Link, float] = field(default_factory=dict)
    brokers: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.links or self.brokers)


def hot_spots(windows: Sequence[ClosedWindow], settings: DecisionSettings) -> HotSpots:
    """Return what is congested after the windows (oldest first); what was stays so until its measure has halved."""
    broker_rule = replace(PRODUCT, threshold=settings.broker_congestion_max)
    link_rule = replace(PRODUCT, threshold=settings.link_congestion_max)
    hot: dict[tuple[str, str], float] = {}
    for window in windows:
        hot = {
            (queue.broker, queue.peer): queue.congestion
            for queue in window.queues
            if _is_hot(queue, link_rule if queue.peer else broker_rule, was=(queue.broker, queue.peer) in hot)
        }
    links: dict[Link, float] = {}
    for (broker, peer), measured in hot.items():
        if peer:
            pair = (broker, peer) if broker < peer else (peer, broker)
            links[pair] = max(measured, links.get(pair, 0.0))
    return HotSpots(links, {broker: measured for (broker, peer), measured in hot.items() if not peer})


def judge_congestion(kind: AnyKind, hot: HotSpots, before: Reached, after: Reached) -> Against | None:
    """Return which congested link or broker would carry more, None when none would; it may carry as much as it does.

    Loads are those of the newest window's traffic: congestion is a matter of now. Costs nothing while nothing is hot.
    """
    if not hot:
        return None
    newest = (before.state.newest,)
    now, then = (kind.breakdown(one.configuration, newest) for one in (before, after))
    for what, measured, load_now, load_then in _loads(hot, now, then):
        if load_then > load_now * (1 + ROUNDING_SHARE) + ROUNDING_SHARE:
            return Verdict.CONGESTED, (
                f"{what} is congested ({figure(measured)}) and would carry {figure(load_then)}/s, "
                f"{figure(load_now)}/s now"
            )
    return None


def _is_hot(queue: QueueState, rule: CongestionRule, *, was: bool) -> bool:
    return rule.threshold > 0 and rule.is_above(queue.congestion, was=was)


def _loads(hot: HotSpots, now: CostBreakdown, then: CostBreakdown) -> Iterator[tuple[str, float, float, float]]:
    """Yield what is hot with its measure and its loads now and then, links first, each by name."""
    for pair in sorted(hot.links):
        load_now, load_then = (one.link_notifications_per_s.get(pair, 0.0) for one in (now, then))
        yield f"link {pair[0]}-{pair[1]}", hot.links[pair], load_now, load_then
    for broker in sorted(hot.brokers):
        yield f"broker {broker}", hot.brokers[broker], _broker_load(now, broker), _broker_load(then, broker)


def _broker_load(breakdown: CostBreakdown, broker: str) -> float:
    """Return the work of a broker; where the kind charges brokers nothing, what crosses their links."""
    if any(breakdown.brokers_per_s.values()):
        return breakdown.brokers_per_s.get(broker, 0.0)
    return sum(rate for pair, rate in breakdown.link_notifications_per_s.items() if broker in pair)
