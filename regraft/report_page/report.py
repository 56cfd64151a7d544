"""Write ``report.html``: one self-contained page about one run, readable without a network.

In: a RunRecord. Out: HTML text. Figures come from ``draw_figures``, numbers from ``summary``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import Any

from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.report_page.draw_figures import draw_cost_curve, draw_overlay, place_brokers, plan_time_ms
from regraft.report_page.html_elements import THEME_CSS, Markup, html_table, known_text, number_text, times_text
from regraft.report_page.kind_pages import page_of
from regraft.report_page.report_outages import outage_part
from regraft.report_page.report_planners import planner_part
from regraft.run_records.group_changes import group_changes
from regraft.run_records.run_record import OverlayComparison, RunRecord
from regraft.run_records.summary import failures, summarise
from regraft.schemas.plan import Plan, Proposal
from regraft.schemas.plan_life import LIFE

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Regraft: run with seed $seed</title>
<style>
$theme
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
p { max-width: 48rem; }
.verdict { padding: .6rem .9rem; border-left: .4rem solid #00695c; background: var(--good); max-width: none; }
.verdict.bad { border-color: #b71c1c; background: var(--bad); }
dl.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl.figures div { border: 1px solid var(--line); border-radius: .3rem; padding: .5rem .7rem; }
dl.figures div.main { grid-column: span 2; border-width: 2px; } dl.figures div.main dd { font-size: 2rem; }
.facts { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; max-width: none; }
figure { overflow-x: auto; } figure svg { min-width: 34rem; height: auto; }
@media (max-width: 30rem) { body { padding: .8rem; } .pair { grid-template-columns: 1fr !important; } }
dl.figures dt { font-size: .85rem; color: var(--soft); }
dl.figures dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.scroll { overflow-x: auto; }
td p { margin: 0 0 .3rem; }
table { border-collapse: collapse; font-size: .82rem; min-width: 24rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem .45rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { overflow-wrap: anywhere; min-width: 7.5rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .9rem; color: var(--soft); }
</style>
</head>
<body>
<header>
<h1>Regraft: one run</h1>
<p>$what</p>
$facts
</header>
<main>
$body
</main>
</body>
</html>
""")


def build_report(record: RunRecord, facts: Mapping[str, Any] | None = None) -> str:
    """Return the report of a run as one HTML page; the run may lack windows and plans.

    ``facts`` is the run's description (:func:`regraft.run_records.describe_run.describe_run`), by which others can
    cite and repeat it.
    """
    summary = summarise(record)
    sections = [
        _verdict(summary),
        _figures(summary),
        _section("Cost over time", _cost_part(record)),
        _section("Other planners on the same traffic", planner_part(record)),
        _section("The overlay before and after", _overlay_part(record)),
        _section("Plans", _plan_part(record)),
        _section(page_of(record).moved_title, page_of(record).moved_part(record)),
        _section("Proposals that were not executed", _refusal_part(record)),
        _section("Outages", outage_part(record, summary)),
        _section("Delivery ledger", _ledger_part(summary)),
        _section("From window to command", _latency_part(record, summary)),
        _section("Memory and restarts", _memory_part(record)),
    ]
    return PAGE.substitute(
        theme=THEME_CSS,
        seed=record.seed,
        what=_what(record, summary, facts or {}),
        facts=_facts(facts) if facts else "",
        body="\n".join(sections),
    )


def _what(record: RunRecord, summary: dict[str, Any], facts: Mapping[str, Any]) -> str:
    scenario = f"Scenario {escape(str(facts['scenario']))}, seed" if facts.get("scenario") else "Seed"
    return f"{scenario} {record.seed}, {len(record.inventory.brokers)} brokers, {summary['duration_s']} s."


def _facts(facts: Mapping[str, Any]) -> str:
    """Return version, commit, time, machine and command of a run."""
    versions = facts["versions"]
    commit = f" (commit {facts['commit']})" if facts["commit"] else ""
    parts = [
        f"Regraft {versions['regraft']}{commit}",
        str(facts["time"]),
        f"{facts['system']}, {facts['cores']} cores, Python {versions['python']}, Java {versions['java'] or 'unknown'}",
        f"command: {facts['command']}",
    ]
    return f'<p class="facts">{"<br>".join(escape(part) for part in parts)}. Settings and seed are in run.json.</p>'


def _verdict(summary: dict[str, Any]) -> str:
    errors = failures(summary)
    if errors:
        return f'<p class="verdict bad"><strong>Failed.</strong> {escape("; ".join(errors))}.</p>'
    cost = summary["lost_to_deaths"]
    but = f", except for {number_text(cost)} deliveries whose path led through brokers that died," if cost else ""
    return (
        f'<p class="verdict"><strong>Nothing was lost, repeated or out of order</strong>{but} while the overlay was '
        f"rewired {times_text(summary['plans_executed'])}.</p>"
    )


def _figures(summary: dict[str, Any]) -> str:
    share = summary["cost_reduction_share"]
    unverified = summary["plans_executed"] - summary["plans_completed"]
    still = f", {unverified} still being verified" if unverified else ""
    mains = [
        ("cost saved on the same traffic", "not measured" if share is None else f"{share:.1%}"),
        ("lost / repeated / out of order", "{lost} / {repeated} / {out_of_order}".format(**summary)),
    ]
    entries = [
        ("notifications published", number_text(summary["notifications_published"])),
        ("deliveries", number_text(summary["deliveries"])),
        ("windows (incomplete)", f"{summary['windows_closed']} ({summary['windows_incomplete']})"),
        ("plans executed (aborted)", f"{summary['plans_executed']} ({summary['plans_aborted']}){still}"),
        ("plans to save (have saved)", f"{summary['plans_to_save']} ({summary['plans_saved']})"),
        ("repairs, joins and leaves", number_text(summary["plans_of_members"])),
        ("reported in full, at least", _share(summary["telemetry_share"])),
        ("measured links", number_text(summary["links_corrected"])),
        ("subscription lifetime", _known_unit(summary["subscription_lifetime_s"], "s", 1)),
        ("decision horizon", _known_unit(summary["horizon_windows"], "windows", 0)),
    ]
    cells = "".join(f'<div class="main"><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>' for name, value in mains)
    cells += "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in entries)
    return f'<dl class="figures">{cells}</dl>'


def _known_unit(value: float | None, unit: str, digits: int) -> str:
    return "not measured" if value is None else f"{number_text(value, digits)} {unit}"


def _cost_part(record: RunRecord) -> str:
    if not record.windows:
        return "<p>No window closed, so no cost is known.</p>"
    shadows = [shadow.planner for shadow in record.shadows]
    rows = [
        (
            number_text((window.end_ms - record.started_ms) / 1000, 1),
            str(window.epoch),
            number_text(window.cost_per_s, 1),
            number_text(window.cost_bootstrap_per_s, 1),
            *(known_text(window.shadows_per_s.get(planner)) for planner in shadows),
            "yes" if window.complete else "no",
        )
        for window in record.windows
    ]
    shadow_heads = [f"shadow: {planner}" for planner in shadows]
    heads = ("end, s", "epoch", "cost/s", "on the bootstrap overlay", *shadow_heads, "complete")
    table = html_table(heads, rows, numbers=4 + len(shadows))
    shadow_note = (
        " A shadow line is what it would have cost on the overlay that this planner alone would have produced by then."
        if shadows
        else ""
    )
    return (
        f"<p>The cost of the traffic of each window: {page_of(record).cost_text} The dashed line is what the same "
        f"traffic would cost had the overlay never been changed.{shadow_note}</p>"
        f"<figure>{draw_cost_curve(record)}</figure>"
        f"<details><summary>All {len(rows)} windows as a table</summary>{table}</details>"
    )


def _overlay_part(record: RunRecord) -> str:
    comparison = record.comparison
    if comparison is None:
        return "<p>There were no complete windows to compare the two overlays on.</p>"
    positions = place_brokers(record.inventory)
    loads = [*comparison.before.link_notifications_per_s.values(), *comparison.after.link_notifications_per_s.values()]
    load_per_s_max = max(loads, default=0.0)
    pictures = [
        (
            draw_overlay(breakdown, record.inventory, positions, load_per_s_max, name),
            f"<strong>{title}</strong>: cost {number_text(breakdown.total_per_s, 1)} per second, "
            f"{number_text(_load_sum(breakdown), 1)} link crossings per second",
        )
        for name, title, breakdown in (
            ("bootstrap", "Bootstrap overlay", comparison.before),
            ("final", f"Final overlay, epoch {comparison.final.epoch}", comparison.after),
        )
    ]
    shown = "".join(f"<figure>{svg}<figcaption>{caption}</figcaption></figure>" for svg, caption in pictures)
    return (
        f"<p>Both are priced on the traffic of the same last {comparison.window_count} complete windows. Brokers are "
        "placed by their round-trip times (distances follow the square root of the link cost). The more "
        f"notifications cross a link, the wider and darker it is, up to {number_text(load_per_s_max, 1)} per "
        "second.</p>"
        f'<div class="pair">{shown}</div>{_bound_text(comparison)}{_busiest_links(comparison)}'
    )


def _bound_text(comparison: OverlayComparison) -> str:
    """Describe how far at most the final overlay is from the best possible one."""
    least_per_s, final_per_s = comparison.least_per_s, comparison.after.total_per_s
    if least_per_s is None or final_per_s <= 0:
        return ""
    return (
        f"<p>No tree, with publishers anywhere, could cost less than {number_text(least_per_s, 1)} per second on this "
        f"traffic: at most {1 - least_per_s / final_per_s:.1%} of what the final overlay costs is left to save. The "
        "best tree may well cost more than this bound.</p>"
    )


def _busiest_links(comparison: OverlayComparison, count: int = 8) -> str:
    rows = []
    for title, breakdown in (("bootstrap", comparison.before), ("final", comparison.after)):
        loads = breakdown.link_notifications_per_s
        for a, b in sorted(loads, key=lambda pair: (-loads[pair], pair))[:count]:
            rows.append((title, f"{a} – {b}", number_text(loads[a, b], 1), number_text(breakdown.links_per_s[a, b], 1)))
    table = html_table(("overlay", "link", "notifications/s", "cost/s"), rows, text=2)
    return f"<details><summary>Busiest links as a table</summary>{table}</details>"


def _load_sum(breakdown: CostBreakdown) -> float:
    return sum(breakdown.link_notifications_per_s.values())


def _plan_part(record: RunRecord) -> str:
    if not record.plans:
        return "<p>No plan was proposed in this run; the refused proposals below give the reasons.</p>"
    heads = ("plan", "at, s", "epoch", "phase", "changes and reasons", "outcome", "cost/s before",
             "gain/s predicted", "observed", "of predicted")  # fmt: skip
    rows = [_plan_row(plan, record) for plan in record.plans]
    return (
        "<p>Each plan is one transition; the curve has its number. A gain is what it saves per second: predicted on "
        "the traffic before it, observed on the windows after it, each against the overlay that it changed.</p>"
        + html_table(heads, rows, text=6)
    )


def _plan_row(plan: Plan, record: RunRecord) -> tuple[str, ...]:
    time_ms, predicted_per_s = plan_time_ms(plan), plan.cost_before_per_s - plan.cost_predicted_per_s
    observed = [one.gain_observed_per_s for one in plan.proposals if one.gain_observed_per_s is not None]
    is_known = bool(observed) and len(observed) == len(plan.proposals)
    lines = [f"undoes {plan.undoes}"] if plan.undoes else []
    lines += _link_lines(proposal for proposal in plan.proposals if proposal.links_added)
    lines += page_of(record).move_lines(plan)
    outcome = record.plan_outcomes.get(plan.plan, "")
    if LIFE[plan.phase].is_aborted and not outcome and plan.history:
        outcome = plan.history[-1].reason
    return (
        plan.plan,
        "" if time_ms is None else number_text((time_ms - record.started_ms) / 1000, 1),
        f"{plan.epoch_from} → {plan.epoch_to}",
        str(plan.phase),
        Markup("".join(f"<p>{escape(line)}</p>" for line in lines)),
        outcome,
        number_text(plan.cost_before_per_s),
        number_text(predicted_per_s),
        number_text(sum(observed)) if is_known else "not verified",
        f"{sum(observed) / predicted_per_s:.0%}" if is_known and predicted_per_s > 0 else "",
    )


def _link_lines(proposals: Iterable[Proposal]) -> list[str]:
    """Return a line for each reason, with all links exchanged for that reason."""
    lines = []
    for group in group_changes(proposals):
        changes = (
            f"{_links(one.links_removed)} → {_links(one.links_added)}" + (f" ({detail})" if detail else "")
            for one, detail in group.changes
        )
        lines.append(f"{'; '.join(changes)}: {group.reason}")
    return lines


def _share(share: float | None) -> str:
    return "not measured" if share is None else "all" if share >= 1 else f"1 of {round(1 / share)}"


def _links(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{a}–{b}" for a, b in pairs)


def _refusal_part(record: RunRecord) -> str:
    if not record.refusals:
        return "<p>No proposal was refused.</p>"
    rows = [
        (verdict.replace("_", " "), number_text(count))
        for verdict, count in sorted(record.refusals.items(), key=lambda item: (-item[1], item[0]))
    ]
    return html_table(("verdict", "proposals"), rows)


def _ledger_part(summary: dict[str, Any]) -> str:
    names = {
        "notifications_published": "notifications published",
        "deliveries_expected": "deliveries owed",
        "deliveries": "deliveries made",
        "lost": "lost",
        "lost_to_deaths": "of these, on a path through a broker that died",
        "repeated": "repeated",
        "out_of_order": "out of order (per publisher)",
        "out_of_order_on_detours": "of these, detoured around congested links or after one that was",
        "unexpected": "made to subscriptions that should not have received them",
    }
    rows = [(title, number_text(summary[name])) for name, title in names.items()]
    return (
        "<p>The emulator keeps this ledger: each notification is owed exactly once to every subscription that was "
        "confirmed before it was published and not cancelled before.</p>" + html_table(("count", "value"), rows)
    )


def _latency_part(record: RunRecord, summary: dict[str, Any]) -> str:
    if not record.latencies_ms:
        return "<p>No command followed a window in this run.</p>"
    rows = [
        ("median", number_text(summary["window_close_to_command_ms_p50"], 1)),
        ("95th percentile", number_text(summary["window_close_to_command_ms_p95"], 1)),
        ("longest", number_text(max(record.latencies_ms), 1)),
    ]
    return (
        "<p>From the end of a window (event time, including the wait for late rows) to the first command of the plan "
        "based on it.</p>"
    ) + html_table((f"of {len(record.latencies_ms)} plans", "ms"), rows)


def _memory_part(record: RunRecord) -> str:
    if not record.services:
        return "<p>No service was measured.</p>"
    rows = [
        (service.name, number_text(service.memory_bytes_max / 1e6), str(service.restarts))
        for service in sorted(record.services, key=lambda service: -service.memory_bytes_max)
    ]
    rows.append(("total at peak, including this process", number_text(record.memory_total_bytes_max / 1e6), ""))
    return html_table(("service", "peak resident memory, MB", "restarts"), rows)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"
