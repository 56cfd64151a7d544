"""Publishers: what they hand to which home, before, during and after a move, and from one stay to the next."""

from __future__ import annotations

import simpy

from producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientRequest,
    LeaveRequest,
    Notification,
    UnadvertiseRequest,
)
from producers.emulator.ledger import Ledger
from producers.emulator.publisher_clients import PublisherClients
from producers.emulator.user_clients import topic_filter


class Homes:
    """Keeps what is asked of each home."""

    def __init__(self) -> None:
        self.published = 0
        self.dead: set[str] = set()
        self.asked: list[tuple[str, ClientRequest | Notification]] = []
        self.publishers = PublisherClients(
            simpy.Environment(),
            Ledger(1_000.0),
            lambda home, request: self.asked.append((home, request)),
            lambda *_: None,
            lambda *_: None,
            may_take=lambda home: home not in self.dead,
        )

    def connect(self, home: str, connection: int) -> None:
        """Let the publisher come and be confirmed."""
        self.publishers.connect("p", home, topic_filter("a"))
        assert self.publishers.allow("p", connection)
        self.asked.clear()

    def publish(self) -> None:
        """Let it publish."""
        self.publishers.publish("p", {"topic": "a", "number": self.published}, 10)
        self.published += 1

    def take_asked(self) -> list[tuple[str, ClientRequest | int]]:
        """Return what was asked since the last time; of notifications their numbers, in the order of publishing."""
        asked, self.asked = self.asked, []
        numbered = [one for _, one in asked if isinstance(one, Notification)]
        assert [one.content["number"] for one in numbered] == [one.sequence for one in numbered]
        return [(home, one.sequence if isinstance(one, Notification) else one) for home, one in asked]


def connected() -> Homes:
    homes = Homes()
    homes.connect("b1", 0)
    return homes


def test_a_publisher_hands_over_what_waited_between_two_homes_to_the_next_in_its_order() -> None:
    homes = connected()
    homes.publish()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    homes.publish()
    assert homes.take_asked() == [("b1", 0), ("b1", LeaveRequest("p", 0))]
    homes.publishers.take("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b2", 1), ("b2", 2), ("b2", 3)]


def test_a_publisher_that_is_taken_before_it_is_told_to_leave_goes_on_at_once() -> None:
    homes = connected()
    homes.publishers.take("p", 0, "b2")
    homes.publish()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b1", 0), ("b1", LeaveRequest("p", 0)), ("b2", 1)]


def test_a_publisher_that_ends_between_two_homes_hands_over_what_waited_and_ends_at_the_next() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    homes.publishers.disconnect("p")
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]
    homes.publishers.take("p", 0, "b2")
    assert homes.take_asked() == [("b2", 0), ("b2", UnadvertiseRequest("p", 0))]
    assert homes.publishers.home_of("p") is None


def test_what_brokers_say_of_an_earlier_stay_changes_nothing() -> None:
    """It may still be on its way when the publisher has come again; its numbers go on."""
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
    over = UnadvertiseRequest("p", 0)  # Who takes a stay that is over is told so, and has it no longer.
    assert homes.take_asked() == [("b3", over), ("b1", 1)]
    homes.publishers.leave("p", 1, "b2")
    homes.publishers.take("p", 0, "b2")
    assert homes.publishers.is_any_moving
    homes.publishers.take("p", 1, "b2")
    assert homes.publishers.home_of("p") == "b2"


def test_a_publisher_goes_to_the_home_it_was_told_and_to_no_other_that_takes_it() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publishers.take("p", 0, "b3")
    assert homes.publishers.is_any_moving
    homes.publishers.take("p", 0, "b2")
    assert homes.publishers.home_of("p") == "b2"


def test_a_publisher_whose_home_dies_goes_to_whichever_home_takes_it() -> None:
    homes = connected()
    homes.publishers.lose_home("b1")
    homes.publish()
    assert homes.take_asked() == []
    homes.publishers.take("p", 0, "b3")
    assert homes.take_asked() == [("b3", 0)]


def test_a_publisher_that_is_told_to_leave_for_a_home_that_is_dead_already_waits_for_one() -> None:
    homes = connected()
    homes.dead.add("b2")
    homes.publishers.leave("p", 0, "b2")
    homes.publish()
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]
    assert homes.publishers.waiting_count == 1
    homes.publishers.come_home("b2")
    assert homes.take_asked() == [("b2", AdvertiseRequest("p", topic_filter("a"), 1))]
    homes.publishers.allow("p", 1)
    assert homes.take_asked() == [("b2", 0)]


def test_a_publisher_whose_stay_its_home_has_ended_comes_again_there_in_a_new_one() -> None:
    """Whoever lets it publish need not know: what it publishes meanwhile waits."""
    homes = connected()
    assert homes.publishers.drop("p", 0, may_return=True)
    homes.publish()
    assert homes.take_asked() == [("b1", AdvertiseRequest("p", topic_filter("a"), 1))]
    assert not homes.publishers.allow("p", 1)  # It has begun to publish before.
    assert homes.take_asked() == [("b1", 0)]


def test_a_publisher_that_its_home_turns_away_comes_again_when_that_takes_clients() -> None:
    homes = connected()
    assert homes.publishers.drop("p", 0, may_return=False)
    homes.publish()
    assert not homes.publishers.drop("p", 0, may_return=False)
    assert homes.take_asked() == []
    assert homes.publishers.waiting_count == 1
    homes.publishers.come_home("b1")
    homes.publishers.allow("p", 1)
    assert homes.take_asked() == [("b1", AdvertiseRequest("p", topic_filter("a"), 1)), ("b1", 0)]


def test_a_publisher_whose_stay_is_ended_between_two_homes_when_it_was_about_to_end_is_gone() -> None:
    homes = connected()
    homes.publishers.leave("p", 0, "b2")
    homes.publishers.disconnect("p")
    assert homes.publishers.drop("p", 0, may_return=True)
    assert homes.publishers.home_of("p") is None
    assert homes.take_asked() == [("b1", LeaveRequest("p", 0))]
