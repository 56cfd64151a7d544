"""Quiet hours: a span of each day in a time zone, in which only urgent alerts notify.

Notification at the end of quiet hours belongs to :mod:`alerts.notify_targets`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import cache
from zoneinfo import ZoneInfo

FORM = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s+(\S+)")


class QuietHoursError(ValueError):
    """A text for quiet hours is invalid; the message says why."""


@dataclass(frozen=True)
class QuietHours:
    """From ``begin`` to just before ``end`` in a time zone; a span whose begin is after its end includes midnight."""

    begin: time
    end: time
    zone: ZoneInfo

    def covers(self, time_ms: int) -> bool:
        """Return True if a time is within the quiet hours."""
        local = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(self.zone).time()
        if self.begin <= self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end


@cache
def parse_quiet_hours(text: str) -> QuietHours:
    """Return the quiet hours of a text. Raises QuietHoursError if it is invalid."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise QuietHoursError(f"is {text!r}: write HH:MM-HH:MM and a time zone, for example 22:00-07:00 Europe/Berlin")
    hours = [int(part) for part in match.groups()[:4]]
    try:
        begin, end = time(hours[0], hours[1]), time(hours[2], hours[3])
    except ValueError as error:
        raise QuietHoursError(f"is {text!r}: {error}") from error
    if begin == end:
        raise QuietHoursError(f"is {text!r}: start and end are the same; for no quiet hours leave it out")
    try:
        zone = ZoneInfo(match[5])
    except (KeyError, ValueError, OSError) as error:
        raise QuietHoursError(
            f"is {text!r}: the time zone {match[5]!r} is unknown here: use one like Europe/Berlin or UTC"
        ) from error
    return QuietHours(begin, end, zone)
