"""GRAPE by messages (Cheung09, section 4): Fig. 3, retrieval, and its selection compared with the central planner's."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.tests.pop_grape.traced_overlays import PUBLISHER, Traced, Wish, fig_1, random_traced, state_of, traced
from regraft.api.brokers import Notification
from regraft.api.planning import TreeContext
from regraft_lab.planners.relocate_publisher_grape import PrioritySettings, relocate_publisher_grape
from regraft_lab.pop_grape.distributed_grape import BrokerMonitor, GrapeBroker, TraceSession
from regraft_lab.pop_grape.distributed_selection import GrapeSettings, Selection
from regraft_lab.pop_grape.distributed_traces import (
    BrokerReport,
    Gathered,
    MessageKind,
    SendTrace,
    TraceAnswer,
    TraceRequest,
    marked,
)
from tests.overlay.small_overlays import inventory_of, line_of

IDLE = BrokerMonitor(("b1", "b2", "b3"), 0.0, 1.0, (0.0, 0.0, 0.0, 0.0))


def notification(sequence: int) -> Notification:
    """Return a notification of p."""
    return Notification(PUBLISHER, sequence, 0.0, "b", 0, {"topic": "x"}, 100)


def test_fig_3_bit_vector() -> None:
    """In session 212 message 212 + d sets bit d when it is delivered here: 212, 213, 215 and 218 make 1001011."""
    session = TraceSession(212, "b1")
    for sequence in (212, 213, 215, 218):
        session.note(sequence, (), 1)
    session.note(217, ("b2",), 0)  # forwarded, but not delivered here
    assert session.bits == 0b1001011
    assert (session.deliveries, session.peers) == (4, {"b2"})


def test_a_session_is_named_by_its_first_notification() -> None:
    """The first traced notification gives the id, G_threshold are traced in all, and then none until the decision."""
    broker = GrapeBroker("b", 3, lambda: IDLE)
    found = []
    for sequence in range(212, 217):
        noted = broker.mark(notification(sequence), 0.0)
        if "traceID" in noted.content:
            found.append((sequence, noted.content["traceID"]))
            effects = broker.on_notification(None, noted, (), 1)
    assert found == [(212, "212"), (213, "212"), (214, "212")]
    assert effects == [
        Gathered(PUBLISHER, 3, (BrokerReport("b", IDLE.neighbours, 0b111, 3, 0.0, 1.0, IDLE.output_ms),))
    ]
    broker.resume(PUBLISHER)
    assert broker.mark(notification(217), 0.0).content["traceID"] == "217"


def test_a_request_goes_to_neighbours_that_got_any_and_answers_are_merged() -> None:
    """A broker forwards the request, waits for all answers, puts its own report first, and drops the session (4.1)."""
    broker = GrapeBroker("b", 100, lambda: IDLE)
    for sequence, peers in ((7, ("b2",)), (9, ("b3", "b2"))):
        broker.on_notification("b1", marked(notification(sequence), "7"), peers, 2)
    asked = TraceRequest(PUBLISHER, 7)
    assert broker.on_message("b1", asked) == [SendTrace("b2", asked), SendTrace("b3", asked)]
    beyond = [BrokerReport(name, (), 1, 1, 0.0, 1.0, (0.0,)) for name in ("b2", "b3")]
    assert broker.on_message("b3", TraceAnswer(PUBLISHER, 7, 100, (beyond[1],))) == []
    (answer,) = broker.on_message("b2", TraceAnswer(PUBLISHER, 7, 100, (beyond[0],)))
    assert isinstance(answer, SendTrace)
    assert isinstance(answer.message, TraceAnswer)
    assert answer.peer == "b1"
    assert [report.broker for report in answer.message.reports] == ["b", "b2", "b3"]
    assert (answer.message.reports[0].bits, answer.message.reports[0].deliveries) == (0b101, 4)
    assert broker.session(PUBLISHER, 7) is None
    assert broker.memory.bytes_now == 0


def test_a_report_weighs_about_100_bytes() -> None:
    """4.1: ids of around 10 characters, three neighbours on average, default settings."""
    report = BrokerReport("b", IDLE.neighbours, 0, 0, 0.0, 1.0, IDLE.output_ms)
    assert report.size_bytes(100) == pytest.approx(100, abs=10)


def test_fig_1_by_messages() -> None:
    """Each of the 7 other brokers is asked and answers once per session; all want all, so delay moves p to B6."""
    traced = fig_1(GrapeSettings(threshold=2, priority="delay", pings=False))
    traced.publish([0.0, 0.0])
    assert len(traced.messages(TraceRequest)) == len(traced.messages(TraceAnswer)) == 7
    assert [peer for _, peer, _ in traced.messages(TraceAnswer)].count("B1") == 3
    assert traced.overlay.decisions[0].target == "B6"
    assert traced.end().is_clean
    assert traced.overlay.homes == {PUBLISHER: "B6"}


def test_load_moves_a_publisher_to_the_broker_that_sinks_all() -> None:
    """Load follows the traffic, delay the deliveries: the paper's example of its clustered workload."""
    wishes = [Wish("b00", -1.0), *[Wish("b04", 0.7)] * 9]
    targets = {}
    for priority in ("load", "delay"):
        settings = GrapeSettings(threshold=4, priority=priority, pings=False)
        found = traced(inventory_of(line_of(5), {}), "b02", wishes, settings)
        found.publish([0.1, 0.8, 0.2, 0.9])
        targets[priority] = found.overlay.decisions[0].target
        assert found.end().is_clean
    assert targets == {"load": "b00", "delay": "b04"}


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_session_takes_a_request_and_an_answer_for_each_broker_it_reached(seed: int) -> None:
    """Whatever the order of messages, all data of a session is cleared afterwards."""
    rng = random.Random(seed)
    threshold = rng.randrange(1, 6)
    traced = random_traced(rng, GrapeSettings(threshold=threshold))
    traced.publish([rng.random() for _ in range(threshold)], pause_ms=rng.choice([1.0, 3.0, 30.0]))
    traced.overlay.virtual.run_for(3_000.0)
    reached = reached_brokers(traced, threshold)
    assert len(traced.messages(TraceRequest)) == len(traced.messages(TraceAnswer)) == len(reached) - 1
    assert len(traced.overlay.decisions) == 1
    assert traced.end().is_clean
    assert all(tracer.memory.bytes_now == 0 for tracer in traced.overlay.tracers.values())


def reached_brokers(traced: Traced, count: int) -> set[str]:
    """Return the home and all brokers on the paths to those that want one of the first notifications."""
    tree, home = traced.overlay.inventory.bootstrap, traced.overlay.decisions[0].home
    found = {home}
    for value in traced.values[:count]:
        for broker, wanted in traced.got_by(value).items():
            if wanted:
                found.update(tree.path(home, broker))
    return found


@given(st.integers(0, 2**32), st.sampled_from(["load", "delay"]), st.sampled_from([1, 25, 50, 100]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_brokers_choose_as_the_central_planner_does(seed: int, priority: str, weight: int, link_delays: bool) -> None:
    """From the same notifications, gathered by messages between the brokers concerned or by windows of all brokers."""
    rng = random.Random(seed)
    count = rng.randrange(1, 8)
    asked = GrapeSettings(count, priority, weight, link_delays, pings=False)
    traced = random_traced(rng, asked, same_at_a_broker=True)
    home = traced.overlay.homes[PUBLISHER]
    traced.publish([rng.random() for _ in range(count)])
    wanted = PrioritySettings(
        grape_priority=priority, grape_weight=weight, grape_notifications_min=count, link_delays=link_delays
    )
    proposals = relocate_publisher_grape(state_of(traced, home), wanted, TreeContext(), rng)
    moves = [move for proposal in proposals for move in proposal.moves]
    assert [decision.target for decision in traced.overlay.decisions] == [moves[0].home_to if moves else home]


def test_pings_keep_a_publisher_near_its_machine() -> None:
    """Half of the round trip to a candidate counts in its delay (Alg. 1); all answers are waited for."""
    targets = []
    for far_ms in (7.0, 30.0):
        costs = {(f"b0{a}", f"b0{b}"): 7.0 if a - b == 1 else far_ms for a in range(5) for b in range(a)}
        settings = GrapeSettings(threshold=1, priority="delay")
        found = traced(inventory_of(line_of(5), costs), "b02", [Wish("b04", -1.0)], settings)
        found.publish([0.0])
        (decision,) = found.overlay.decisions
        targets.append(decision.target)
        assert decision.pinged_ms == 2 * far_ms
        # There and back to b03 and b04; the machine itself is at b02, the publisher's home.
        assert found.overlay.tally.messages[MessageKind.PING] == 4
        assert found.end().is_clean
    # b03 is as far by ping as by link; what counts is whether b04 is nearer than over b03.
    assert targets == ["b04", "b03"]


def test_load_pings_only_the_remaining_candidates() -> None:
    """With load first, round trips are only requested if several candidates are left (4.2), and then decide."""
    brokers = ("b0", "b1", "b2")
    reports = [
        BrokerReport(name, tuple(other for other in near if other), bits, 4, 0.0, 1.0, (0.0,) * (len(near) + 1))
        for name, near, bits in (("b1", ("b0", "b2"), 0), ("b0", ("b1",), 0b1111), ("b2", ("b1",), 0b1111))
    ]
    asked = GrapeSettings(threshold=4)
    # All three brokers see the same traffic wherever the publisher is.
    selection = Selection(asked, reports)
    assert selection.tree.brokers == brokers
    assert selection.messages.tolist() == [12.0, 12.0, 12.0]
    assert selection.to_ping == brokers
    assert selection.target({"b0": 9.0, "b1": 9.0, "b2": 1.0}) == "b2"
    assert Selection(replace(asked, pings=False), reports).to_ping == ()
    alone = [replace(reports[0], bits=0), reports[1], replace(reports[2], bits=0b0001)]
    assert Selection(asked, alone).to_ping == ()
    assert Selection(asked, alone).target({}) == "b0"


def test_settings_without_a_session_are_refused() -> None:
    """Each error has the value and the limit."""
    assert GrapeSettings().errors() == []
    errors = GrapeSettings(threshold=0, priority="both", weight_percent=101).errors()  # type: ignore[arg-type]
    assert [error.split(" is ")[0] for error in errors] == ["threshold", "weight_percent", "priority"]
    with pytest.raises(ValueError, match="threshold is 0"):
        GrapeBroker("b", 0, lambda: IDLE)
    with pytest.raises(ValueError, match="weight_percent is -1"):
        fig_1(GrapeSettings(weight_percent=-1))


def test_a_publisher_without_subscribers_stays() -> None:
    """A session that reached no other broker is decided at once, by the home's own report."""
    found = traced(inventory_of(line_of(3), {}), "b01", [], GrapeSettings(threshold=2))
    found.publish([0.0] * 4)
    assert [decision.target for decision in found.overlay.decisions] == ["b01", "b01"]
    assert found.sent == []
    assert np.all(Selection(GrapeSettings(), [BrokerReport("b", (), 0, 0, 0.0, 1.0, (0.0,))]).messages == 0)
