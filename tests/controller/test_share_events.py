"""Events that one sender causes without end: it gets its share, the rest is counted and reported once."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.decide.loop_state import EVENTS_MAX, LoopState
from regraft.controller.loop.noted_events import SHARE_EVENTS_MAX, SPAN_MS, EventShare, NotedEvents
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.schemas.audit import GivenOrder
from regraft.schemas.bounds import TEXT_LENGTH_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.event import ENDED, SENDER, AdaptationEvent, EventKind, Severity
from regraft.schemas.member import BrokerFacts
from regraft.schemas.order import Order, OrderKind
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.controller.scripted_windows import WINDOW_MS
from tests.controller.test_announcements import announce
from tests.controller.test_announcements import fleet_of as announcing_fleet
from tests.controller.test_control_loop import INVENTORY
from tests.controller.test_membership import fleet_of, quiet

LEFT_OUT = "regraft_controller_events_left_out_total"


class Kept:
    """Keeps the events that are passed on."""

    def __init__(self) -> None:
        self.events: list[AdaptationEvent] = []

    def emit(self, event: AdaptationEvent) -> None:
        """Keep one."""
        self.events.append(event)


def changed(broker: str, time_ms: int, text: str = "", **details: str) -> AdaptationEvent:
    return AdaptationEvent(broker, EventKind.MEMBER_CHANGED, Severity.INFO, time_ms, text, details=details)


def test_a_broker_that_causes_events_without_end_displaces_none_of_an_honest_one() -> None:
    """The loop keeps the last events for the live view; alerts and people read the topic."""
    kept, metrics, state = Kept(), LoopMetrics(), LoopState.at_start(INVENTORY)
    events = NotedEvents(kept, state, metrics)
    events.emit(changed("b01", 0, "honest"))
    for _ in range(5 * EVENTS_MAX):
        events.emit(changed("b04", 1, "hostile"))
    events.emit(changed("b01", 2, "honest"))
    assert [event.text for event in state.events if event.subject == "b01"] == ["honest", "honest"]
    assert [event.text for event in kept.events if event.subject == "b01"] == ["honest", "honest"]
    told = [event.text for event in kept.events if event.subject == "b04"]
    assert told == ["hostile"] * (SHARE_EVENTS_MAX - 1) + [
        "hostile (the 20th within 60 s; further ones are only counted)"
    ]
    left_out = metrics.registry.get_sample_value(LEFT_OUT, {"kind": "member_changed"})
    assert left_out == 5 * EVENTS_MAX - SHARE_EVENTS_MAX


def test_the_next_event_of_a_sender_says_once_how_many_were_left_out() -> None:
    """Even if the text of that event is as long as readers accept."""
    share = EventShare()
    for _ in range(SHARE_EVENTS_MAX + 7):
        share.shared(changed("b04", 0))
    first, second = (share.shared(changed("b04", SPAN_MS, "x" * TEXT_LENGTH_MAX)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.text.endswith("(7 events like this one before it were only counted)")
    assert decode(encode(first), AdaptationEvent) == first
    assert second.text == "x" * TEXT_LENGTH_MAX


def test_the_end_of_what_was_reported_is_always_reported() -> None:
    """Otherwise an alert about it would stay; the end of what was not reported is only counted, too."""
    share, shown = EventShare(), []
    for number in range(3 * SHARE_EVENTS_MAX):
        for details in ({}, {ENDED: "1"}):
            event = changed(f"x{number}", 0, **{SENDER: "agent noisy"}, **details)
            shown += [(event.subject, ENDED in event.details)] if share.shared(event) else []
    begun = [subject for subject, is_over in shown if not is_over]
    assert begun == [subject for subject, is_over in shown if is_over]
    assert len(begun) == SHARE_EVENTS_MAX


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("b00", "b01", "b02")), st.integers(0, 90_000)), max_size=300))
def test_what_is_passed_on_and_what_is_left_out_is_what_was_reported(found: list[tuple[str, int]]) -> None:
    """And of no broker more than its share of a span."""
    share, kept = EventShare(), []
    for broker, time_ms in sorted(found, key=lambda one: one[1]):
        event = share.shared(changed(broker, time_ms))
        kept += [event] if event is not None else []
    assert len(kept) + share.left_out.total() == len(found)
    for broker, span in {(event.subject, event.time_ms // SPAN_MS) for event in kept}:
        one = [event for event in kept if (event.subject, event.time_ms // SPAN_MS) == (broker, span)]
        assert len(one) <= SHARE_EVENTS_MAX


def test_a_broker_that_restarts_in_every_window_is_reported_within_its_share() -> None:
    """A controller that takes part sees all of its incarnations; people hear of a bounded number."""
    fleet = fleet_of()
    fleet.run_windows(6)
    windows = 3 * SPAN_MS // WINDOW_MS
    for _ in range(windows):
        fleet.restart("b04")
        fleet.run_windows(1)
    told = _count_about(fleet, "b04")
    spans = windows * WINDOW_MS // SPAN_MS + 1
    assert SHARE_EVENTS_MAX < told <= spans * SHARE_EVENTS_MAX
    assert fleet.metrics.registry.get_sample_value(LEFT_OUT, {"kind": "member_changed"})


def _count_about(fleet: ScriptedFleet, broker: str) -> int:
    found = fleet.ports.events.emitted
    return sum(event.kind is EventKind.MEMBER_CHANGED and event.subject == broker for event in found)


def test_an_agent_is_one_sender_whatever_it_names_the_brokers_that_it_announces() -> None:
    """Another agent's broker is reported; the noisy one's are in the list of those that ask."""
    fleet = announcing_fleet(announced_max=3 * SHARE_EVENTS_MAX)
    for number in range(3 * SHARE_EVENTS_MAX):
        announce(fleet, f"n{number:02d}", BrokerFacts(agent="noisy"))
    announce(fleet, "x01", BrokerFacts(agent="calm"))
    told = [event for event in fleet.ports.events.emitted if event.kind is EventKind.JOIN_REQUESTED]
    assert len([event for event in told if event.subject.startswith("n")]) == SHARE_EVENTS_MAX
    assert told[-1].subject == "x01"
    assert told[-1].details == {SENDER: "agent calm"}


def test_whoever_forges_orders_is_one_sender_and_hides_no_genuine_order() -> None:
    """Whatever subjects the forged ones name, those of the genuine order among them."""
    fleet = ScriptedFleet(INVENTORY, quiet, settings_of())
    for number in range(10):
        forged = [Order(f"b{one}", OrderKind.MAINTAIN, "ann", "", fleet.now_ms) for one in range(number)]
        fleet.ports.orders.records.extend(GivenOrder(one, refusal="it is unsigned") for one in forged)
        fleet.tick()
    fleet.order(OrderKind.MAINTAIN, "b01")
    fleet.tick()
    assert len(fleet.events_of(EventKind.ORDER_REFUSED)) == SHARE_EVENTS_MAX
    assert len(fleet.events_of(EventKind.ORDER_TAKEN)) == 1
    assert msgspec.structs.asdict(fleet.ports.audit.entries[-1])["outcome"] == "accepted"
