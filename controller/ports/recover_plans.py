"""Rebuild the plan log from what the brokers hold, if it was lost or is behind them.

In: the stored plans and what each broker reports. Out: one plan that leads to the overlay of all brokers, shown first
and written on request. It works in its own term, so no controller leads meanwhile. The only place besides
:mod:`controller.run_controller` with a clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, closing

import msgspec

from regraft.controller.ports.leadership import HeldTerm, Leadership
from regraft.controller.ports.topic_readers import LetterSender, TopicReader
from regraft.controller.settings.controller_settings import TERM_LEAP_MAX, ControllerSettings
from regraft.controller.state.overlays_in_window import BROKERS_NAMED_MAX
from regraft.controller.state.plan_log import PlanLog
from regraft.infra.kafka.read_messages import find_names
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.overlay_configuration import OverlayConfiguration, link
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase
from regraft.schemas.texts import name_some, shortened
from regraft.schemas.topics import COMMANDS, RESULTS

LEAD_S_MAX = 60.0
ANSWER_S_MAX = 20.0
ASK_AGAIN_S = 2.0
POLL_S = 0.05
TERMS_MAX = 3  # Attempts with terms above those that brokers have heard of.
STEADY = "steady"


class RecoveryRefusedError(StackError):
    """The plans cannot be rebuilt; the message says why, and what each broker holds."""


def recover_plans(settings: ControllerSettings, *, is_written: bool) -> Plan | None:
    """Return the plan that brings the log to the overlay of the brokers, or None if it is up to date.

    It is stored if ``is_written``; then controllers with this inventory may lead, whatever led before.

    Raises RecoveryRefusedError, InventoryError, and UnreadableRecordError for a stored
    plan that cannot be read.
    """
    inventory = load_inventory(settings.inventory_path)
    agent_of, name = (
        inventory.broker_topics(settings.namespace).agent_of,
        shortened(f"recover, {settings.instance_name}", NAME_LENGTH_MAX),
    )
    with ExitStack() as held:
        leadership = Leadership(
            settings.kafka,
            settings.namespace,
            name,
            settings.session_ms,
            agent_of,
            inventory=inventory.digest if is_written else "",
        )
        held.callback(leadership.close)
        for _ in range(TERMS_MAX):
            term = _take_term(leadership, settings)
            held.callback(term.plans.close)
            stored = term.plans.load() or []
            fleet = FleetView.of(inventory, term.plans.load_members() or ())
            reports, most = _ask(term, fleet, settings), term.term.term + TERM_LEAP_MAX
            newest = max((report.term for report in reports.values() if report.term < most), default=0)
            if newest <= term.term.term:
                break
            leadership.note_term(newest)
        plan = recovered_plan(PlanLog(inventory, stored), fleet, reports, settings.clock.now_ms(), term.term.term)
        if plan is not None and is_written and not _store(term, plan):
            raise RecoveryRefusedError("Kafka has not stored the plan: try again once it is healthy.")
        return plan


def recovered_plan(
    log: PlanLog, fleet: FleetView, reports: Mapping[str, CommandResult], now_ms: int, term: int
) -> Plan | None:
    """Return the plan from what is stored to what all brokers hold, or None if the log has that in force.

    All brokers are those that serve, plus those of the held overlay that are not dead. Raises RecoveryRefusedError if
    brokers are missing, do not agree, are between two overlays, or are not ahead.
    """
    asked = fleet.serving or tuple(fleet.members)
    answer = reports.get(asked[0])
    asked = tuple(sorted({*asked, *_held_alive(answer, fleet)}))
    answers: dict[str, list[str]] = defaultdict(list)
    for broker in asked:
        answers[_answer_text(reports.get(broker), fleet)].append(broker)
    if not any(broker in reports for broker in asked):
        raise RecoveryRefusedError(
            f"None of the {len(asked)} brokers answered within {ANSWER_S_MAX:g} s: start them first."
        )
    if len(answers) > 1 or answer is None or not _is_settled(answer, fleet):
        parts = [f"{_named(brokers)}: {what}" for what, brokers in answers.items()]
        raise RecoveryRefusedError(
            "The overlay in force cannot be determined, because the brokers do not all hold the same one and nothing "
            "else. "
            + "; ".join(parts)
            + ". Bring the others to the same overlay, or restart all brokers, and try again."
        )
    target, present = held_overlay(answer, fleet), log.present
    if (target.epoch, target.digest) == (present.epoch, present.digest):
        return None
    # Plans that were aborted after the lost ones have later epochs than these.
    if target.epoch <= present.epoch or any(plan.epoch_to == target.epoch for plan in log.plans):
        raise RecoveryRefusedError(
            f"All brokers are at epoch {target.epoch}, and the stored plans go to epoch {log.epoch_next - 1}, with "
            f"{present.epoch} in force: no plan is missing. Restart brokers that started with a "
            f"different overlay than the one in force; emulated ones restart by themselves."
        )
    plan = msgspec.structs.replace(
        _held_plan(answer),
        plan=answer.plan_held or f"plan-{target.epoch}",
        epoch_from=present.epoch,
        window_end_ms=now_ms,
        history=(PhaseChange(PlanPhase.COMPLETED, now_ms, f"recovered from what all {len(asked)} brokers hold"),),
        term=term,
    )
    return target.as_target(plan, present)


def held_overlay(report: CommandResult, fleet: FleetView) -> OverlayConfiguration:
    """Return the overlay that a broker reports. Raises ValueError if it is no overlay over known brokers."""
    unknown = sorted(set(_brokers_held(report)) - fleet.members.keys())
    if unknown:
        raise ValueError(f"neither the inventory nor members list {_named(unknown)}")
    return fleet.initial_inventory.bootstrap.target_of(_held_plan(report))


def _is_settled(report: CommandResult, fleet: FleetView) -> bool:
    """Return True if a broker reports an overlay of known brokers, and is not between two."""
    try:
        held_overlay(report, fleet)
    except ValueError:
        return False
    return report.outcome is Outcome.REPORTED and report.reason == STEADY


def _brokers_held(report: CommandResult) -> tuple[str, ...]:
    """Return the brokers of the reported overlay; a single broker has no link that names it."""
    placed = {one.broker for one in report.ring_held}  # If so, links may be between regions.
    named = placed or {end for pair in report.links_held for end in pair}
    return tuple(sorted(named or {report.broker}))


def _held_alive(report: CommandResult | None, fleet: FleetView) -> tuple[str, ...]:
    """Return the known brokers of the reported overlay that are not dead."""
    held = () if report is None else _brokers_held(report)
    members = (fleet.members[broker] for broker in held if broker in fleet.members)
    return tuple(member.broker for member in members if member.state is not MemberState.DEAD)


def _held_plan(report: CommandResult) -> Plan:
    """Return a completed plan that leads to what the broker reports."""
    links = tuple(sorted(link(a, b) for a, b in report.links_held))
    return Plan(
        "held", 0, report.epoch_to, 0, (), (), (), links, 0.0, 0.0, PlanPhase.COMPLETED, (),
        ring_target=report.ring_held, brokers_target=_brokers_held(report),
    )  # fmt: skip


def _answer_text(report: CommandResult | None, fleet: FleetView) -> str:
    """Return a broker's answer as text, the same for the same overlay."""
    if report is None:
        return "no answer"
    if report.outcome is not Outcome.REPORTED:
        return f"refused, {report.reason}"
    try:
        overlay = f"overlay {held_overlay(report, fleet).digest}"
    except ValueError as error:
        overlay = f"no overlay of this inventory ({error})"
    return f"epoch {report.epoch_to}, {overlay}, {report.reason}"


def _named(brokers: list[str]) -> str:
    return name_some(brokers, BROKERS_NAMED_MAX)


def _take_term(leadership: Leadership, settings: ControllerSettings) -> HeldTerm:
    """Wait for the lead. Raises RecoveryRefusedError if another controller holds it."""
    deadline_s = time.monotonic() + LEAD_S_MAX
    while time.monotonic() < deadline_s:
        leadership.poll()
        held = leadership.take_over(settings.clock.now_ms()) if leadership.is_chosen else None
        if held is not None:
            return held
        time.sleep(POLL_S)
    raise RecoveryRefusedError(
        f"Leadership was not acquired within {LEAD_S_MAX:g} s: "
        f"{leadership.newest.leader or 'no known controller'} had it last. "
        "Stop all controllers of the namespace first, and check that Kafka is healthy."
    )


def _ask(term: HeldTerm, fleet: FleetView, settings: ControllerSettings) -> dict[str, CommandResult]:
    """Ask each broker what it holds, and return the answers that came in time; dead and left ones are not asked.

    Nor is one whose agent has no topics: it has not come yet, and a command that cannot be written would block all
    others.
    """
    name, number = f"report-{term.term.term}", term.term.term
    topics = fleet.inventory.broker_topics(settings.namespace)
    existing = {one for topic in (COMMANDS, RESULTS) for one in find_names(settings.kafka, topic, settings.namespace)}
    living = fleet.in_state(MemberState.IN_SERVICE, MemberState.LEAVING, MemberState.JOINING)
    asked = [one for one in living if {topics.name(COMMANDS, one), topics.name(RESULTS, one)} <= existing]
    commands = [Command(name, CommandPhase.REPORT, broker, 0, 0, term=number) for broker in asked]
    answers_by_broker: dict[str, CommandResult] = {}
    with ExitStack() as held:
        letters = held.enter_context(closing(LetterSender(settings.kafka, settings.namespace)))
        since_ms = time.time_ns() // 1_000_000 - int(1000 * LEAD_S_MAX)
        answers: TopicReader[CommandResult] = TopicReader(
            settings.kafka,
            {topics.name(RESULTS, broker): CommandResult for broker in asked},
            since_ms,
            letters.send,
            lambda topic, result: topics.error(topic, result.broker),
        )
        held.callback(answers.close)
        deadline_s, asked_s = time.monotonic() + ANSWER_S_MAX, 0.0
        while len(answers_by_broker) < len(commands) and time.monotonic() < deadline_s:
            if time.monotonic() - asked_s > ASK_AGAIN_S:
                asked_s = time.monotonic()
                term.plans.commit(None, [one for one in commands if one.broker not in answers_by_broker])
            answers_by_broker |= {result.broker: result for result in answers.poll() if result.plan == name}
            time.sleep(POLL_S)
    return {broker: answers_by_broker[broker] for broker in asked if broker in answers_by_broker}


def _store(term: HeldTerm, plan: Plan) -> bool:
    """Store the plan; return False if that takes longer than ANSWER_S_MAX."""
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        if term.plans.commit(plan, ()):
            return True
    return False
