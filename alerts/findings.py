"""Results of watchers: a reading of a subject, and that a subject's alert must be raised or cleared. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from regraft.schemas.alert import AlertStatus

NAMES_MAX = 10  # This many are named, the rest are counted.


@dataclass(frozen=True)
class Reading:
    """One subject in one window: its figure, whether it raises or clears an alert, and which brokers are concerned.

    A figure between both bounds asks for neither.
    """

    value: float
    is_above: bool
    is_below: bool
    brokers: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Finding:
    """A change of status that a rule asks for, and the time that it holds from."""

    rule: str
    subject: str
    status: AlertStatus
    time_ms: int
    value: float
    limit: float
    brokers: tuple[str, ...] = ()
    detail: str = ""


class RaisedAlerts(Protocol):
    """What a watcher may ask about the alerts of its rule."""

    def subjects(self, rule: str) -> frozenset[str]:
        """Return the subjects whose alert is raised now."""
        ...

    def changed_ms(self, rule: str, subject: str) -> int:
        """Return when a subject's alert changed its status last, 0 when it never did."""
        ...


def name_some(names: list[str], count_max: int = NAMES_MAX) -> str:
    """Return the first names, and how many there are beyond them."""
    shown = ", ".join(names[:count_max])
    more = len(names) - count_max
    return f"{shown} and {more} more" if more > 0 else shown
