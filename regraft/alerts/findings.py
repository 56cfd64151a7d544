"""Results of watchers: readings of subjects, and findings that raise or clear a subject's alert. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from regraft.schemas.alert import AlertStatus

NAMES_MAX = 10  # This many are named, the rest only counted.


@dataclass(frozen=True)
class Reading:
    """One subject in one window: its value, whether it asks to raise or clear an alert, and the affected brokers.

    A value between both bounds asks for neither.
    """

    value: float
    is_above: bool
    is_below: bool
    brokers: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Finding:
    """A change of status that a rule requires, and the time from which it holds."""

    rule: str
    subject: str
    status: AlertStatus
    time_ms: int
    value: float
    limit: float
    brokers: tuple[str, ...] = ()
    detail: str = ""


class RaisedAlerts(Protocol):
    """What a watcher may query about the alerts of its rule."""

    def subjects(self, rule: str) -> frozenset[str]:
        """Return the subjects whose alert is raised at present."""

    def changed_ms(self, rule: str, subject: str) -> int:
        """Return when the status of a subject's alert last changed, 0 if there is no alert."""
