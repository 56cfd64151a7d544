"""The report's section on planners: the acting planner compared with the shadow planners."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from regraft.report_page.html_elements import html_table, known_text, number_text
from regraft.report_page.kind_pages import page_of
from regraft.run_records.judge_plans import serves_members
from regraft.run_records.run_record import RunRecord, ShadowRun
from regraft.schemas.plan import PlanPhase

Row = tuple[str, ...]


def planner_part(record: RunRecord) -> str:
    """Return the section: one row for each planner, and notes on how to read them."""
    if not record.shadows:
        return "<p>There was no shadow planner in this run: add some with --shadow.</p>"
    comparison, page = record.comparison, page_of(record)
    final = (None, None) if comparison is None else (comparison.before.total_per_s, comparison.after.total_per_s)
    means, share = _mean_costs(record), None if comparison is None else comparison.cost_reduction_share
    completed = [plan for plan in record.plans if plan.phase is PlanPhase.COMPLETED and not serves_members(plan)]
    acting = (
        str(len([plan for plan in completed if not plan.undoes])),
        str(sum(bool(plan.undoes) for plan in completed)),
        str(sum(len(plan.links_added) for plan in completed)),
        *(str(change.of_plans(completed)) for change in page.changes),
        number_text(sum(record.refusals.values())),
    )
    rows = [
        (
            "none",
            "bootstrap overlay",
            known_text(final[0]),
            "",
            known_text(means["bootstrap"]),
            *("",) * (6 + len(page.changes)),
        ),
        _planner_row(record, "acting", record.planner, final[1], share, means["acting"], acting),
    ]
    for shadow in record.shadows:
        changes = (shadow.links_exchanged, *(change.of_shadow(shadow) for change in page.changes))
        counts = (shadow.plans, shadow.plans_rolled_back, *changes, sum(shadow.refusals.values()))
        shown = tuple(number_text(count) for count in counts)
        rows.append(_shadow_row(record, shadow, means[f"shadow:{shadow.planner}"], shown))
    movers = (change.head for change in page.changes)
    heads = ("planner", "role", "cost/s, last windows", "saved", "cost/s, mean of all", "plans", "rolled back",
             "links exchanged", *movers, "refusals", "decision, ms mean", "max")  # fmt: skip
    return (
        "<p>A shadow planner decides on the same windows, by the same rules, on an overlay that exists only in the "
        f"controller. {page.exact_text} Its plans take effect immediately and cost no messages, so it is at least as "
        "fast as if it acted.</p>"
        + html_table(heads, rows, text=2)
        + "".join(f"<p>{escape(line)}</p>" for line in _shadow_notes(record))
    )


def _shadow_row(record: RunRecord, shadow: ShadowRun, mean_per_s: float | None, counts: Sequence[str]) -> Row:
    cost_per_s, share = shadow.final_cost_per_s, shadow.saved_share
    return _planner_row(record, "shadow", shadow.planner, cost_per_s, share, mean_per_s, counts)


def _planner_row(
    record: RunRecord,
    role: str,
    planner: str,
    cost_per_s: float | None,
    share: float | None,
    mean_per_s: float | None,
    counts: Sequence[str],
) -> Row:
    times = record.decision_times.get(f"{role}:{planner}")
    saved = "" if share is None else f"{share:.1%}"
    took = ("", "") if times is None else (number_text(times.mean_ms, 1), number_text(times.max_ms, 1))
    return (planner, role, known_text(cost_per_s), saved, known_text(mean_per_s), *counts, *took)


def _mean_costs(record: RunRecord) -> dict[str, float | None]:
    """Return mean costs over the complete windows that all planners have; None for each if there are none."""
    names = [shadow.planner for shadow in record.shadows]
    windows = [window for window in record.windows if window.complete and set(names) <= window.shadows_per_s.keys()]
    if not windows:
        return dict.fromkeys(["bootstrap", "acting", *(f"shadow:{name}" for name in names)])
    means: dict[str, float | None] = {
        f"shadow:{name}": fmean(window.shadows_per_s[name] for window in windows) for name in names
    }
    means["bootstrap"] = fmean(window.cost_bootstrap_per_s for window in windows)
    means["acting"] = fmean(window.cost_per_s for window in windows)
    return means


def _shadow_notes(record: RunRecord) -> list[str]:
    notes = [
        f"{shadow.planner} failed {shadow.errors} times: {shadow.error_text}."
        for shadow in record.shadows
        if shadow.errors
    ]
    starts = max(shadow.starts for shadow in record.shadows)
    if starts > 1:
        notes.append(
            f"Shadow planners started {starts} times, from the overlay then in force: with each controller, and when "
            "brokers died or came. What they would save is a share of the cost of the overlay from which they last "
            "started; their plans and means are those of all starts, so these partly reflect the acting planner."
        )
    return notes
