"""``regraft plans``: show plans and their reasons, and approve or cancel the plan that waits.

In: the plans topic. Out: tables, JSON, orders. The controller acts on an order; this module only waits for the outcome.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from regraft.commands.command_options import (
    AsJson,
    Assignments,
    Bootstrap,
    By,
    NeededReason,
    Reason,
    SettingsFile,
    settings_of,
)
from regraft.commands.float_option import float_option
from regraft.commands.give_orders import ANSWER_S_MAX, give_order
from regraft.commands.print_table import print_table
from regraft.commands.watch_output import Watch, show_watched
from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.infra.process.stack_error import CallError, StackError
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import Plan, PlanPhase, Proposal, Verdict
from regraft.schemas.plan_life import LIFE, why_order_refused
from regraft.schemas.texts import one_line, time_text

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

READ_S_MAX = 30.0
OUTCOME_POLL_S = 0.3
MOVES_SHOWN_MAX = 12
CHANGE_WIDTH_MAX = 40

plans_app = typer.Typer(
    no_args_is_help=True,
    help="""Show plans, and approve or cancel the one that waits for approval.

With `regraft run --dry-run`, plans wait for an operator. An approved plan is executed exactly as shown, or refused as
stale if the overlay or its traffic has changed meanwhile.""",
)

PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="Name of the plan, for example plan-7.")]
WaitS = Annotated[
    float, float_option("--wait", metavar="SECONDS", min=0, help="Seconds to wait for the controller to act on it.")
]


class UnknownPlanError(CallError):
    """There is no plan of this name; the message lists the newest."""


@plans_app.command(name="list")
def list_plans(
    name: Annotated[str | None, typer.Argument(metavar="PLAN", help="Plan to show in full; default: list all.")] = None,
    count: Annotated[int, typer.Option("--last", min=1, help="Number of entries to show, newest first.")] = 20,
    as_json: AsJson = False,
    watch: Watch = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List the newest plans: time of decision, phase, changes, predicted and observed gains, last reason.

    With a PLAN, show it in full: its costs, each change and each refused proposal with the reason, and its history.

    Examples: `regraft plans list`; `regraft plans list --watch`;
    `regraft plans list --last 5 --json`; `regraft plans list plan-7`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)

    def show(plans: list[Plan]) -> None:
        if name is not None:
            _show(_named(plans, name), as_json=as_json)
        else:
            missing = "" if as_json else _missing(settings, plans)
            _show_newest(plans[-count:], missing, as_json=as_json)

    show_watched(lambda: _stored(settings), show, watch=watch)


def _missing(settings: Settings, plans: Sequence[Plan]) -> str:
    """Describe what shows that plans are missing."""
    from regraft.infra.kafka.read_window import read_newest_window
    from regraft.run_records.missing_plans import missing_plans_text

    return missing_plans_text(plans, read_newest_window(settings.kafka.access, settings.kafka.namespace))


def _show_newest(plans: Sequence[Plan], missing: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(plan) for plan in plans], indent=2))
        return
    if missing or not plans:
        typer.echo(missing or "No plans yet.")
    if not plans:
        return
    heads = ("plan", "window's end", "phase", "changes", "saves/s", "observed/s")
    print_table(heads, [_row(plan) for plan in plans], wraps=["changes"], drops=["window's end"])
    for plan in plans:
        if plan.history:
            typer.echo(one_line(f"{plan.plan} {plan.phase}: {plan.history[-1].reason}"))
    waiting = [plan.plan for plan in plans if plan.phase is PlanPhase.PROPOSED]
    if waiting:
        name = waiting[0]
        typer.echo(
            f"{name} waits for approval: `regraft plans list {name}`, then `regraft plans approve {name}` or cancel."
        )


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(plan), indent=2))
        return
    for line in plan_lines(plan):
        typer.echo(one_line(line))


@plans_app.command()
def approve(
    name: PlanName,
    reason: Reason = "",
    by: By = "",
    wait_s: WaitS = 30.0,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Approve the plan that waits for approval; it is executed exactly as shown.

    Exits with 1 if the plan is refused as stale, or if the order has no outcome within the time to wait.
    """
    _order(settings_of(assignments, settings_file, bootstrap), OrderKind.APPROVE, name, by, reason, wait_s)


@plans_app.command()
def cancel(
    name: PlanName,
    reason: NeededReason,
    by: By = "",
    wait_s: WaitS = 30.0,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Refuse a plan that waits for approval, or abort one in preparation; nothing changes. Later, it cannot be stopped.

    The planners of a refused plan pause for a while, so that they do not propose it again at once.

    Example: `regraft plans cancel plan-7 --reason "the night shift patches b03"`.
    """
    _order(settings_of(assignments, settings_file, bootstrap), OrderKind.CANCEL, name, by, reason, wait_s)


def plan_lines(plan: Plan) -> list[str]:
    """Return the lines that describe a plan for people."""
    undoes = f", rolls back {plan.undoes}" if plan.undoes else ""
    lines = [
        f"{plan.plan}: {plan.phase}{undoes}",
        f"  epoch {plan.epoch_from} -> {plan.epoch_to}, decided on the window ending {time_text(plan.window_end_ms)}",
        f"  cost {plan.cost_before_per_s:,.1f}/s -> {plan.cost_predicted_per_s:,.1f}/s predicted "
        f"(saves {plan.cost_before_per_s - plan.cost_predicted_per_s:,.1f}/s, transition cost {_price(plan):,.2f}/s)",
    ]
    if plan.cost_observed_per_s is not None:
        lines.append(f"  cost {plan.cost_observed_per_s:,.1f}/s observed")
    steps = f" in {len(plan.proposals)} steps, each with its saving" if len(plan.proposals) > 1 else ""
    lines += [f"changes ({_counted(plan)}{steps}):", *_change_lines(plan)]
    if plan.refused:
        lines += [f"refused ({len(plan.refused)}):", *_refusal_lines(plan)]
    lines.append("history:")
    lines += [f"  {time_text(change.time_ms)} {change.phase}: {change.reason}" for change in plan.history]
    return lines


def _change_lines(plan: Plan) -> list[str]:
    """Return a plan's changes grouped by reason, then the judge's reasons."""
    from regraft.run_records.group_changes import group_changes

    lines = []
    for group in group_changes(plan.proposals):
        lines.append(f"  {group.reason} ({group.planner})")
        changes = [_changes(one, plan.has_places) for one, _ in group.changes]
        width = min(max(map(len, changes)), CHANGE_WIDTH_MAX)
        for change, (one, detail) in zip(changes, group.changes, strict=True):
            observed = one.gain_observed_per_s
            observed_text = "" if observed is None else f", observed {observed:,.1f}/s"
            lines.append(
                f"    {change:{width}}  saves {one.gain_per_s:,.1f}/s{observed_text}"
                + (f"; {detail}" if detail else "")
            )
    return lines + [f"  {one.verdict_reason}" for one in plan.proposals if one.verdict_reason]


def _refusal_lines(plan: Plan) -> list[str]:
    """Return a plan's refused proposals grouped by cause."""
    causes: dict[str, list[str]] = {}
    for one in plan.refused:
        cause = f"{one.verdict.replace('_', ' ')}: {one.verdict_reason}"
        if one.verdict is Verdict.CONFLICT:  # It has another reason, which only holds after the earlier changes.
            cause = one.verdict_reason
        causes.setdefault(cause, []).append(f"    {_changes(one, plan.has_places)} ({one.planner})")
    return [line for cause, changes in causes.items() for line in (f"  {cause}", *changes)]


def _changes(change: Plan | Proposal, has_places: bool) -> str:
    parts = [f"link {a}-{b} out" for a, b in change.links_removed]
    parts += [f"link {a}-{b} in" for a, b in change.links_added]
    moves = [move.text for move in change.moves]
    moves += [move.slot_text if has_places else move.text for move in change.id_moves]
    moves += [f"subscribers of {move.text}" for move in change.subscribers_moved]
    parts += moves[:MOVES_SHOWN_MAX]
    if len(moves) > MOVES_SHOWN_MAX:
        parts.append(f"{len(moves) - MOVES_SHOWN_MAX} more moves")
    return ", ".join(parts) or "nothing"


def _row(plan: Plan) -> Sequence[str]:
    saves = f"{plan.cost_before_per_s - plan.cost_predicted_per_s:,.0f}"
    gains = [one.gain_observed_per_s for one in plan.proposals if one.gain_observed_per_s is not None]
    observed = f"{sum(gains):,.0f}" if gains else ""
    decided = time_text(plan.window_end_ms)
    return plan.plan, decided[5:], str(plan.phase), _counted(plan), saves, observed


def _counted(plan: Plan) -> str:
    """Return what a plan changes in the end: its steps may undo each other's."""
    links, moves, ids = len(plan.links_added), len(plan.moves), len(plan.id_moves)
    counted = ((links, "link"), (moves, "move"), (ids, "place" if plan.has_places else "ring ID"))
    return ", ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counted if count) or "no net change"


def _price(plan: Plan) -> float:
    return max((proposal.price_per_s for proposal in plan.proposals), default=0.0)


def _stored(settings: Settings) -> list[Plan]:
    """Return the newest version of each plan, by epoch. Raises StackError if Kafka or the topic is unavailable."""
    from regraft.run_records.read_topics import read_whole
    from regraft.schemas.remote_registry import use_registry
    from regraft.schemas.topics import PLANS
    from regraft.stages.run_loop import require_kafka

    require_kafka(settings.kafka.access)
    use_registry(namespace=settings.kafka.namespace)
    plans: dict[str, Plan] = {}
    for plan in read_whole(settings.kafka.access, settings.kafka.namespace, {PLANS: Plan}, READ_S_MAX):
        plans[plan.plan] = plan
    return sorted(plans.values(), key=lambda plan: plan.epoch_to)


def _named(plans: Sequence[Plan], name: str) -> Plan:
    for plan in plans:
        if plan.plan == name:
            return plan
    newest = ", ".join(plan.plan for plan in plans[-5:])
    raise UnknownPlanError(
        f"No plan is named {name}: {f'the newest are {newest}' if newest else 'there are none yet'}."
    )


def _order(settings: Settings, kind: OrderKind, name: str, by: str, reason: str, wait_s: float) -> None:
    """Give an order about the plan as it is stored now, and wait for the outcome. Raises StackError."""
    plan = _named(_stored(settings), name)
    if refusal := why_order_refused(kind, name, plan.phase):
        raise StackError(f"{refusal}.")
    answer_s_max = min(wait_s, ANSWER_S_MAX)
    give_order(settings, kind, name, by, reason, plan_digest=plan.approval_digest, wait_s_max=answer_s_max)
    outcome = _outcome(settings, kind, name, wait_s)
    if outcome is None:
        typer.echo(
            f"{name} has not changed after {wait_s:g} s; the order remains stored: check that the controller "
            "runs, is not paused, and gets complete windows",
            err=True,
        )
        raise typer.Exit(EXIT_FAILED)
    typer.echo(one_line(f"{name} is {outcome.phase}: {outcome.history[-1].reason}"))
    is_given_up = outcome.phase is PlanPhase.REFUSED or LIFE[outcome.phase].is_aborted
    if is_given_up is (kind is OrderKind.APPROVE):  # The outcome is the opposite of the order.
        raise typer.Exit(EXIT_FAILED)


def is_awaited(kind: OrderKind, phase: PlanPhase) -> bool:
    """Return True if an order has no outcome yet: it can still take effect, or brokers are still dropping the plan."""
    is_being_aborted = LIFE[phase].is_aborted and not LIFE[phase].is_final
    return kind in LIFE[phase].orders or (kind is OrderKind.CANCEL and is_being_aborted)


def _outcome(settings: Settings, kind: OrderKind, name: str, wait_s: float) -> Plan | None:
    deadline_s = time.monotonic() + wait_s
    while True:
        plan = _named(_stored(settings), name)
        if not is_awaited(kind, plan.phase):
            return plan
        if time.monotonic() >= deadline_s:
            return None
        time.sleep(OUTCOME_POLL_S)
