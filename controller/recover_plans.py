"""Build the log of plans anew from what the brokers hold, where it was lost or is behind them.

In: the stored plans and what each broker reports. Out: one plan that leads to where all brokers are, shown first and
written when asked to. It works in a term of its own, so no controller leads meanwhile. The only place beside
:mod:`controller.run_controller` with a clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, closing

import msgspec

from controller.controller_settings import ControllerSettings
from controller.execute.carry_out_plan import TERM_LEAP_MAX
from controller.ports.kafka_links import LetterSender, TopicReader
from controller.ports.leadership import HeldTerm, Leadership
from controller.state.compare_epochs import BROKERS_NAMED_MAX
from controller.state.plan_log import PlanLog
from infra.stack_error import StackError
from overlay.configuration import link
from overlay.inventory import Inventory
from overlay.overlay_configuration import OverlayConfiguration
from schemas.command import Command, CommandPhase, CommandResult, Outcome
from schemas.plan import PhaseChange, Plan, PlanPhase
from schemas.topics import RESULTS

LEAD_S_MAX = 60.0
ANSWER_S_MAX = 20.0
ASK_AGAIN_S = 2.0
TURN_S = 0.05
TERMS_MAX = 3  # Attempts with a term above what brokers have heard of.
STEADY = "steady"


class RecoveryRefusedError(StackError):
    """Say why the plans cannot be built anew, and which broker says what."""


def recover_plans(settings: ControllerSettings, *, is_written: bool) -> Plan | None:
    """Return the plan that brings the log to where the brokers are, None when it is there already.

    It is stored if ``is_written``. Raises RecoveryRefusedError, InventoryError, and UnreadableRecordError for a stored
    plan that cannot be read.
    """
    inventory = Inventory.load(settings.inventory_path)
    agent_of, name = inventory.broker_topics(settings.namespace).agent_of, f"recover, {settings.instance_name}"
    with ExitStack() as held:
        seat = Leadership(settings.kafka, settings.namespace, name, settings.session_ms, agent_of)
        held.callback(seat.close)
        for _ in range(TERMS_MAX):
            term = _take_term(seat, settings)
            held.callback(term.plans.close)
            stored = term.plans.load() or []
            reports, most = _ask(term, inventory, settings), term.term.term + TERM_LEAP_MAX
            heard = max((report.term for report in reports.values() if report.term < most), default=0)
            if heard <= term.term.term:
                break
            seat.note_term(heard)
        plan = recovered_plan(PlanLog(inventory, stored), inventory, reports, settings.clock.now_ms(), term.term.term)
        if plan is not None and is_written and not _store(term, plan):
            raise RecoveryRefusedError("Kafka has not taken the plan: try again when it is well.")
        return plan


def recovered_plan(
    log: PlanLog, inventory: Inventory, reports: Mapping[str, CommandResult], now_ms: int, term: int
) -> Plan | None:
    """Return the plan from what is stored to what all brokers hold, None when that is in force by the log.

    Raises RecoveryRefusedError when brokers are missing, do not agree, are between two overlays, or are not ahead.
    """
    said: dict[str, list[str]] = defaultdict(list)
    for broker in inventory.brokers:
        said[_told(reports.get(broker), inventory)].append(broker)
    answer = reports.get(inventory.brokers[0])
    if len(said) > 1 or answer is None or answer.outcome is not Outcome.REPORTED or answer.reason != STEADY:
        parts = [f"{_named(brokers)}: {what}" for what, brokers in said.items()]
        raise RecoveryRefusedError(
            "What is in force cannot be told, as not all brokers hold one overlay and nothing else. "
            + "; ".join(parts)
            + ". Bring those that are elsewhere to the overlay of the others, or start all brokers anew, and try again."
        )
    target, present = held_overlay(answer, inventory), log.present
    if (target.epoch, target.digest) == (present.epoch, present.digest):
        return None
    if target.epoch < log.epoch_next:
        raise RecoveryRefusedError(
            f"All brokers are at epoch {target.epoch}, and the stored plans go to epoch {log.epoch_next - 1}, with "
            f"{present.epoch} in force: no plan is missing. Brokers that have started at another overlay than that in "
            "force are to be started again there; emulated ones do so by themselves."
        )
    plan = msgspec.structs.replace(
        _held_plan(answer),
        plan=answer.plan_held or f"plan-{target.epoch}",
        epoch_from=present.epoch,
        window_end_ms=now_ms,
        history=(
            PhaseChange(PlanPhase.COMPLETED, now_ms, f"recovered from what all {len(inventory.brokers)} brokers hold"),
        ),
        term=term,
    )
    return target.as_target(plan, present)


def held_overlay(report: CommandResult, inventory: Inventory) -> OverlayConfiguration:
    """Return the overlay that a broker reports. Raises ValueError when that is none over the inventory's brokers."""
    return inventory.bootstrap.target_of(_held_plan(report))


def _held_plan(report: CommandResult) -> Plan:
    """Return a plan that is over and leads to what the broker reports."""
    links = tuple(sorted(link(a, b) for a, b in report.links_held))
    return Plan(
        "held", 0, report.epoch_to, 0, (), (), (), links, 0.0, 0.0, PlanPhase.COMPLETED, (),
        ring_target=report.ring_held,
    )  # fmt: skip


def _told(report: CommandResult | None, inventory: Inventory) -> str:
    """Return what a broker says, the same text for the same overlay."""
    if report is None:
        return "no answer"
    if report.outcome is not Outcome.REPORTED:
        return f"refused, {report.reason}"
    try:
        overlay = f"overlay {held_overlay(report, inventory).digest}"
    except ValueError as error:
        overlay = f"no overlay of this inventory ({error})"
    return f"epoch {report.epoch_to}, {overlay}, {report.reason}"


def _named(brokers: list[str]) -> str:
    rest = len(brokers) - BROKERS_NAMED_MAX
    return ", ".join(brokers[:BROKERS_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _take_term(seat: Leadership, settings: ControllerSettings) -> HeldTerm:
    """Wait for the lead. Raises RecoveryRefusedError when another controller holds it."""
    deadline_s = time.monotonic() + LEAD_S_MAX
    while time.monotonic() < deadline_s:
        seat.poll()
        held = seat.take_over(settings.clock.now_ms()) if seat.is_chosen else None
        if held is not None:
            return held
        time.sleep(TURN_S)
    raise RecoveryRefusedError(
        f"The lead could not be had in {LEAD_S_MAX:g} s: {seat.newest.leader or 'nobody that is known'} had it last. "
        "Stop all controllers of the namespace first, and check that Kafka is well."
    )


def _ask(term: HeldTerm, inventory: Inventory, settings: ControllerSettings) -> dict[str, CommandResult]:
    """Ask each broker what it holds, and return what came in time."""
    name, number = f"report-{term.term.term}", term.term.term
    commands = [Command(name, CommandPhase.REPORT, broker, 0, 0, term=number) for broker in inventory.brokers]
    found: dict[str, CommandResult] = {}
    with ExitStack() as held:
        letters = held.enter_context(closing(LetterSender(settings.kafka, settings.namespace)))
        since_ms = time.time_ns() // 1_000_000 - int(1000 * LEAD_S_MAX)
        topics = inventory.broker_topics(settings.namespace)
        answers: TopicReader[CommandResult] = TopicReader(
            settings.kafka,
            dict.fromkeys(topics.names(RESULTS), CommandResult),
            since_ms,
            letters.bury,
            lambda topic, result: topics.fault(topic, result.broker),
        )
        held.callback(answers.close)
        deadline_s, asked_s = time.monotonic() + ANSWER_S_MAX, 0.0
        while len(found) < len(commands) and time.monotonic() < deadline_s:
            if time.monotonic() - asked_s > ASK_AGAIN_S:
                asked_s = time.monotonic()
                term.plans.commit(None, [one for one in commands if one.broker not in found])
            found |= {result.broker: result for result in answers.poll() if result.plan == name}
            time.sleep(TURN_S)
    return {broker: found[broker] for broker in inventory.brokers if broker in found}


def _store(term: HeldTerm, plan: Plan) -> bool:
    """Store the plan, within a bound."""
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        if term.plans.commit(plan, ()):
            return True
    return False
