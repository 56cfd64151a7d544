"""Determine how much of the overlay is affected at once, so that a large error is reported once, not a hundred times.

Silencing single alerts belongs to :mod:`alerts.notify_targets`.
"""

from __future__ import annotations

from collections.abc import Collection

from regraft.alerts.findings import NAMES_MAX, Finding
from regraft.alerts.rule_kinds import BlastRule
from regraft.schemas.alert import AlertStatus
from regraft.schemas.texts import name_some

OVERLAY = "overlay"  # The subject of the alert.
SINGLE_SOURCES = ("queue.", "broker.")  # Each alert on these concerns one broker.


def is_single(on: str) -> bool:
    """Return True if a rule on this source is about one broker, or one link of it."""
    return on.startswith(SINGLE_SOURCES)


class BlastWatcher:
    """Counts in ``calm_windows`` the windows in a row with a small blast radius, up to what matters."""

    def __init__(self, rule: BlastRule, calm_windows: int = 0) -> None:
        self.rule = rule
        self.calm_windows = calm_windows

    def watch(
        self, end_ms: int, affected: Collection[str], broker_count: int, *, is_raised: bool
    ) -> list[Finding]:  # fmt: skip
        """Process a window with ``broker_count`` brokers, of which ``affected`` are affected; return the findings."""
        limit, value = self.rule.brokers_limit(broker_count), len(affected)
        is_calm = value < self.rule.clear_below * limit
        self.calm_windows = min(self.calm_windows + 1, self.rule.clear_for_windows) if is_calm else 0
        detail = name_some(sorted(affected), NAMES_MAX)
        if not is_raised and value > limit:
            return [self._finding(AlertStatus.RAISED, end_ms, value, limit, detail)]
        if is_raised and self.calm_windows >= self.rule.clear_for_windows:
            return [self._finding(AlertStatus.CLEARED, end_ms, value, limit, detail)]
        return []

    def _finding(self, status: AlertStatus, time_ms: int, value: int, limit: float, detail: str) -> Finding:
        return Finding(self.rule.name, OVERLAY, status, time_ms, float(value), limit, (), detail)
