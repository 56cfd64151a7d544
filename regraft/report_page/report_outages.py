"""The report's section on outages: the timeline line by line, and what the deaths of brokers cost."""

from __future__ import annotations

from typing import Any

from regraft.report_page.html_elements import html_table, number_text
from regraft.run_records.run_record import RunRecord, WindowCost

LINES_SHOWN_MAX = 500


def outage_part(record: RunRecord, summary: dict[str, Any]) -> str:
    """Return the timeline of the outages with its figures, or that there were none."""
    timeline = record.outages
    if not timeline.lines:
        return "<p>No broker failed, joined or left in this run.</p>"
    figures = [
        ("deaths of brokers, several at once counted as one", str(timeline.deaths)),
        ("from a death until the overlay was repaired, s", _seconds(timeline.repairs_ms)),
        ("peak deliveries per second through dead brokers", number_text(timeline.traffic_at_risk_per_s_max, 1)),
        *((f"lost: {reason.replace('_', ' ')}", number_text(count)) for reason, count in _lost(summary)),
        ("cost per second, last complete window before the first outage", _cost(_before(record))),
        ("cost per second, last complete window", _cost(_last(record))),
    ]
    lines = [
        (number_text((line.time_ms - record.started_ms) / 1000, 1), line.source, line.text)
        for line in timeline.lines[:LINES_SHOWN_MAX]
    ]
    left_out = len(timeline.lines) - len(lines)
    more = f"<p>{left_out} more lines are left out.</p>" if left_out else ""
    return (
        html_table(("figure", "value"), figures) + html_table(("s", "source", "what happened"), lines, numbers=1) + more
    )


def _lost(summary: dict[str, Any]) -> list[tuple[str, int]]:
    return sorted(summary["lost_by_reason"].items(), key=lambda item: (-item[1], item[0]))


def _seconds(repairs_ms: tuple[int, ...]) -> str:
    return ", ".join(number_text(one / 1000, 1) for one in repairs_ms) or "no repair was executed"


def _complete(record: RunRecord) -> list[WindowCost]:
    return [window for window in record.windows if window.complete]


def _before(record: RunRecord) -> WindowCost | None:
    first_ms = record.outages.first_ms
    windows = [window for window in _complete(record) if first_ms is not None and window.end_ms <= first_ms]
    return windows[-1] if windows else None


def _last(record: RunRecord) -> WindowCost | None:
    windows = _complete(record)
    return windows[-1] if windows else None


def _cost(window: WindowCost | None) -> str:
    return "not measured" if window is None else number_text(window.cost_per_s, 1)
