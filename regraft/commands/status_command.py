"""The command `regraft status`: whether the loop is healthy, in one line and one exit code.

In: settings. Out: text or JSON. Reading the status belongs to :mod:`regraft.stages.read_status`, judging it to
:mod:`regraft.stages.judge_status`.
"""

from __future__ import annotations

import json
from typing import Any

import typer

from regraft.commands.command_options import AsJson, Assignments, SettingsFile, settings_of
from regraft.commands.describe_broker import since_text
from regraft.commands.watch_output import Watch, show_watched
from regraft.infra.process.exit_codes import EXIT_FAILED, EXIT_OK
from regraft.schemas.loop_verdict import HEALTHY
from regraft.schemas.sampled_blocks import share_text
from regraft.schemas.stay_reasons import reasons_text, total_staying
from regraft.schemas.texts import name_some, one_line
from regraft.stages.explain_decision import decision_line

CLOCKS_SHOWN = 5
MEMBERS_SHOWN = 10
REPAIRS_SHOWN = 3


def status(
    as_json: AsJson = False,
    watch: Watch = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Report whether the loop is healthy, and why it proposes no plan: windows, members, cost, orders, alerts, stages.

    Reads the live view if `redis.url` is set and answers, else the status files of `run.directory`, and asks Kafka for
    its topics. Exits with 0 if the loop is healthy, 1 if it is degraded or not running.

    Examples: `regraft status`; `regraft status --watch`; `regraft status --json --set run.directory=out/demo/run`.
    """
    from regraft.stages.judge_status import judge_status
    from regraft.stages.read_status import find_status, topic_errors

    settings = settings_of(assignments, settings_file)

    def read() -> dict[str, Any]:
        shown = find_status(settings)
        now_ms, errors = settings.run.clock.now_ms(), topic_errors(settings)
        judged = judge_status(shown.services, shown.view, shown.alerts, now_ms, errors)
        return {**judged, "source": shown.source}

    def show(judged: dict[str, Any]) -> None:
        typer.echo(json.dumps(judged, indent=2) if as_json else "\n".join(status_lines(judged)))

    judged = show_watched(read, show, watch=watch)
    raise typer.Exit(EXIT_OK if judged["verdict"] == HEALTHY else EXIT_FAILED)


def status_lines(judged: dict[str, Any]) -> list[str]:
    """Return the status as lines of plain text, the verdict first."""
    why = "; ".join(text.rstrip(".") for text in judged["reasons"] + judged["notes"])
    lines = [f"{judged['verdict']}{': ' if why else ''}{why}"]
    window, cost = judged["window"], judged["cost"]
    if window is not None:
        lines.append(
            f"newest window: ended {window['age_ms'] / 1000:.1f} s ago, {_count_text(window)}; "
            f"{window['closed']} closed, {window['incomplete']} of them incomplete"
        )
        if window["clock_offsets_ms"]:
            clocks = list(window["clock_offsets_ms"].items())[:CLOCKS_SHOWN]
            lines.append("clocks farthest from Kafka's: " + ", ".join(f"{name} {ms:+d} ms" for name, ms in clocks))
    if cost is not None:
        lines.append(
            f"cost: {_cost_text(cost)} per s, {cost['bootstrap_per_s']:,.0f} with the first overlay "
            f"({cost['saved_share']:.1%} saved), epoch {judged['epoch']}"
        )
        if cost["bounded"] is not None:
            lines.append(_bound_text(cost["bounded"], judged["time_ms"]))
    if judged["decision"] is not None:
        lines.append(decision_line(judged["decision"]))
    lines += money_lines(judged) + subscriber_lines(judged["subscribers"], judged["staying"])
    lines += member_lines(judged["members"] or {})
    lines += [_plan_text(plan) for plan in judged["plans_last"]]
    lines += [f"alert: {alert.get('severity')}: {alert.get('text')}" for alert in judged["alerts"]]
    counted = ", ".join(f"{what} {count}" for what, count in judged["errors"].items() if count)
    if counted:
        lines.append(f"since the start: {counted}")
    services = judged["services"]
    if services:
        ages = ((name, "ended" if one["is_over"] else f"{one['age_s']:.1f} s ago") for name, one in services.items())
        lines.append("last heard: " + ", ".join(f"{name} {age}" for name, age in ages))
    return [one_line(line) for line in (*lines, f"source: {judged['source']}")]


def money_lines(judged: dict[str, Any]) -> list[str]:
    """Return lines about the bill for traffic, now and in the first window, and about brokers that serve no clients."""
    lines, bill, closable = [], judged["bill"], judged["closable"]
    if bill is not None:
        each = "".join(
            f"; {bill[f'{when}_per_million']:.3g} for a million deliveries{suffix}"
            for when, suffix in (("now", ""), ("first", " initially"))
            if bill[f"{when}_per_million"] is not None
        )
        lines.append(
            f"bill: {bill['currency']} {bill['now_per_month']:,.0f} in 30 days ({bill['links_per_month']:,.0f} between "
            f"brokers, {bill['access_per_month']:,.0f} to subscribers), {bill['first_per_month']:,.0f} initially{each}"
        )
    if closable:
        named = name_some(closable, MEMBERS_SHOWN)
        lines.append(f"idle (no clients), can be removed: {named} (`regraft members drain`)")
    return lines


def subscriber_lines(subscribers: dict[str, list[int]], staying: dict[str, dict[str, int]]) -> list[str]:
    """Return the line about which subscribers may move, most first, and why others do not; empty if all may."""
    total, movable = (sum(counts[place] for counts in subscribers.values()) for place in (0, 1))
    if not total:
        return []
    by_broker = sorted(subscribers.items(), key=lambda one: (-one[1][1], -one[1][0], one[0]))
    named = name_some([f"{broker} {may} of {count}" for broker, (count, may) in by_broker if count], MEMBERS_SHOWN)
    why = reasons_text(total_staying(staying.values()), total - movable)
    return [f"subscribers that may move: {movable} of {total} ({named})" + (f"; others stay{why}" if why else "")]


def member_lines(fleet: dict[str, Any]) -> list[str]:
    """Return the lines about the fleet: brokers by state, those not in service, and the last repairs."""
    counts = fleet.get("counts", {})
    if not counts:
        return []
    lines = ["members: " + ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())]
    members = fleet.get("members", ())
    for member in members[:MEMBERS_SHOWN]:
        state, since = member["state"].replace("_", " "), since_text(member["since_ms"])
        lasting = f"left at {since}" if state == "left" else f"has been {state} since {since}"
        lines.append(f"{member['broker']} {lasting}: {member['reason']}")
    if len(members) > MEMBERS_SHOWN:
        lines.append(f"{len(members) - MEMBERS_SHOWN} more: `regraft members list`")
    announced = fleet.get("announced", ())
    for one in announced[:MEMBERS_SHOWN]:
        lines.append(f"{one['broker']} has asked to join since {since_text(one['since_ms'])}: {one['to_do']}")
    if len(announced) > MEMBERS_SHOWN:
        lines.append(f"{len(announced) - MEMBERS_SHOWN} more ask to join: `regraft members list`")
    for repair in fleet.get("repairs", ())[-REPAIRS_SHOWN:]:
        took = (repair["whole_ms"] - repair["dead_since_ms"]) / 1000
        outcome = f"repaired after {took:.1f} s" if repair["whole_ms"] else f"{repair['phase']}, not repaired yet"
        lines.append(f"repair {repair['plan']} without {', '.join(repair['lost'])}: {outcome}")
    return lines


def _count_text(window: dict[str, Any]) -> str:
    """Describe how many notifications a window had, estimated if it holds only a sample."""
    share = window["sample_share"]
    if share >= 1:
        return f"{window['notifications']} notifications"
    return f"about {window['notifications'] / share:.0f} notifications, estimated from {share_text(share)}"


def _cost_text(cost: dict[str, Any]) -> str:
    """Describe the overlay's cost, with its standard error if it is an estimate."""
    error = f" (standard error {cost['error_per_s']:,.0f})" if cost["error_per_s"] is not None else ""
    return f"{'about ' if cost['sample_share'] < 1 else ''}{cost['now_per_s']:,.0f}{error}"


def _bound_text(bounded: dict[str, Any], now_ms: int) -> str:
    """Describe how far at most the overlay was from the best possible one, in the last window with a bound."""
    age_s = (now_ms - bounded["window_end_ms"]) / 1000
    return (
        f"no overlay could cost less than {bounded['least_per_s']:,.0f} per s; this one cost "
        f"{bounded['cost_per_s']:,.0f} at that time, {age_s:.0f} s ago"
    )


def _plan_text(plan: dict[str, Any]) -> str:
    undoes = f", undoes {plan['undoes']}" if plan["undoes"] else ""
    observed = plan["cost_observed_per_s"]
    seen = "" if observed is None else f", observed {observed:,.0f}"
    error = plan["gain_error_per_s"]
    off = "" if error is None else f" (standard error of the saving {error:,.0f})"
    costs = f"cost {plan['cost_before_per_s']:,.0f} -> {plan['cost_predicted_per_s']:,.0f} per s predicted{off}{seen}"
    costs += f", estimated from {plan['sample_share']:.1%} of the notifications" if plan["sample_share"] < 1 else ""
    return f"{plan['plan']}: {plan['phase']}, epoch {plan['epoch_to']}, {costs}{undoes}"
