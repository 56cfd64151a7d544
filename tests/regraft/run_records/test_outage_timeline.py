"""The timeline of a failed site: the emulator's notes, the controller's events, and the time until the repair."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.report_page.report import build_report
from regraft.run_records.outage_timeline import OutageTimeline, outage_timeline
from regraft.run_records.summary import failures, summarise
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase
from tests.regraft.canned_run import START_MS, small_plan, small_run

NOTES = [[START_MS + 25_000, "b01, b02: died"], [START_MS + 50_000, "b01, b02: restarted, empty"]]


def repair_plan() -> Plan:
    """Return a repair begun 12 s after the death and in force 2 s later."""
    plan = small_plan()
    proposal = msgspec.structs.replace(plan.proposals[0], planner="repair")
    history = (
        PhaseChange(PlanPhase.PREPARING, START_MS + 37_000, "b01 and b02 are dead"),
        PhaseChange(PlanPhase.RETIRING, START_MS + 39_000, ""),
    )
    return msgspec.structs.replace(plan, proposals=(proposal,), history=history, brokers_lost=("b01", "b02"))


def test_the_story_is_in_order_of_time_with_its_sources() -> None:
    """Deaths come from the emulator, the repair from its plan; it is timed from the death until it is in force."""
    timeline = outage_timeline(NOTES, (), (repair_plan(), small_plan()), 12.5)
    assert [(line.source, line.text.split(": ")[-1]) for line in timeline.lines] == [
        ("emulator", "died"),
        ("controller", "preparing"),
        ("controller", "retiring"),
        ("emulator", "restarted, empty"),
    ]
    assert timeline.deaths == 1
    assert timeline.repairs_ms == (14_000,)


def test_without_outages_there_is_no_story() -> None:
    """Ordinary plans are not part of one."""
    assert outage_timeline((), (), (small_plan(),)) == OutageTimeline()
    assert "No broker failed, joined or left" in build_report(small_run())


def test_losses_by_deaths_are_shown_without_failing_the_run_and_others_fail_it() -> None:
    """The verdict names the excused losses."""
    ledger = LedgerSnapshot(16, 34, 31, lost=3, excused=3, final=True, lost_by_reason={"lost_with_broker": 3})
    run = replace(small_run(), ledger=ledger, outages=outage_timeline(NOTES, (), (repair_plan(),), 12.5))
    summary = summarise(run)
    assert failures(summary) == []
    assert (summary["broker_deaths"], summary["repairs"], summary["death_to_whole_ms_p50"]) == (1, 1, 14_000)
    page = build_report(run)
    for text in ("b01, b02: restarted, empty", "lost with broker", "except for 3 deliveries", "12.5"):
        assert text in page
    (reason,) = failures(summarise(replace(run, ledger=replace(ledger, excused=2))))
    assert reason.startswith("1 deliveries lost")


def test_a_repair_is_timed_from_the_death_that_it_repairs() -> None:
    """Other outages do not shorten it; of several deaths the earliest counts."""
    notes = [
        [START_MS + 1_000, "b01: died"],
        [START_MS + 2_000, "b01: restarted, empty"],
        [START_MS + 20_000, "b02: died"],
        [START_MS + 25_000, "b01: died"],
        [START_MS + 30_000, "b03: hangs"],
        [START_MS + 38_000, "b01: died"],
    ]
    assert outage_timeline(notes, (), (repair_plan(),)).repairs_ms == (19_000,)


def test_alerts_are_counted_by_rule_and_not_by_message() -> None:
    """Two brokers in one message are two alerts; disturbances of stages are shown next to the outages."""
    details = {"rule": "broker_dead", "message": "m1", "count": "2", "subjects": "b01, b02"}
    raised = AdaptationEvent("broker_dead", EventKind.ALERT_RAISED, Severity.CRITICAL, START_MS, "two", "", details)
    cleared = msgspec.structs.replace(raised, kind=EventKind.ALERT_CLEARED, details=details | {"count": "1"})
    timeline = outage_timeline(NOTES, (raised, cleared, cleared), (), by_kind={"death": 1, "kill kafka": 2})
    assert (timeline.alerts_raised, timeline.alerts_cleared) == ({"broker_dead": 2}, {"broker_dead": 2})
    assert timeline.by_kind == {"death": 1, "kill kafka": 2}
