"""Show the summary of a demo in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from regraft.producers.brokers.broker_reports import AGENT_DIED
from regraft.stages.show_run import plans_text

NOT_MEASURED = "not measured"
NAME_WIDTH_MAX = 30  # The names of joined planners are too long for a column next to their figures.
CHANGES = {
    "links_exchanged": "links exchanged",
    "links_repaired": "links by repairs and changes of members",
    "publishers_moved": "publishers moved",
    "clients_moved": "clients moved",
    "users_moved": "users moved",
    "id_moves": "ring IDs reassigned",
    "places_changed": "places changed",
    "brokers_emptied": "brokers emptied",
}


def show_summary(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the most important figures, and where the report and all other figures are."""
    _print_lines(list(summary_lines(summary)), console)
    for name, file in (("Report", "report.html"), ("All figures", "summary.json")):
        console.print(f"{name}: {out / file}", markup=False, highlight=False, soft_wrap=True)


def _print_lines(lines: Sequence[tuple[str, str]], console: Console) -> None:
    """Print a table on a terminal, otherwise one line for each result."""
    if not console.is_terminal:
        for name, text in lines:
            console.print(f"{name:{NAME_WIDTH_MAX}}  {text}", markup=False, highlight=False, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(max_width=NAME_WIDTH_MAX, overflow="fold")
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, text)
    console.print(table)


def summary_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the most important results, each as a name and a text."""
    yield "run", f"{summary['duration_s']:g} s, seed {summary['seed']}, planner {summary['planner']}"
    withheld = summary.get("notifications_withheld", 0)
    busy = f", {withheld:,} not sent because the machine was too busy" if withheld else ""
    yield "notifications published", f"{summary['notifications_published']:,}{busy}"
    yield "deliveries", f"{summary['deliveries']:,} of {summary['deliveries_expected']:,}"
    yield "lost / repeated / out of order", _errors(summary)
    yield "windows closed", f"{summary['windows_closed']}, of which {summary['windows_incomplete']} incomplete"
    yield "plans", _plans(summary)
    yield "changes", _counts({text: summary.get(name, 0) for name, text in CHANGES.items()})
    yield "cost per second", _saving(summary["cost_initial"], summary["cost_final"], summary["cost_reduction_share"])
    if summary.get("is_charged"):
        yield from _bill_lines(summary)
    if "checkins_moving" in summary:
        yield from _mobile_lines(summary)
    for planner, shadow in summary["shadows"].items():
        share = shadow["cost_reduction_share"]
        saved = "cost not measured" if share is None else f"would save {share:.1%}"
        since = f" of the cost of epoch {shadow['epoch_start']}, from which it last started," * bool(
            shadow["epoch_start"]
        )
        again = f" in {shadow['starts']} starts" * (shadow["starts"] > 1)
        yield f"shadow planner {planner}", f"{saved}{since} by {plans_text(shadow['plans'])}{again}"
    yield from _outage_lines(summary)
    yield "end of window to first command", _latency(summary)
    yield "restarts", _counts(summary["restarts"])
    sizes = summary["memory_bytes_max"]
    services = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in sizes.items() if name != "total")
    yield "peak memory, MB", f"{sizes['total'] / 1e6:,.0f} (peak of each: {services})"
    for text in summary["given_up"]:
        yield "given up", text


def _errors(summary: Mapping[str, Any]) -> str:
    counts = " / ".join(f"{summary[name]:,}" for name in ("lost", "repeated", "out_of_order"))
    to_agents = summary["lost_by_reason"].get(AGENT_DIED, 0)
    excused = {
        "lost on a path through a broker that died": summary["lost_to_deaths"] - to_agents,
        "lost with an agent that died": to_agents,
        "out of order after a detour around congestion": summary["out_of_order_on_detours"],
    }
    return ", ".join([counts, *(f"{count:,} {text}" for text, count in excused.items() if count)])


def _plans(summary: Mapping[str, Any]) -> str:
    others = {
        "repairs and changes of members": summary["plans_of_members"],
        "rollbacks": summary["plans_undoing"],
        "aborted": summary["plans_aborted"],
    }
    saved = f"{summary['plans_to_save']} to save ({summary['plans_saved']} known to have saved)"
    return ", ".join([saved, *(f"{count} {text}" for text, count in others.items() if count)])


def _saving(before: float | None, after: float | None, share: float | None) -> str:
    if before is None or after is None or share is None:
        return NOT_MEASURED
    return f"{before:,.0f} on the first overlay, {after:,.0f} on the last, same traffic: {share:.1%} saved"


def _bill_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key, digits in (("30 days", "per_month", 0), ("a million deliveries", "per_million", 3)):
        before, after = summary[f"bill_before_{key}"], summary[f"bill_after_{key}"]
        is_known = before is not None and after is not None
        text = f"{before:,.{digits}f} before, {after:,.{digits}f} at the end" if is_known else NOT_MEASURED
        yield f"bill for {name}, {summary['bill_currency']}", text


def _mobile_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    names = ("checkins_moving", "clients_brought_nearer", "clients_brought_to_nearest")
    moved, nearer, nearest = (summary[name] for name in names)
    yield "check-ins that moved clients", str(moved)
    before, after = summary["brought_trip_ms_before"], summary["brought_trip_ms_after"]
    trips = "" if before is None else f": mean round trip {before:,.0f} ms before, {after:,.0f} ms after"
    yield "mobile clients brought nearer", f"{nearer}, of which {nearest} to the nearest broker{trips}"
    trip, without = summary["mobile_trip_ms"], summary["mobile_unplanned_trip_ms"]
    text = NOT_MEASURED if trip is None else f"mean {trip:,.0f} ms, {without:,.0f} ms if they had not been moved"
    yield "round trip of mobile clients", text


def _outage_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if summary["outages"]:
        yield "outages", _counts(summary["outages"])
    if summary["repairs"]:
        took_s = summary["death_to_whole_ms_p50"] / 1000
        yield "repairs", f"{summary['repairs']}, median {took_s:.1f} s from a death to the repaired overlay"
    if summary["alerts_raised"]:
        yield "alerts raised", _counts(summary["alerts_raised"])
        yield "alerts cleared", _counts(summary["alerts_cleared"])


def _latency(summary: Mapping[str, Any]) -> str:
    median_ms, late_ms = (summary[f"window_close_to_command_ms_{percent}"] for percent in ("p50", "p95"))
    return NOT_MEASURED if median_ms is None else f"median {median_ms / 1000:.1f} s, p95 {late_ms / 1000:.1f} s"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count) or "none"
