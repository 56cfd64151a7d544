"""Find brokers that are at another epoch than the one in force, by what they stamped in a window. Pure.

Reacting to it belongs to :mod:`controller.decide` and :mod:`controller.execute`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from regraft.controller.state.closed_window import ClosedWindow
from regraft.schemas.name_some import name_some

BROKERS_NAMED_MAX = 5


def brokers_elsewhere(window: ClosedWindow, epoch: int, transition_ended_ms: int) -> dict[str, int]:
    """Return the brokers that ended the window at another epoch than the one in force, with theirs.

    Return none if the window began less than its own length after a transition: brokers may still have been changing.
    """
    if window.start_ms - transition_ended_ms < window.end_ms - window.start_ms:
        return {}
    return {broker: newest for broker, newest in window.epochs.items() if newest != epoch}


def elsewhere_text(elsewhere: Mapping[str, int]) -> str:
    """List which brokers are at which epoch."""
    by_epoch: dict[int, list[str]] = defaultdict(list)
    for broker, epoch in sorted(elsewhere.items()):
        by_epoch[epoch].append(broker)
    parts = []
    for epoch, brokers in sorted(by_epoch.items()):
        parts.append(f"{name_some(brokers, BROKERS_NAMED_MAX)} at epoch {epoch}")
    return "; ".join(parts)
