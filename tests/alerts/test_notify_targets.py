"""Who is notified of what, once: grouping, quiet hours, maintenance, blast radius, and what is stored about it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.alerts.alert_desk import AlertDesk
from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.alert_message import message_of
from regraft.alerts.deliver_messages import DeliveryReport
from regraft.alerts.notify_targets import Silencer, notify
from regraft.alerts.quiet_hours import QuietHoursError, parse_quiet_hours
from regraft.alerts.read_rules import parse_rules
from regraft.schemas.alert import Alert, AlertDelivery, AlertStatus, DeliveryState
from regraft.schemas.event import EventKind, Severity

RULES = """
[[rule]]
name = "congestion"
on = "queue.congestion"
above = 10
clear_below = 5
[[rule]]
name = "apart"
on = "queue.length"
above = 10
clear_below = 5
group = false
[[rule]]
name = "incomplete"
on = "window.incomplete"
above = 0.5
clear_below = 0.0
[[rule]]
name = "sleepy"
on = "plan.aborted"
severity = "critical"
quiet = "12:00-14:00 UTC"
[[rule]]
name = "blast"
on = "blast_radius"
brokers_above = 3
share_above = 0.5
severity = "critical"
"""
BOOK = parse_rules(RULES)
TARGETS = ("one", "two")


def clock(text: str, zone: str = "Europe/Berlin") -> int:
    """Return the time at which clocks in a zone show this."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


NOON = clock("2026-03-10T12:00")
NIGHT = clock("2026-03-10T23:30")
MORNING = clock("2026-03-11T07:00")


def alert(rule: str = "congestion", subject: str = "b01", *, cleared: bool = False, **more: object) -> Alert:
    """Return an alert that was raised at noon."""
    status = AlertStatus.CLEARED if cleared else AlertStatus.RAISED
    severity = BOOK.by_name[rule].severity
    brokers = tuple(subject.split(">")) if rule in ("congestion", "apart") else ()
    made = Alert(rule, subject, severity, status, NOON, NOON, f"{rule} at {subject}", 1.0, brokers)
    return msgspec.structs.replace(made, **more)


def notified(
    alerts: Iterable[Alert], now_ms: int = NOON, *, quiet: str = "", maintained: Sequence[str] = (), blast: bool = False
) -> tuple[list[str], dict[str, Alert]]:
    """Return the titles of the messages, and the alerts afterwards by key."""
    before = {each.key: each for each in alerts}
    found = notify(before.values(), now_ms, Silencer(BOOK.by_name, quiet), maintained, TARGETS, is_blast=blast)
    return [message.title for message in found.messages], before | {each.key: each for each in found.changed}


def test_an_alert_is_reported_once() -> None:
    """The alert stores the message, the time and the targets; its end goes to the same targets."""
    titles, after = notified([alert()])
    assert titles == ["congestion raised (warning): b01"]
    stored = after["congestion/b01"]
    assert (stored.told, stored.told_ms) == ("raised", NOON)
    assert stored.deliveries == tuple(AlertDelivery(target, DeliveryState.PENDING, NOON) for target in TARGETS)
    assert notified(after.values())[0] == []
    ended = msgspec.structs.replace(stored, status=AlertStatus.CLEARED, changed_ms=NOON + 1)
    titles, after = notified([ended])
    assert titles == ["congestion cleared (warning): b01"]
    assert notified(after.values())[0] == []


def test_the_end_of_an_unreported_alert_is_not_sent() -> None:
    """An alert that was raised and cleared before anybody was notified is never sent."""
    assert notified([alert(cleared=True)])[0] == []


def test_many_alerts_of_one_rule_are_one_message_that_names_ten() -> None:
    """Twelve congested queues make one message with ten names and the number of the rest, unless grouping is off."""
    grouped = [alert(subject=f"b{number:02}") for number in range(12)]
    message = message_of(sorted(grouped, key=lambda one: one.subject), NOON)
    assert message.title == "congestion raised (warning): 12 subjects"
    assert "b09 and 2 more" in message.text
    assert message.text.endswith("- and 2 more")
    document = message.document()
    assert (document["count"], len(document["alerts"])) == (12, 10)
    assert notified(grouped)[0] == [message.title]
    assert len(notified([alert("apart", f"b{number}") for number in range(3)])[0]) == 3


def test_a_message_has_an_id_derived_from_its_alerts() -> None:
    """The same alerts always give the same id; an alert that is raised again gets another."""
    assert message_of([alert()], NOON).message == message_of([alert()], NIGHT).message
    later = alert(raised_ms=NOON + 1, changed_ms=NOON + 1)
    assert message_of([later], NOON).message != message_of([alert()], NOON).message


def test_quiet_hours_hold_back_warnings_until_they_end() -> None:
    """At 23:30 a warning waits and a critical alert does not; at 07:00 what is still active is reported, once."""
    quiet = "22:00-07:00 Europe/Berlin"
    both = [alert(), alert("blast", "overlay")]
    titles, after = notified(both, NIGHT, quiet=quiet)
    assert titles == ["blast raised (critical): overlay"]
    assert after["congestion/b01"].silenced_by == f"quiet hours {quiet}"
    titles, after = notified(after.values(), MORNING, quiet=quiet)
    assert titles == ["congestion raised (warning): b01"]
    assert after["congestion/b01"].silenced_by == ""
    assert notified(after.values(), MORNING + 1000, quiet=quiet)[0] == []


def test_an_end_in_the_quiet_hours_is_reported_after_them_unless_it_is_raised_again() -> None:
    """Those who were notified learn of the end in the morning, unless the alert is active again by then."""
    quiet = "22:00-07:00 Europe/Berlin"
    _, after = notified([alert()], NOON)
    ended = msgspec.structs.replace(after["congestion/b01"], status=AlertStatus.CLEARED, changed_ms=NIGHT)
    titles, after = notified([ended], NIGHT, quiet=quiet)
    assert titles == []
    assert notified(after.values(), MORNING, quiet=quiet)[0] == ["congestion cleared (warning): b01"]
    again = msgspec.structs.replace(ended, status=AlertStatus.RAISED, changed_ms=NIGHT + 1)
    assert notified([again], MORNING, quiet=quiet)[0] == []


def test_a_rule_may_have_its_own_quiet_hours_whatever_its_severity() -> None:
    """The rule's own hours apply to critical alerts, too."""
    at_one = clock("2026-03-10T13:00", "UTC")
    titles, after = notified([alert("sleepy", "plans")], at_one)
    assert titles == []
    assert after["sleepy/plans"].silenced_by == "quiet hours 12:00-14:00 UTC"
    assert len(notified(after.values(), clock("2026-03-10T14:00", "UTC"))[0]) == 1


def test_maintenance_silences_the_broker_and_its_links_and_nothing_else() -> None:
    """With b01 in maintenance, its queue and the link end of b02 towards it are silent; b02's own queue is reported."""
    titles, after = notified([alert("apart", subject) for subject in ("b01", "b02>b01", "b02")], maintained=["b01"])
    assert titles == ["apart raised (warning): b02"]
    assert after["apart/b01"].silenced_by == "maintenance of b01"
    assert after["apart/b02>b01"].is_silenced
    assert len(notified(after.values())[0]) == 2, "notified when it is over"


def test_an_alert_about_windows_is_silenced_only_if_all_its_brokers_are_in_maintenance() -> None:
    """Batches missing only from brokers in maintenance are expected; from any other broker they are not."""
    both = alert("incomplete", "windows", brokers=("b01", "b02"))
    assert len(notified([both], maintained=["b01"])[0]) == 1
    assert notified([both], maintained=["b01", "b02"])[0] == []


def test_a_blast_radius_holds_back_single_alerts_until_it_is_over() -> None:
    """One message instead of many; the end of what was reported before is sent as usual."""
    before = alert("apart", "b09", told="raised", cleared=True)
    titles, after = notified([alert(), alert("blast", "overlay"), before], blast=True)
    assert titles == ["blast raised (critical): overlay", "apart cleared (warning): b09"]
    assert after["congestion/b01"].silenced_by == "blast radius"
    assert notified(after.values())[0] == ["congestion raised (warning): b01"]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (
            "22:00-07:00 Europe/Berlin",
            ["2026-03-10T22:00", "2026-03-11T06:59"],
            ["2026-03-10T21:59", "2026-03-11T07:00"],
        ),
        ("12:30-13:00 Europe/Berlin", ["2026-03-10T12:30"], ["2026-03-10T12:29", "2026-03-10T13:00"]),
    ],
)
def test_quiet_hours_may_span_midnight(text: str, inside: list[str], outside: list[str]) -> None:
    """The start time is included, the end time is not."""
    hours = parse_quiet_hours(text)
    assert all(hours.covers(clock(each)) for each in inside)
    assert not any(hours.covers(clock(each)) for each in outside)


def test_quiet_hours_follow_the_clocks_of_their_zone_through_daylight_saving_time() -> None:
    """22:00 in Berlin is 21:00 UTC in winter and 20:00 in summer."""
    hours = parse_quiet_hours("22:00-07:00 Europe/Berlin")
    assert [hours.covers(clock(f"2026-{month}-15T20:30", "UTC")) for month in ("01", "07")] == [False, True]


@pytest.mark.parametrize(
    "text", ["22-7 UTC", "22:00-07:00", "25:00-07:00 UTC", "07:00-07:00 UTC", "22:00-07:00 Nowhere/X"]
)
def test_invalid_quiet_hours_are_reported(text: str) -> None:
    """The message quotes the value."""
    with pytest.raises(QuietHoursError, match=text):
        parse_quiet_hours(text)


def desk_of(*known: Alert) -> AlertDesk:
    """Return a desk with two targets and these alerts."""
    engine = AlertEngine(BOOK, NOON, known)
    return AlertDesk(engine, Silencer(BOOK.by_name), TARGETS, "lab", "lab.alerts")


def states(alert: Alert) -> list[str]:
    return [str(one.state) for one in alert.deliveries]


def test_every_step_of_a_delivery_is_stored_before_the_next() -> None:
    """Notified and queued; sending and granted; sent. A failure is a dead letter with the reason."""
    desk = desk_of(alert())
    desk.notify(NOON)
    batch = desk.stored()
    assert [(each.kind, each.subject) for each in batch.events] == [(EventKind.ALERT_RAISED, "b01")]
    assert [offer.target for offer in batch.offers] == ["one", "two"]
    message = batch.offers[0].message
    desk.report(DeliveryReport(message, "one", DeliveryState.SENDING), NOON)
    batch = desk.stored()
    assert states(batch.alerts["congestion/b01"]) == ["sending", "pending"]
    assert [grant.target for grant in batch.grants] == ["one"]
    desk.report(DeliveryReport(message, "one", DeliveryState.SENT), NOON)
    desk.report(DeliveryReport(message, "two", DeliveryState.FAILED, "no connection"), NOON)
    batch = desk.stored()
    assert states(batch.alerts["congestion/b01"]) == ["sent", "failed"]
    (letter,) = batch.letters
    assert letter.reason == "two did not receive the message: no connection"
    assert letter.topic == "lab.alerts"
    assert desk.batch.is_empty


def delivered(*states: DeliveryState, subject: str = "b01") -> Alert:
    deliveries = tuple(AlertDelivery(target, state, NOON) for target, state in zip(TARGETS, states, strict=True))
    return alert(subject=subject, told="raised", told_ms=NOON, message="m", deliveries=deliveries)


def test_a_restart_sends_pending_messages_and_leaves_uncertain_ones() -> None:
    """Killed at each step: pending is sent, sending becomes uncertain and is not repeated, sent is done."""
    pending, sending, sent = DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.SENT
    for before, after, offered in (
        ((pending, pending), ["pending", "pending"], ["one", "two"]),
        ((sending, pending), ["uncertain", "pending"], ["two"]),
        ((sent, sending), ["sent", "uncertain"], []),
        ((sent, DeliveryState.FAILED), ["sent", "failed"], []),
    ):
        desk = desk_of(delivered(*before))
        desk.resume(NOON, resend_uncertain=False)
        batch = desk.stored()
        stored = batch.alerts.get("congestion/b01", delivered(*before))
        assert (states(stored), [offer.target for offer in batch.offers]) == (after, offered)
        assert all(offer.message.message == "m" for offer in batch.offers)
        assert desk.notify(NOON) == []


def test_a_receiver_that_recognises_keys_may_get_uncertain_messages_again() -> None:
    """With resend_uncertain it is sent again under the same id; a grouped message is reassembled from its alerts."""
    group = [delivered(DeliveryState.SENDING, DeliveryState.SENT, subject=f"b0{number}") for number in (2, 1)]
    desk = desk_of(*group)
    desk.resume(NOON, resend_uncertain=True)
    (offer,) = desk.stored().offers
    assert (offer.message.message, offer.target) == ("m", "one")
    assert [each.subject for each in offer.message.alerts] == ["b01", "b02"]


def test_a_report_about_an_older_message_is_ignored() -> None:
    """The alert was cleared and reported again meanwhile: its deliveries are those of the newer message."""
    desk = desk_of(alert())
    desk.notify(NOON)
    message = desk.stored().offers[0].message
    ended = msgspec.structs.replace(
        desk._engine.book.alerts["congestion/b01"], status=AlertStatus.CLEARED, changed_ms=NIGHT
    )
    desk._engine.book.put(ended)
    desk.notify(NIGHT)
    desk.stored()
    desk.report(DeliveryReport(message, "one", DeliveryState.SENT), NIGHT)
    assert desk.batch.alerts == {}


@given(st.lists(st.sampled_from(["raise", "clear", "quiet", "loud", "tell"]), max_size=30))
def test_notifications_alternate_whatever_happens(steps: list[str]) -> None:
    """Raised and cleared alternate; once the quiet hours are over, the last message matches the alert's status."""
    stored = alert(cleared=True)
    statuses: list[str] = []
    quiet = ""
    for number, step in enumerate([*steps, "loud", "tell"]):
        if step in ("raise", "clear"):
            status = AlertStatus.RAISED if step == "raise" else AlertStatus.CLEARED
            stored = msgspec.structs.replace(stored, status=status, changed_ms=NIGHT + number)
        elif step == "tell":
            titles, after = notified([stored], NIGHT, quiet=quiet)
            statuses += [title.split()[1] for title in titles]
            stored = after[stored.key]
        else:
            quiet = "22:00-07:00 Europe/Berlin" if step == "quiet" else ""
    assert statuses == ["raised", "cleared"] * (len(statuses) // 2) + ["raised"] * (len(statuses) % 2)
    assert (stored.status is AlertStatus.RAISED) == (len(statuses) % 2 == 1)
    assert Severity.WARNING is stored.severity
