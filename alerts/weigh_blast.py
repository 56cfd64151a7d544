"""Weigh how much of the overlay is affected at once, so that a large fault is reported once and not a hundred times.

In: a window, the alerts that stand, the brokers in maintenance. Out: findings of the one rule about it. Keeping the
single alerts back belongs to :mod:`alerts.notify_targets`.
"""

from __future__ import annotations

from collections.abc import Collection

from regraft.alerts.findings import Finding, name_some
from regraft.alerts.rule_kinds import BlastRule
from regraft.schemas.alert import AlertStatus

OVERLAY = "overlay"  # The subject of the alert.
SINGLE_SOURCES = ("queue.", "broker.")  # Alerts about these are about one broker each.


def is_single(on: str) -> bool:
    """Return True if a rule on this source speaks of one broker, or of one link of it."""
    return on.startswith(SINGLE_SOURCES)


class BlastWeigher:
    """For how many windows in a row the blast radius has been small: ``calm_windows``, no more than matter."""

    def __init__(self, rule: BlastRule, calm_windows: int = 0) -> None:
        self.rule = rule
        self.calm_windows = calm_windows

    def weigh(
        self, end_ms: int, concerned: Collection[str], broker_count: int, *, is_raised: bool
    ) -> list[Finding]:  # fmt: skip
        """Take a window with this many brokers, some of them affected, into account."""
        limit, value = self.rule.brokers_limit(broker_count), len(concerned)
        is_calm = value < self.rule.clear_below * limit
        self.calm_windows = min(self.calm_windows + 1, self.rule.clear_for_windows) if is_calm else 0
        detail = name_some(sorted(concerned))
        if not is_raised and value > limit:
            return [self._finding(AlertStatus.RAISED, end_ms, value, limit, detail)]
        if is_raised and self.calm_windows >= self.rule.clear_for_windows:
            return [self._finding(AlertStatus.CLEARED, end_ms, value, limit, detail)]
        return []

    def _finding(self, status: AlertStatus, time_ms: int, value: int, limit: float, detail: str) -> Finding:
        return Finding(self.rule.name, OVERLAY, status, time_ms, float(value), limit, (), detail)
