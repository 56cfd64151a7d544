"""For each kind of rule: what raises its alert, what clears it, and what does neither."""

import msgspec
import pytest

from regraft.alerts.gather_windows import ROWS_WAIT_MS
from regraft.alerts.read_rules import load_rules
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import ENDED, EventKind, Severity
from regraft.schemas.member import Member, MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import ClientMove, Plan, PlanPhase, Proposal, Verdict
from regraft.schemas.state import BrokerClock
from regraft.schemas.texts import window_name
from tests.alerts.scripted_alerts import (
    BEGIN_MS,
    BROKERS,
    Scene,
    StampedRecord,
    at,
    book,
    event,
    plan,
    queue_of,
    window,
    words,
)

CONGESTION = """
[[rule]]
name = "congestion"
on = "queue.congestion"
above = 10
for_windows = 3
clear_below = 5
clear_for_windows = 2
"""


def congested(*values: float) -> list[list]:  # type: ignore[type-arg]
    return [[queue_of("b01", congestion=value)] for value in values]


def test_congestion_must_last_and_end_for_a_number_of_windows() -> None:
    """Two windows above tau are not enough, three are; one window below the lower bound does not clear it, two do."""
    scene = Scene(book(CONGESTION))
    assert scene.windows(congested(11, 12, 3, 11, 12, 13, 14, 4, 11, 4, 3, 2)) == [
        "6 congestion b01 raised",
        "11 congestion b01 cleared",
    ]
    raised, cleared = scene.changes
    assert (raised.value, raised.raised_ms, cleared.raised_ms) == (13, at(5), at(5))


def test_between_the_bounds_an_alert_does_not_change() -> None:
    """A figure between the two bounds neither raises nor clears, however long it stays there."""
    scene = Scene(book(CONGESTION))
    assert scene.windows(congested(*[9] * 10)) == []
    assert scene.windows(congested(11, 11, 11, *[7] * 10), first=10) == ["13 congestion b01 raised"]


def test_each_queue_has_its_own_alert_and_scope_selects_them() -> None:
    """Queues of brokers and of both ends of a link are separate subjects; a rule can be limited to one sort."""
    queues = [queue_of("b01", congestion=20), queue_of("b01", "b02", congestion=20), queue_of("b02", "b01")]
    scene = Scene(book(CONGESTION))
    assert scene.windows([queues] * 3) == ["3 congestion b01 raised", "3 congestion b01>b02 raised"]
    assert {alert.brokers for alert in scene.changes} == {("b01",), ("b01", "b02")}
    for of, subject in (("brokers", "b01"), ("links", "b01>b02")):
        assert [alert.subject for alert in Scene(book(f'{CONGESTION}of = "{of}"')).feed(*three(queues))] == [subject]


def three(queues: list) -> list[StampedRecord]:  # type: ignore[type-arg]
    return [stamped for number in range(3) for stamped in window(number, queues)]


def test_the_alert_of_a_queue_that_is_no_longer_reported_ends() -> None:
    """A link that a plan removed has no queue; its alert ends after as many windows as a low figure would take."""
    scene = Scene(book(CONGESTION))
    scene.windows(congested(20, 20, 20))
    assert scene.windows([[], []], first=3) == ["5 congestion b01 cleared"]
    assert "no longer reported" in scene.changes[-1].text


def test_missing_rows_leave_the_state_of_their_queues_unknown() -> None:
    """If a window lacks rows, a queue without a row is neither congested nor fine: its state is unknown."""
    scene = Scene(book(CONGESTION))
    scene.windows(congested(20, 20, 20))
    for number in (3, 4, 5):
        scene.feed(*window(number, [], rows_missing=1))
        assert scene.engine.judge_windows(at(number) + 100 + ROWS_WAIT_MS) == []
    assert scene.engine.windows_judged == 6


def test_rows_may_come_after_their_marker() -> None:
    """Rows and markers have separate topics, in any order: a window is judged once it has all rows of its marker."""
    scene = Scene(book(CONGESTION.replace("for_windows = 3", "for_windows = 1")))
    row, marker = window(0, [queue_of("b01", congestion=20)])
    assert scene.feed(marker) == []
    assert words(scene.feed(row)) == ["1 congestion b01 raised"]
    assert scene.feed(row, marker) == [], "a window that is written again changes nothing"


def test_growth_needs_a_factor_a_length_and_every_window() -> None:
    """A queue that grows from 20 to 80 in three windows raises; one that pauses, shrinks or stays short does not."""
    rules = book('[[rule]]\nname = "growth"\non = "queue.growth"\nfor_windows = 3\nfactor = 3.0\nlength_min = 50\n')
    for lengths, expected in (
        ((20, 40, 60, 80), ["4 growth b01 raised"]),
        ((20, 40, 30, 80), []),
        ((1, 5, 10, 20), []),
        ((40, 50, 60, 70), []),
        ((20, 40, 60, 80, 90, 80), ["4 growth b01 raised", "6 growth b01 cleared"]),
        ((20, 20, 60, 80, 81, 82, 82), ["5 growth b01 raised", "7 growth b01 cleared"]),
    ):
        assert Scene(rules).windows([[queue_of("b01", length=length)] for length in lengths]) == expected


def test_a_broker_that_falls_silent_is_reported_and_so_is_its_return() -> None:
    """Two windows without a batch raise, two with one clear; a broker that was never seen is not missed."""
    scene = Scene(book('[[rule]]\nname = "silent"\non = "broker.silent"\nfor_windows = 2\nclear_for_windows = 2\n'))
    rest = BROKERS[:-1]
    found = [scene.feed(*window(number, brokers=rest if 1 <= number <= 4 else BROKERS)) for number in range(7)]
    assert [words(each) for each in found] == [
        [], [], ["3 silent b04 raised"], [], [], [], ["7 silent b04 cleared"],
    ]  # fmt: skip
    assert found[2][0].brokers == ("b04",)


def test_a_broker_that_stays_silent_is_eventually_forgotten() -> None:
    """After forget_after_s a silent broker is considered gone; if it came back, it would be watched again."""
    scene = Scene(book('[[rule]]\nname = "silent"\non = "broker.silent"\nfor_windows = 1\nforget_after_s = 3\n'))
    scene.feed(*window(0))
    found = [alert for number in range(1, 9) for alert in scene.feed(*window(number, brokers=BROKERS[:-1]))]
    assert words(found) == ["2 silent b04 raised", "6 silent b04 cleared"]
    assert "gone for good" in found[-1].text


def test_incomplete_windows_name_the_brokers() -> None:
    """The figure is the largest share of batches that a broker lacks; every broker that lacks any is named."""
    rules = book('[[rule]]\nname = "incomplete"\non = "window.incomplete"\nabove = 0.3\nclear_below = 0.0\n')
    scene = Scene(rules)
    assert scene.feed(*window(0, lost={"b01": 1})) == []
    (raised,) = scene.feed(*window(1, lost={"b01": 1, "b03": 2}))
    assert (raised.value, raised.brokers, raised.subject) == (0.5, ("b01", "b03"), "windows")
    assert words(scene.feed(*window(2))) == ["3 incomplete windows cleared"]


def test_late_windows_and_late_rows() -> None:
    """A window written 30 s after its end is late; rows that were dropped as late are counted."""
    rules = book(
        '[[rule]]\nname = "late"\non = "window.late"\nabove = 20\nclear_below = 5\n'
        '[[rule]]\nname = "rows"\non = "window.late_rows"\nabove = 0\nclear_below = 0\n'
    )
    scene = Scene(rules)
    found = scene.feed(*window(0, written_after_ms=30_000, late_rows=7))
    assert [(alert.rule, alert.value) for alert in found] == [("late", 30.0), ("rows", 7.0)]
    assert len(scene.feed(*window(1))) == 2


def test_missing_windows_are_found_by_the_clock() -> None:
    """A minute without windows raises; new windows clear it, reading old ones does not."""
    rules = book('[[rule]]\nname = "missing"\non = "window.missing"\nfor_s = 60\nclear_for_windows = 2\n')
    scene = Scene(rules)
    scene.feed(*window(0))
    assert scene.tick(60) == []
    assert words(scene.tick(61.5)) == ["61.5 missing windows raised"]
    assert scene.tick(62) == []
    scene.feed(*window(61))
    assert scene.tick(62.5) == []
    scene.feed(*window(62))
    assert words(scene.tick(63.5)) == ["63.5 missing windows cleared"]


def test_the_first_window_may_take_longer() -> None:
    """A fresh start is no alarm: stages start and brokers announce themselves; a start that hangs is one."""
    scene = Scene(book('[[rule]]\nname = "missing"\non = "window.missing"\nfor_s = 60\n'))
    assert scene.tick(599) == []
    assert words(scene.tick(600)) == ["600 missing windows raised"]


@pytest.mark.parametrize(
    ("on", "kind"),
    [("plan.aborted", EventKind.PLAN_ABORTED), ("gain.missed", EventKind.GAIN_MISSED)],
)
def test_events_count_within_a_span(on: str, kind: EventKind) -> None:
    """Two events within ten seconds raise; twenty seconds without one clear."""
    rules = book(
        f'[[rule]]\nname = "r"\non = "{on}"\ncount = 2\nspan_s = 10\nclear_after_s = 20\ntext = "{{detail}}"\n'
    )
    scene = Scene(rules)
    assert scene.feed(event(kind, 0), event(kind, 11)) == []
    (raised,) = scene.feed(event(kind, 15, text="broker b03 refused"))
    assert (raised.subject, raised.value, raised.text) == ("plans", 2.0, "broker b03 refused")
    scene.feed(event(kind, 20))
    assert scene.tick(39) == []
    assert words(scene.tick(40)) == ["40 r plans cleared"]


def test_an_epoch_mismatch_is_active_while_it_is_reported() -> None:
    """The default rule names the brokers, and clears ten minutes after the last event."""
    scene = Scene(load_rules(None))
    (raised,) = scene.feed(event(EventKind.EPOCH_MISMATCH, 0, "epochs", text="b03 at epoch 0"))
    assert (raised.rule, raised.subject, raised.severity) == ("epoch_mismatch", "epochs", Severity.CRITICAL)
    assert "b03 at epoch 0" in raised.text
    scene.feed(event(EventKind.EPOCH_MISMATCH, 300, "epochs"))
    assert "epoch_mismatch" not in " ".join(words(scene.tick(899)))
    assert words(scene.tick(900)) == ["900 epoch_mismatch epochs cleared"]


def test_errors_of_the_cost_model_are_one_alert_for_each_subject() -> None:
    """Corrected links and a model that counters contradict are two alerts; each clears half an hour after its event."""
    scene = Scene(load_rules(None))
    (links,) = scene.feed(event(EventKind.MODEL_DRIFT, 0, "links", text="b0-b1 4 -> 40"))
    (counted,) = scene.feed(event(EventKind.MODEL_DRIFT, 900, "messages", text="counted messages cost +30%"))
    assert [(one.rule, one.subject, one.severity) for one in (links, counted)] == [
        ("model_drift", "links", Severity.WARNING),
        ("model_drift", "messages", Severity.WARNING),
    ]
    assert "b0-b1 4 -> 40" in links.text
    assert "1800 model_drift links cleared" in words(scene.tick(1_800))
    assert words(scene.tick(2_700)) == ["2700 model_drift messages cleared"]


def test_each_restarted_service_is_one_alert() -> None:
    """A restart raises even if the service is back within seconds; ten minutes without another one clear it."""
    scene = Scene(load_rules(None))
    (raised,) = scene.feed(
        event(EventKind.SERVICE_RESTARTED, 0, "streaming", text="streaming: it was killed by signal 9")
    )
    assert (raised.rule, raised.subject, raised.severity) == ("service_restarted", "streaming", Severity.WARNING)
    assert "it was killed by signal 9" in raised.text
    assert scene.feed(event(EventKind.SERVICE_RESTARTED, 300, "streaming")) == []
    assert "service_restarted" not in " ".join(words(scene.tick(899)))
    assert words(scene.tick(900)) == ["900 service_restarted streaming cleared"]


def test_a_broker_that_asks_to_join_is_an_alert_until_it_is_a_member_or_stops_asking() -> None:
    """Older records of a broker, such as those of its earlier membership, do not clear the alert."""
    scene = Scene(load_rules(None))
    (x1,) = scene.feed(event(EventKind.JOIN_REQUESTED, 10, "x1", text="x1 asks to join: `regraft members add x1`"))
    scene.feed(event(EventKind.JOIN_REQUESTED, 11, "x2"))
    assert (x1.rule, x1.subject, x1.severity) == ("join_asked", "x1", Severity.INFO)
    assert "`regraft members add x1`" in x1.text
    assert scene.feed(joining("x1", 5)) == []
    assert scene.feed(event(EventKind.JOIN_REQUESTED, 20, "x1")) == []
    assert words(scene.feed(joining("x1", 30))) == ["30 join_asked x1 cleared"]
    assert words(scene.feed(event(EventKind.JOIN_REQUESTED, 700, "x2", over="1"))) == ["700 join_asked x2 cleared"]
    assert words(scene.feed(event(EventKind.JOIN_REQUESTED, 800, "x2"))) == ["800 join_asked x2 raised"]


def joining(broker: str, second: float) -> StampedRecord:
    """Return a member's record with this time, whenever it is read."""
    time_ms = BEGIN_MS + int(second * 1000)
    return StampedRecord(Member(broker, MemberState.JOINING, time_ms, "add by ann"), time_ms)


def test_a_forged_order_raises_and_a_late_one_does_not() -> None:
    """Both are refused and reported as events; only the forged one comes from somebody without the right to order."""
    scene = Scene(load_rules(None))
    assert scene.feed(event(EventKind.ORDER_REFUSED, 0, "plan-1")) == []
    (raised,) = scene.feed(event(EventKind.ORDER_REFUSED, 1, "plan-1", text="it is unsigned", forged="1"))
    assert (raised.rule, raised.subject) == ("order_forged", "orders")
    assert "it is unsigned" in raised.text


def test_a_rolled_back_plan_counts_once_however_often_it_is_stored() -> None:
    """Every phase of a plan is a record; a plan that undoes another still counts once."""
    scene = Scene(book('[[rule]]\nname = "back"\non = "plan.taken_back"\ncount = 2\n'))
    phases = (PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.COMPLETED)
    assert scene.feed(*(plan(2, phase, 5, undoes="plan-1") for phase in phases)) == []
    assert len(scene.feed(plan(4, PlanPhase.ACTIVATING, 9, undoes="plan-3"))) == 1


def test_a_full_plan_counts_once_although_two_records_report_it() -> None:
    """Proposals left over by the limit appear both in the event and in the plan of the same window."""
    scene = Scene(book('[[rule]]\nname = "limit"\non = "plan.limit"\ncount = 2\n'))
    left = Proposal("p", (("a", "b"),), (("a", "c"),), 9.0, 8.0, 0.1, "", Verdict.CHANGES_PER_PLAN)
    stored = plan(1, PlanPhase.PREPARING, 1)
    assert isinstance(stored.record, msgspec.Struct)
    full = msgspec.structs.replace(stored.record, refused=(left, left))  # type: ignore[type-var]
    refused = event(EventKind.PROPOSAL_REFUSED, 1, window_name(stored.time_ms), changes_per_plan="2")
    assert scene.feed(StampedRecord(full, stored.time_ms), refused) == []
    assert scene.feed(event(EventKind.PROPOSAL_REFUSED, 2, "window-2", degree="1")) == []
    assert len(scene.feed(event(EventKind.PROPOSAL_REFUSED, 3, "window-3", changes_per_plan="1"))) == 1


def test_a_stalled_plan_is_reported_by_the_controller_or_by_the_clock_and_ends_with_the_next_phase() -> None:
    """Either way there is one alert for the plan; the plan's next phase clears it."""
    scene = Scene(book('[[rule]]\nname = "stalled"\non = "plan.stalled"\nfor_s = 30\n'))
    scene.feed(plan(1, PlanPhase.DRAINING, 0))
    (raised,) = scene.feed(event(EventKind.PLAN_STALLED, 10, text="b03 does not answer"))
    assert raised.subject == "plan-1"
    assert scene.feed(event(EventKind.PLAN_STALLED, 20)) == []
    assert scene.feed(plan(1, PlanPhase.DRAINING, 0)) == [], "the same phase, stored again"
    assert words(scene.feed(plan(1, PlanPhase.RETIRING, 25))) == ["25 stalled plan-1 cleared"]
    assert scene.feed(event(EventKind.PLAN_STALLED, 10)) == [], "an event of an earlier phase"
    assert words(scene.tick(55)) == ["55 stalled plan-1 raised"]
    assert words(scene.feed(plan(1, PlanPhase.COMPLETED, 60))) == ["60 stalled plan-1 cleared"]
    assert scene.tick(1000) == []


def test_a_plan_that_waits_for_approval_is_not_stalled() -> None:
    """In a dry run a proposed plan may wait forever."""
    scene = Scene(book('[[rule]]\nname = "stalled"\non = "plan.stalled"\nfor_s = 30\n'))
    scene.feed(plan(1, PlanPhase.PROPOSED, 0))
    assert scene.tick(10_000) == []


def test_flapping_is_reported_for_links_and_clients() -> None:
    """A link removed and added again has flipped once, removed again twice; a client back at its old home once."""
    rules = book('[[rule]]\nname = "flapping"\non = "flapping"\nflips = 2\nspan_s = 100\nclear_after_s = 50\n')
    scene = Scene(rules)
    link = (("b01", "b02"),)
    there, back = (ClientMove("p1", "b01", "b02"),), (ClientMove("p1", "b02", "b01"),)
    assert scene.feed(plan(1, PlanPhase.ACTIVATING, 0, links_removed=link, moves=there)) == []
    assert scene.feed(plan(2, PlanPhase.ACTIVATING, 10, links_added=link, moves=back)) == []
    assert scene.feed(plan(2, PlanPhase.COMPLETED, 10, links_added=link, moves=back)) == [], "the same plan"
    assert words(scene.feed(plan(3, PlanPhase.ACTIVATING, 20, links_removed=link))) == [
        "20 flapping link b01-b02 raised"
    ]
    assert words(scene.feed(plan(4, PlanPhase.ACTIVATING, 30, moves=there))) == ["30 flapping client p1 raised"]
    assert words(scene.tick(70)) == ["70 flapping link b01-b02 cleared"]
    assert words(scene.tick(80)) == ["80 flapping client p1 cleared"]


def test_a_return_after_the_span_is_not_flapping() -> None:
    """A client that returns home in the evening does not flap."""
    rules = book('[[rule]]\nname = "flapping"\non = "flapping"\nflips = 1\nspan_s = 100\n')
    scene = Scene(rules)
    scene.feed(plan(1, PlanPhase.ACTIVATING, 0, moves=(ClientMove("p1", "b01", "b02"),)))
    assert scene.feed(plan(2, PlanPhase.ACTIVATING, 101, moves=(ClientMove("p1", "b02", "b01"),))) == []


def test_an_aborted_plan_changes_nothing_and_does_not_flap() -> None:
    """Only executed plans count."""
    scene = Scene(book('[[rule]]\nname = "flapping"\non = "flapping"\nflips = 1\n'))
    scene.feed(plan(1, PlanPhase.ACTIVATING, 0, links_removed=(("b01", "b02"),)))
    assert scene.feed(plan(2, PlanPhase.ABORTED, 1, links_added=(("b01", "b02"),))) == []


BLAST = (
    '[[rule]]\nname = "silent"\non = "broker.silent"\nfor_windows = 1\n'
    '[[rule]]\nname = "blast"\non = "blast_radius"\nbrokers_above = 10\nshare_above = 0.5\nbrokers_min = 2\n'
    'clear_below = 0.9\nclear_for_windows = 2\ntext = "{value:.0f} of {limit:g}: {detail}"\n'
)


def test_blast_radius_counts_silence_congestion_and_maintenance_together() -> None:
    """Three of five brokers are affected, more than half: one silent, one congested, one in maintenance."""
    scene = Scene(book(BLAST + CONGESTION.replace("for_windows = 3", "for_windows = 1")))
    scene.feed(*window(0))
    scene.feed(StampedRecord(Order("b02", OrderKind.MAINTAIN, "ana", "", BEGIN_MS), BEGIN_MS))
    assert words(scene.feed(*window(1, [queue_of("b01", congestion=20)]))) == ["2 congestion b01 raised"]
    found = scene.feed(*window(2, [queue_of("b01", congestion=20)], BROKERS[:-1]))
    assert words(found) == ["3 silent b04 raised", "3 blast overlay raised"]
    assert found[-1].text == "3 of 2.5: b01, b02, b04"
    assert scene.engine.is_blast
    assert words(scene.feed(*window(3, [queue_of("b01", congestion=20)]))) == ["4 silent b04 cleared"]
    assert scene.feed(*window(4, [queue_of("b01", congestion=20)]))[-1].rule == "blast"
    assert not scene.engine.is_blast


def test_the_calm_of_a_blast_radius_is_counted_across_a_restart() -> None:
    """How long it has been calm does not follow from any single window, so it is stored: two windows clear it, one
    before and one after the restart.
    """
    rules = book(BLAST)
    scene = Scene(rules)
    scene.feed(*window(0))
    assert "2 blast overlay raised" in words(scene.feed(*window(1, brokers=BROKERS[:2])))
    scene.feed(*window(2))
    assert (scene.engine.calm_windows, scene.engine.is_blast) == (1, True)
    fresh = Scene(rules, scene.engine.book.alerts.values(), scene.engine.calm_windows)
    assert words(fresh.feed(*window(3))) == ["4 blast overlay cleared"]


def test_records_of_a_newer_regraft_are_distinguished_from_garbage() -> None:
    """A record too new for its reader raises one alert, which names what to upgrade, and no other."""
    rules = '[[rule]]\nname = "letters"\non = "dead_letters"\n[[rule]]\nname = "newer"\non = "records.newer"\n'
    scene = Scene(book(rules + 'text = "{detail}"\n'))
    with pytest.raises(UndecodableRecordError) as refused:
        decode(b"\x00" + (699).to_bytes(4, "big"), Plan)
    scene.feed(StampedRecord(DeadLetter("regraft.plans", 0, 7, str(refused.value), b"", BEGIN_MS), BEGIN_MS))
    assert [(alert.rule, alert.subject) for alert in scene.changes] == [("newer", "regraft.plans")]
    assert scene.changes[0].text.endswith(
        "upgrade alerts, brokers, controller, operator, recorder first (docs/upgrades.md)"
    )


def test_dead_letters_are_reported_by_topic_except_our_own() -> None:
    """A message that could not be delivered is a dead letter too; an alert about it would cause the next one."""
    scene = Scene(book('[[rule]]\nname = "letters"\non = "dead_letters"\n'))
    letter = DeadLetter("regraft.telemetry", 0, 7, "it starts with ff", b"\xff", BEGIN_MS)
    assert words(scene.feed(StampedRecord(letter, BEGIN_MS))) == ["0 letters regraft.telemetry raised"]
    ours = msgspec.structs.replace(letter, topic="regraft.alerts")
    assert scene.feed(StampedRecord(ours, BEGIN_MS)) == []


def test_an_alert_without_a_rule_is_cleared_at_the_start() -> None:
    """Nothing else would ever clear it."""
    scene = Scene(book(CONGESTION))
    scene.windows(congested(20, 20, 20))
    other = Scene(book(BLAST), scene.engine.book.alerts.values())
    (cleared,) = other.engine.drop_old_rules(BEGIN_MS)
    assert words([cleared]) == ["0 congestion b01 cleared"]


def test_a_flood_of_subjects_stays_bounded() -> None:
    """A bounded number of cleared alerts is kept; the oldest are forgotten first."""
    rules = book('[[rule]]\nname = "stalled"\non = "plan.stalled"\nfor_s = 3000\n')
    scene = Scene(rules)
    for number in range(1, 1_302):
        scene.feed(
            event(EventKind.PLAN_STALLED, number, f"plan-{number}"), plan(number, PlanPhase.ABORTED, number + 0.5)
        )
    forgotten = scene.engine.forget()
    assert len(forgotten) == 301
    assert forgotten[0] == "stalled/plan-1"
    assert len(scene.engine.book.alerts) == 1_000


def test_default_rules_have_every_kind_and_are_sound() -> None:
    """The file that newcomers copy uses every source that a rule can have."""
    from regraft.alerts.rule_kinds import KIND_OF

    assert {rule.on for rule in load_rules().rules} == set(KIND_OF)


def test_the_broker_with_the_wrong_clock_is_named_with_its_offset() -> None:
    """A clock that is ahead or behind raises after two windows, a correct one never; correcting it clears the alert."""
    rules = book(
        '[[rule]]\nname = "clock"\non = "broker.clock"\nabove = 0.5\nfor_windows = 2\nclear_below = 0.25\n'
        'clear_for_windows = 1\ntext = "The clock of {subject} is {detail}."\n'
    )
    scene = Scene(rules)

    def changes_of(number: int, ahead_ms: int) -> list[str]:
        delays_ms = {"b01": 20 - ahead_ms, "b02": 20 + ahead_ms, "b03": 20, "b04": 22, "b05": 15}
        clocks = [BrokerClock(name, ms, 4 if ms < -1_000 else 0) for name, ms in delays_ms.items()]
        return words(scene.feed(*window(number, clocks=clocks)))

    assert changes_of(0, 3_000) == []
    assert changes_of(1, 3_000) == ["2 clock b01 raised", "2 clock b02 raised"]
    assert [alert.text for alert in scene.changes] == [
        "The clock of b01 is 2.980 s ahead of Kafka's, 4 of its batches were refused because of it.",
        "The clock of b02 is 3.000 s behind Kafka's, or its path to Kafka is slow.",
    ]
    assert changes_of(2, 300) == []
    assert changes_of(3, 10) == ["4 clock b01 cleared", "4 clock b02 cleared"]


@pytest.mark.parametrize(
    ("kind", "subject", "rule"),
    [
        (EventKind.SHARE_CHANGED, "telemetry", "telemetry_sampled"),
        (EventKind.BROKER_OVERLOADED, "b03", "broker_overloaded"),
    ],
)
def test_a_lasting_condition_is_an_alert_until_an_event_ends_it(kind: EventKind, subject: str, rule: str) -> None:
    """Sampled telemetry and a broker above its cap: further events belong to the same alert, the last one clears it."""
    scene = Scene(load_rules(None))
    (raised,) = scene.feed(event(kind, 0, subject, text="windows are late"))
    assert (raised.rule, raised.subject, raised.severity) == (rule, subject, Severity.WARNING)
    assert "windows are late" in raised.text
    assert scene.feed(event(kind, 60, subject)) == []
    assert words(scene.feed(event(kind, 120, subject, **{ENDED: "true"}))) == [f"120 {rule} {subject} cleared"]


def test_an_alert_has_the_advice_at_the_end_of_its_event() -> None:
    """The reason of a restart may have 400 characters, around them are the service, the exit code and the log."""
    scene = Scene(load_rules(None))
    text = f"controller, restart 1 of this run: it exited with code 1 ({'x' * 380} `regraft recover`): see out/a.log"
    (raised,) = scene.feed(event(EventKind.SERVICE_RESTARTED, 0, "controller", text=text))
    assert raised.text.endswith("`regraft recover`): see out/a.log")
