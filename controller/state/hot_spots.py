"""Find what is congested, from the queues of the newest windows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.link_congestion import PRODUCT, CongestionRule
from regraft.overlay.overlay_configuration import Link, link
from regraft.schemas.state import QueueState

LinkEnd = tuple[str, str]  # The broker at whose end of a link the queue is, and its peer.


@dataclass(frozen=True, slots=True)
class HotSpots:
    """The links and brokers that are congested at the end of the newest window, each with its measure there.

    A link is congested if its queue at either end is; the measure is the larger one. ``ends`` are these ends, each with
    the number of windows in a row for which it has been congested.
    """

    links: Mapping[Link, float] = field(default_factory=dict)
    brokers: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[LinkEnd, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.links or self.brokers)


def hot_spots(windows: Sequence[ClosedWindow], settings: DecisionSettings) -> HotSpots:
    """Return what is congested after the windows (oldest first); it stays congested until its measure has halved."""
    broker_rule = replace(PRODUCT, threshold=settings.broker_congestion_max)
    link_rule = replace(PRODUCT, threshold=settings.link_congestion_max)
    hot: dict[LinkEnd, float] = {}
    lasting: dict[LinkEnd, int] = {}
    for window in windows:
        hot = {
            (queue.broker, queue.peer): queue.congestion
            for queue in window.queues
            if _is_hot(queue, link_rule if queue.peer else broker_rule, was=(queue.broker, queue.peer) in hot)
        }
        lasting = {end: lasting.get(end, 0) + 1 for end in hot}
    links: dict[Link, float] = {}
    for (broker, peer), measured in hot.items():
        if peer:
            pair = link(broker, peer)
            links[pair] = max(measured, links.get(pair, 0.0))
    brokers = {broker: measured for (broker, peer), measured in hot.items() if not peer}
    return HotSpots(links, brokers, {end: count for end, count in lasting.items() if end[1]})


def _is_hot(queue: QueueState, rule: CongestionRule, *, was: bool) -> bool:
    return rule.threshold > 0 and rule.is_above(queue.congestion, was=was)
