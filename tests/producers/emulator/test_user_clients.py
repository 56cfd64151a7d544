"""Users: what they request from which home before, during and after a move."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import simpy

from regraft.producers.brokers.broker_messages import CancelRequest, ClientRequest, Notification, SubscribeRequest
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    MovedSubscription,
)
from regraft.producers.emulator.count_users import BrokerTopics
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.publisher_clients import ClientError
from regraft.producers.emulator.subscriber_clients import HomesInTurn
from regraft.producers.emulator.user_clients import UserClients


class Homes:
    """Records the requests to each home, and what listeners get."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ClientRequest]] = []
        self.reported: list[tuple[str, str, tuple[str, ...] | None]] = []
        self.env = simpy.Environment(initial_time=5.0)
        self.ledger = Ledger(1_000.0)
        self.published = 0
        self.turns = HomesInTurn()
        self.users = UserClients(
            self.env,
            self.ledger,
            lambda home, request: self.asked.append((home, request)),
            lambda user, home, topics, _: self.reported.append((user, home, topics)),
            lambda user, home, topics: self.reported.append((user, home, topics)),
            turns=self.turns,
        )

    def take_asked(self) -> list[tuple[str, ClientRequest]]:
        """Return the requests since the last call."""
        asked, self.asked = self.asked, []
        return asked

    def owed(self, topic: str) -> int:
        """Publish once, later than now; return how many subscriptions are owed it."""
        self.published += 1
        return self.ledger.publish(Notification("p", self.published, self.env.now + 0.5, "b1", 0, {"topic": topic}, 10))

    def names(self) -> dict[str, str]:
        """Return the newest subscription to each topic."""
        return {
            str(request.filter_[0].value): request.subscription
            for _, request in self.asked
            if isinstance(request, SubscribeRequest)
        }


def connected(topics: Iterable[str]) -> tuple[Homes, dict[str, str]]:
    homes = Homes()
    homes.users.connect("u", "b1", topics)
    names = homes.names()
    for name in names.values():
        homes.users.confirm(name, "b1")
    homes.take_asked()
    return homes, names


def test_a_user_requests_new_topics_and_ends_unwanted_ones() -> None:
    homes, names = connected("ab")
    homes.users.change_topics("u", "bc")
    asked = homes.take_asked()
    assert [(home, type(request)) for home, request in asked] == [("b1", CancelRequest), ("b1", SubscribeRequest)]
    assert asked[0][1] == CancelRequest(names["a"])
    homes.users.change_topics("u", "cb")
    assert homes.take_asked() == []
    assert homes.reported == [("u", "b1", ("a", "b")), ("u", "b1", ("b", "c"))]


def test_a_moving_user_attaches_everything_and_requests_and_ends_at_both_homes() -> None:
    homes, names = connected("ab")
    homes.users.move("u", 0, "b2", 7)
    heard, (home, attach) = homes.take_asked()
    assert heard == ("b1", MoveAckRequest("u", 0))
    assert home == "b2"
    assert isinstance(attach, AttachRequest)
    assert [(one.subscription, one.topic) for one in attach.subscriptions] == [(names["a"], "a"), (names["b"], "b")]
    homes.users.change_topics("u", "bc")
    *ended, (old, asked), (new, attach) = homes.take_asked()
    assert ended == [("b1", CancelRequest(names["a"])), ("b2", CancelRequest(names["a"]))]
    assert (old, new, type(asked)) == ("b1", "b2", SubscribeRequest)
    assert attach == AttachRequest(7, "u", 0, (MovedSubscription(asked.subscription, "c"),))
    homes.users.take("u", "b2")
    assert homes.take_asked() == [("b2", MoveAckRequest("u", 0))]
    assert homes.users.home_of("u") == "b2"
    assert homes.reported[-1] == ("u", "b2", ("b", "c"))
    homes.users.change_topics("u", "c")  # The old home serves what moved until it has handed over everything.
    assert [home for home, _ in homes.take_asked()] == ["b2", "b1"]


@pytest.mark.parametrize("is_asked_between", [False, True])
def test_a_user_takes_nothing_from_its_old_home_behind_the_next_one(is_asked_between: bool) -> None:
    """That one has stopped waiting for the old home, which may live; so it is for what the user asks both for."""
    homes, _ = connected("a")
    homes.users.move("u", 0, "b2", 7)
    if is_asked_between:
        homes.users.change_topics("u", "ab")
    name = list(homes.users._users["u"].has.values())[-1]
    assert [homes.turns.takes(name, broker) for broker in ("b1", "b2", "b1")] == [True, True, False]
    homes.users.disconnect("u")
    assert not homes.turns.takes(name, "b1")


@pytest.mark.parametrize("homes_in_order", [("b1", "b2"), ("b2", "b1")])
def test_a_request_between_two_homes_is_owed_once_both_confirm_it(
    homes_in_order: tuple[str, str],
) -> None:
    homes, _ = connected("a")
    homes.users.move("u", 0, "b2", 7)
    homes.users.change_topics("u", "ab")
    name = homes.names()["b"]
    first, second = homes_in_order
    homes.users.confirm(name, first)
    assert homes.owed("b") == 0
    homes.env.run(until=9.0)
    homes.users.confirm(name, second)
    assert homes.owed("b") == 1
    assert (homes.users.counts.asked, homes.users.counts.wait_ms_max) == (1, 4.0)


def test_a_request_before_the_move_is_confirmed_by_the_old_home_alone() -> None:
    """The next home waits for it before any client may publish in the new epoch."""
    homes, _ = connected("a")
    homes.users.change_topics("u", "ab")
    name = homes.names()["b"]
    homes.take_asked()
    homes.users.move("u", 0, "b2", 7)
    _, (_, attach) = homes.take_asked()
    assert isinstance(attach, AttachRequest)
    assert name in [one.subscription for one in attach.subscriptions]
    homes.users.confirm(name, "b1")
    assert homes.owed("b") == 1


def test_a_dead_home_confirms_nothing() -> None:
    """A user that has left it requests the unconfirmed subscriptions again."""
    homes, _ = connected("a")
    homes.users.move("u", 0, "b2", 7)
    homes.users.change_topics("u", "ab")
    name = homes.names()["b"]
    homes.users.confirm(name, "b2")
    homes.users.take("u", "b2")
    homes.take_asked()
    homes.users.lose_home("b1")
    assert ("b2", CancelRequest(name)) in homes.asked
    assert homes.users.subscription_count == 2
    homes.users.confirm(homes.names()["b"], "b2")
    assert homes.owed("b") == 1


def test_what_the_old_home_has_handed_over_is_reported_only_to_the_new_one() -> None:
    homes, names = connected("ab")
    homes.users.move("u", 0, "b2", 7)
    homes.users.take("u", "b2")
    homes.take_asked()
    homes.users.drain("u", names["a"], "b2")
    assert homes.take_asked() == [("b2", DrainedRequest(names["a"]))]
    homes.users.change_topics("u", "b")
    assert homes.take_asked() == [("b2", CancelRequest(names["a"]))]


def test_an_aborted_move_leaves_the_user_where_it_was() -> None:
    homes, _ = connected("a")
    homes.users.move("u", 0, "b2", 7)
    homes.users.change_topics("u", "abc")
    names = homes.names()
    homes.users.confirm(names["b"], "b1")
    homes.take_asked()
    assert homes.owed("b") == 0
    homes.users.stay("u", 0)
    assert homes.take_asked() == []
    assert homes.owed("b") == 1  # The next home no longer needs to confirm it.
    assert homes.owed("c") == 0
    homes.users.confirm(names["c"], "b1")
    assert homes.owed("c") == 1
    homes.users.take("u", "b2")  # It is too late and has no effect.
    assert homes.users.home_of("u") == "b1"


def test_a_disconnected_user_is_not_waited_for() -> None:
    homes, names = connected("a")
    homes.users.move("u", 0, "b2", 7)
    homes.take_asked()
    homes.users.disconnect("u")
    assert homes.take_asked() == [
        ("b1", CancelRequest(names["a"])),
        ("b2", CancelRequest(names["a"])),
        ("b1", GoneRequest("u", 0)),
        ("b2", GoneRequest("u", 0)),
    ]
    homes.users.move("u", 0, "b3", 8)
    assert homes.take_asked() == [("b3", AttachRequest(8, "u", 0, ())), ("b3", GoneRequest("u", 0))]


def test_a_command_to_move_from_an_earlier_stay_is_not_followed() -> None:
    """A user that left and returned to the same home is asked to move because of its first stay."""
    homes, _ = connected("a")
    homes.users.disconnect("u")
    homes.users.connect("u", "b1", "a")
    homes.take_asked()
    homes.users.move("u", 0, "b2", 7)
    assert homes.take_asked() == [("b2", AttachRequest(7, "u", 0, ())), ("b2", GoneRequest("u", 0))]
    assert homes.users.home_of("u") == "b1"


def test_a_user_connects_only_once() -> None:
    homes, _ = connected("a")
    with pytest.raises(ClientError, match="already connected, to b1"):
        homes.users.connect("u", "b2", "a")
    with pytest.raises(ClientError, match="is not connected"):
        homes.users.change_topics("nobody", "a")


def test_a_broker_subscribes_while_any_of_its_users_does() -> None:
    """Zhao13, section 3: only the first user that arrives and the last that leaves cause changes."""
    topics = BrokerTopics()
    topics.add("b1", "ab")
    topics.add("b1", "b")
    topics.remove("b1", "ab")
    assert (topics.changes, topics.subscription_count) == (3, 1)
    topics.remove("b1", "b")
    assert (topics.changes, topics.subscription_count) == (4, 0)


def test_moves_count_as_changes_only_away_from_first_homes() -> None:
    homes, _ = connected("ab")
    homes.users.move("u", 0, "b2", 7)
    homes.users.take("u", "b2")
    assert homes.users.topics.changes == 2 + 4
    assert homes.users.topics_at_first_homes.changes == 2


def test_only_its_home_can_drop_a_user() -> None:
    """Neither can the broker it is to move to; the one it came from only if the stay is over everywhere."""
    for is_over in (False, True):
        homes, _ = connected("A")
        homes.users.move("u", 0, "b2", 1)
        assert not homes.users.drop("u", 0, "b2", is_over=is_over)
        homes.users.take("u", "b2")
        assert not homes.users.drop("u", 0, "b3", is_over=is_over)
        assert homes.users.drop("u", 0, "b1", is_over=is_over) is is_over
        assert homes.users.drop("u", 0, "b2", is_over=is_over) is not is_over
        assert homes.users.home_of("u") is None


def test_a_subscription_waits_for_no_confirmation_of_a_dead_home_that_its_user_has_left() -> None:
    """Its next home, which has confirmed it, says a second time that it has taken the user."""
    homes, _ = connected("A")
    homes.users.move("u", 0, "b2", 1)
    homes.users.change_topics("u", "AB")
    subscription = homes.names()["B"]
    homes.users.confirm(subscription, "b2")
    homes.users.take("u", "b2")
    assert homes.owed("B") == 0
    homes.users.take("u", "b2")
    assert homes.owed("B") == 1
