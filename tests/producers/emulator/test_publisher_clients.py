"""Publishers: what they hand to which home before, during and after a move, and from one stay to the next."""

from __future__ import annotations

from collections import deque

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientRequest,
    LeaveRequest,
    Notification,
    UnadvertiseRequest,
)
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.publisher_clients import HANDED_OVER_AT_ONCE_MAX, PublisherClients
from regraft.producers.emulator.user_clients import topic_filter


class Homes:
    """Records the requests to each home."""

    def __init__(self) -> None:
        self.published = 0
        self.dead: set[str] = set()
        self.asked: list[tuple[str, ClientRequest | Notification]] = []
        self.env = simpy.Environment()
        self.publishers = PublisherClients(
            self.env,
            Ledger(1_000.0),
            lambda home, request: self.asked.append((home, request)),
            lambda *_: None,
            lambda *_: None,
            may_accept=lambda home: home not in self.dead,
        )

    def connect(self, home: str, connection: int) -> None:
        """Let the publisher connect and be confirmed."""
        self.publishers.connect("p", home, topic_filter("a"))
        assert self.publishers.allow("p", connection)
        self.asked.clear()

    def publish(self) -> None:
        """Let it publish once."""
        self.publishers.publish("p", {"topic": "a", "number": self.published}, 10)
        self.published += 1

    def publish_in_time(self, count: int, pause_ms: float) -> None:
        """Let it publish ``count`` times, with a pause before each."""
        for _ in range(count):
            self.env.run(self.env.now + pause_ms)
            self.publish()

    def take_asked(self) -> list[tuple[str, ClientRequest | int]]:
        """Return the requests since the last call, with sequence numbers for notifications, in order of publishing."""
        asked, self.asked = self.asked, []
        numbered = [one for _, one in asked if isinstance(one, Notification)]
        assert [one.content["number"] for one in numbered] == [one.sequence for one in numbered]
        return [(home, one.sequence if isinstance(one, Notification) else one) for home, one in asked]


def connected() -> Homes:
    homes = Homes()
    homes.connect("b1", 0)
    return homes


def test_what_waits_between_two_homes_goes_to_the_next_one_in_order() -> None:
    homes = connected()
    homes.publish()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    homes.publish()
    assert homes.take_asked() == [("b1", 0), ("b1", LeaveRequest("p", 0))]
    homes.publishers.take("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b2", 1), ("b2", 2), ("b2", 3)]


def test_a_publisher_accepted_before_it_must_leave_continues_at_once() -> None:
    homes = connected()
    homes.publishers.take("p", 0, "b2")
    homes.publish()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b1", 0), ("b1", LeaveRequest("p", 0)), ("b2", 1)]


def test_a_publisher_that_ends_between_two_homes_publishes_what_waited_and_ends_at_the_next() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    homes.publishers.disconnect("p")
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]
    homes.publishers.take("p", 0, "b2")
    assert homes.take_asked() == [("b2", 0), ("b2", UnadvertiseRequest("p", 0))]
    assert homes.publishers.home_of("p") is None


def test_a_stay_that_the_next_home_has_taken_ends_at_both_homes() -> None:
    """What the old home sends to the next one may be lost with a broker between the two."""
    homes = connected()
    homes.publishers.take("p", 0, "b2")
    homes.publishers.disconnect("p")
    over = UnadvertiseRequest("p", 0)
    assert homes.take_asked() == [("b1", over), ("b2", over)]
    homes.publishers.connect("p", "b1", topic_filter("a"))
    homes.publishers.take("p", 1, "b2")
    homes.take_asked()
    assert homes.publishers.drop("p", 1, may_return=True)  # Its home ended the stay itself.
    assert homes.take_asked() == [
        ("b2", UnadvertiseRequest("p", 1)), ("b1", AdvertiseRequest("p", topic_filter("a"), 2))
    ]  # fmt: skip
    homes.publishers.take("p", 2, "b2")
    homes.publishers.leave("p", 2, "b2")
    homes.publishers.take("p", 2, "b2")  # Repeated at the end of the plan.
    homes.take_asked()
    homes.publishers.disconnect("p")
    assert homes.take_asked() == [("b2", UnadvertiseRequest("p", 2))]


def test_messages_about_an_earlier_stay_change_nothing() -> None:
    """They may still be on their way when the publisher has reconnected; its sequence numbers continue."""
    homes = connected()
    homes.publish()
    homes.publishers.disconnect("p")
    homes.publishers.connect("p", "b1", topic_filter("a"))
    assert homes.take_asked()[-1] == ("b1", AdvertiseRequest("p", topic_filter("a"), 1))
    assert not homes.publishers.allow("p", 0)
    assert homes.publishers.allow("p", 1)
    homes.publishers.take("p", 0, "b3")
    homes.publishers.leave("p", 0, "b3")
    assert not homes.publishers.drop("p", 0, may_return=True)
    homes.publish()
    over = UnadvertiseRequest("p", 0)  # A home that takes a past stay is notified of its end, and drops it.
    assert homes.take_asked() == [("b3", over), ("b1", 1)]
    homes.publishers.leave("p", 1, "b2")
    homes.publishers.take("p", 0, "b2")
    assert homes.publishers.is_any_moving
    homes.publishers.take("p", 1, "b2")
    assert homes.publishers.home_of("p") == "b2"


def test_a_publisher_goes_only_to_the_home_it_was_given() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publishers.take("p", 0, "b3")
    assert homes.publishers.is_any_moving
    homes.publishers.take("p", 0, "b2")
    assert homes.publishers.home_of("p") == "b2"


def test_a_publisher_whose_home_dies_goes_to_any_home_that_takes_it() -> None:
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish()
    assert homes.take_asked() == []
    homes.publishers.take("p", 0, "b3")
    assert homes.take_asked() == [("b3", 0)]


def test_a_publisher_that_must_leave_for_a_dead_home_waits_for_one() -> None:
    homes = connected()
    homes.dead.add("b2")
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]
    assert homes.publishers.waiting_count == 1
    homes.publishers.reconnect_waiting("b2")
    assert homes.take_asked() == [("b2", AdvertiseRequest("p", topic_filter("a"), 1))]
    homes.publishers.allow("p", 1)
    assert homes.take_asked() == [("b2", 0)]


def test_a_publisher_whose_stay_is_ended_by_its_home_reconnects_there_in_a_new_one() -> None:
    """Its source need not know: what it publishes meanwhile waits."""
    homes = connected()
    assert homes.publishers.drop("p", 0, may_return=True)
    homes.publish()
    assert homes.take_asked() == [("b1", AdvertiseRequest("p", topic_filter("a"), 1))]
    assert not homes.publishers.allow("p", 1)  # It has published before.
    assert homes.take_asked() == [("b1", 0)]


def test_a_publisher_refused_by_its_home_reconnects_once_that_takes_clients() -> None:
    homes = connected()
    assert homes.publishers.drop("p", 0, may_return=False)
    homes.publish()
    assert not homes.publishers.drop("p", 0, may_return=False)
    assert homes.take_asked() == []
    assert homes.publishers.waiting_count == 1
    homes.publishers.reconnect_waiting("b1")
    homes.publishers.allow("p", 1)
    assert homes.take_asked() == [("b1", AdvertiseRequest("p", topic_filter("a"), 1)), ("b1", 0)]


def test_a_stay_that_is_ended_between_two_homes_while_ending_is_gone() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publishers.disconnect("p")
    assert homes.publishers.drop("p", 0, may_return=True)
    assert homes.publishers.home_of("p") is None
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]


def test_a_returning_publisher_hands_over_little_at_once_and_the_rest_gradually() -> None:
    """The backlog drains at one and a half times its rate, behind it comes what it publishes meanwhile."""
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish_in_time(200, pause_ms=3.0)
    homes.publishers.take("p", 0, "b2")
    assert len(homes.take_asked()) == HANDED_OVER_AT_ONCE_MAX
    homes.publish_in_time(100, pause_ms=3.0)
    assert len(homes.take_asked()) == pytest.approx(150, abs=2)
    assert homes.publishers.kept_count == pytest.approx(200 - HANDED_OVER_AT_ONCE_MAX - 50, abs=2)
    homes.publish_in_time(300, pause_ms=3.0)
    assert homes.publishers.kept_count == 0
    homes.take_asked()
    homes.publish()
    assert homes.take_asked() == [("b2", 600)]


def test_a_publisher_that_leaves_again_while_catching_up_continues_at_the_next_home() -> None:
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish_in_time(60, pause_ms=1.0)
    homes.publishers.take("p", 0, "b2")
    homes.env.run(homes.env.now + 5.0)
    homes.publishers.leave("p", 0, "b3")
    homes.env.run(homes.env.now + 100.0)
    handed = homes.take_asked()
    assert handed[-1] == ("b2", LeaveRequest("p", 0))
    homes.publishers.take("p", 0, "b3")
    homes.env.run(homes.env.now + 100.0)
    assert homes.take_asked() == [("b3", number) for number in range(len(handed) - 1, 60)]


def test_a_publisher_that_ends_while_catching_up_hands_over_everything_first() -> None:
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish_in_time(60, pause_ms=1.0)
    homes.publishers.take("p", 0, "b2")
    homes.publishers.disconnect("p")
    homes.env.run(homes.env.now + 100.0)
    handed = homes.take_asked()
    assert [one for _, one in handed] == [*range(60), UnadvertiseRequest("p", 0)]
    assert homes.publishers.home_of("p") is None


def test_an_ending_publisher_whose_next_home_dies_ends_in_its_next_stay() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    homes.publishers.disconnect("p")
    homes.publishers.lose_home("b2")
    homes.publishers.reconnect_waiting("b2")
    assert not homes.publishers.allow("p", 1)
    assert homes.take_asked()[-2:] == [("b2", 0), ("b2", UnadvertiseRequest("p", 1))]


def test_a_backlog_at_the_end_of_all_traffic_is_never_published() -> None:
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish_in_time(60, pause_ms=1.0)
    homes.publishers.take("p", 0, "b2")
    homes.publishers.stop()
    homes.env.run(homes.env.now + 100.0)
    assert len(homes.take_asked()) == HANDED_OVER_AT_ONCE_MAX
    assert homes.publishers.kept_count == 60 - HANDED_OVER_AT_ONCE_MAX


@settings(max_examples=40)
@given(
    pauses_ms=st.lists(st.floats(20.0, 500.0), min_size=1, max_size=6),
    outages=st.lists(st.tuples(st.floats(0.0, 5_000.0), st.floats(0.0, 20_000.0)), min_size=1, max_size=3),
)
def test_a_home_with_spare_capacity_handles_all_its_publishers_after_any_outages(
    pauses_ms: list[float], outages: list[tuple[float, float]]
) -> None:
    """It is busy for 0.6 of the time otherwise; its queue stays short, and everything arrives once and in order."""
    env, queue, served = simpy.Environment(), deque[Notification](), dict[str, int]()
    queue_length_max = 0

    def ask(home: str, request: ClientRequest | Notification) -> None:
        nonlocal queue_length_max
        if isinstance(request, Notification):
            queue.append(request)
            queue_length_max = max(queue_length_max, len(queue))

    publishers = PublisherClients(env, Ledger(1e9), ask, lambda *_: None, lambda *_: None)
    service_ms = 0.6 / sum(1 / pause_ms for pause_ms in pauses_ms)

    def serve(_: object) -> None:
        if queue:
            one = queue.popleft()
            assert one.sequence == one.content["number"] == served.get(one.publisher, 0)
            served[one.publisher] = one.sequence + 1
        env.timeout(service_ms).callbacks.append(serve)

    published = dict[str, int]()

    def publish(event: simpy.Event) -> None:
        name = str(event.value)
        publishers.publish(name, {"number": published.setdefault(name, 0)}, 1)
        published[name] += 1
        env.timeout(pauses_ms[int(name)], name).callbacks.append(publish)

    for name, pause_ms in enumerate(pauses_ms):
        publishers.connect(str(name), "b1", topic_filter("a"))
        publishers.allow(str(name), 0)
        env.timeout(pause_ms * name / len(pauses_ms), str(name)).callbacks.append(publish)
    env.timeout(0.0).callbacks.append(serve)
    for stay, (peace_ms, outage_ms) in enumerate(outages, start=1):
        env.run(env.now + peace_ms + 1.0)
        publishers.lose_home("b1")
        env.run(env.now + outage_ms + 1.0)
        publishers.reconnect_waiting("b1")
        for name in range(len(pauses_ms)):
            publishers.allow(str(name), stay)
    env.run(env.now + 2 * sum(outage_ms for _, outage_ms in outages) + 5_000.0)
    assert publishers.kept_count == 0
    assert queue_length_max <= (HANDED_OVER_AT_ONCE_MAX * len(outages) + 2) * len(pauses_ms)
    for name, count in published.items():
        assert count - served[name] <= 2 * len(pauses_ms)


@given(
    steps=st.lists(st.sampled_from(("take", "leave")), max_size=6),
    by=st.sampled_from(("b1", "b2", "b3", "b4")),
    is_over=st.booleans(),
)
def test_only_a_home_of_the_stay_can_drop_a_publisher(steps: list[str], by: str, is_over: bool) -> None:
    """Any broker may say that it is not the home; a previous home is believed only if the stay is over everywhere."""
    homes, number = connected(), 1
    for step in steps:
        number += step == "leave"
        if step == "leave":
            homes.publishers.leave("p", 0, f"b{number}")
        else:
            homes.publishers.take("p", 0, f"b{number}")
    client = homes.publishers._publishers["p"]
    may_say_so = {client.home, client.goes_to} | ({client.came_from} if is_over else set())
    was_home, was_at = client.home, client.goes_to
    assert homes.publishers.drop("p", 0, may_return=False, by=by, is_over=is_over) is (by in may_say_so)
    assert homes.publishers.waiting_count == (by in may_say_so)
    if by not in may_say_so:
        assert (client.home, client.goes_to) == (was_home, was_at)


def test_a_publisher_ends_its_stay_where_it_is_when_the_home_that_it_has_left_ends_it() -> None:
    """Its request to leave came too late there; the next stay begins at that broker, which accepts clients."""
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publishers.take("p", 0, "b2")
    homes.take_asked()
    assert homes.publishers.drop("p", 0, may_return=True, by="b1", is_over=True)
    assert homes.take_asked() == [
        ("b2", UnadvertiseRequest("p", 0)), ("b1", AdvertiseRequest("p", topic_filter("a"), 1))
    ]  # fmt: skip


def test_a_publisher_dropped_on_its_way_waits_for_its_next_home_unless_it_may_return() -> None:
    for may_return, home in ((False, "b2"), (True, "b1")):
        homes = connected()
        homes.publishers.leave("p", 0, "b2")
        assert homes.publishers.drop("p", 0, may_return=may_return, by="b1", is_over=True)
        assert homes.publishers.home_of("p") == home
        assert homes.publishers.waiting_count == (not may_return)


def test_a_publisher_leaves_only_if_its_home_asks_it_to() -> None:
    """The home that it has left counts as dead: what it had asked arrives when the publisher is elsewhere."""
    homes = connected()
    homes.publishers.leave("p", 0, "b2", by="b1")
    homes.publishers.take("p", 0, "b2")
    homes.take_asked()
    for home_to in ("b2", "b3"):
        homes.publishers.leave("p", 0, home_to, by="b1")
    assert homes.take_asked() == []
    assert homes.publishers.home_of("p") == "b2"
    assert not homes.publishers.is_any_moving
