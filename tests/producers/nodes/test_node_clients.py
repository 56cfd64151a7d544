"""The clients that a node represents: their names and shares, and what they ask of the core."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.nodes import agent_clients, node_clients
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.producers.nodes.node_clients import NodeClients


def test_only_the_end_of_its_present_stay_lets_a_publisher_ask_again() -> None:
    """A repeated or late end of an earlier stay would lose what waits for the present one to be known."""
    asked: list[Any] = []
    changed: list[Any] = []
    clients = NodeClients("b01", "life", asked.append, lambda *change: changed.append(change))
    clients.settle(True)
    clients.drop("b01.life", 0)
    clients.drop("b01.life", 0)
    assert len(changed) == 2
    clients.settle(True)
    clients.drop("b01.life", 0)
    clients.allow("b01.life", 1, 5.0)
    assert clients.are_publishers_known
    assert asked == [AdvertiseRequest("b01.life", (), stay) for stay in (0, 1)]


def block(name: str) -> bytes:
    return f"NATS/1.0\r\nRegraft-Publisher: {name}\r\n\r\n".encode()


def clients_of(asked: list[Any], changed: list[Any] | None = None) -> NodeClients:
    return NodeClients("b01", "1", asked.append, lambda *change: None if changed is None else changed.append(change))


def test_interest_that_found_no_room_is_taken_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's subjects do not shut out another's for good; one that ends while it waits is forgotten."""
    monkeypatch.setattr(node_clients, "INTERESTS_MAX", 3)
    asked: list[Any] = []
    clients = clients_of(asked)
    for subject in ("evil.1", "evil.2", "evil.3", "ticks", "gone", "late"):
        clients.note_interest(subject, True)
    clients.note_interest("gone", False)
    clients.settle(True)
    assert clients.counts == {"too_many_interests": 3}
    for subject in ("evil.2", "evil.3"):
        clients.note_interest(subject, False)
    clients.settle(True)
    wanted = [request.filter_[0].value for request in asked if isinstance(request, SubscribeRequest)]
    assert wanted == ["evil", "evil", "evil", "ticks", "late"]
    assert clients.interest_count == 3


def test_long_subjects_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long subjects take as much memory as many short ones; what ends makes as much room as it took."""
    monkeypatch.setattr(node_clients, "INTEREST_BYTES_MAX", 1_000)
    clients = clients_of([])
    for letter in "abcd":
        clients.note_interest(letter * 400, True)
    assert (clients.interest_count, clients.counts) == (2, {"too_many_interests": 2})
    clients.note_interest("a" * 400, False)
    clients.note_interest("b" * 400, False)
    assert clients.interest_count == 2
    clients.note_interest("c" * 400, False)
    clients.note_interest("d" * 400, False)
    for letter in "ab":
        clients.note_interest(letter * 400, True)
    assert clients.interest_count == 2


def test_waiting_messages_are_bounded_in_bytes_for_one_publisher_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a plan to end leaves room for other publishers, and is free again when it has left."""
    monkeypatch.setattr(node_clients, "WAITING_BYTES_MAX", 10_000)
    monkeypatch.setattr(node_clients, "WAITING_OF_ONE_MAX", 4_000)
    asked: list[Any] = []
    clients = clients_of(asked)
    clients.settle(True)
    for publisher in ("p", "q", "r"):
        for _ in range(10):
            clients.note_message(LocalMessage("a", bytes(900), "", block(publisher)), True, 0.0, 0)
    names = [f"b01.1.p.{publisher}" for publisher in "pqr"]
    waiting = [len(clients._publishers[name].waiting) for name in names]
    assert waiting == [3, 3, 3]
    assert clients.counts == {"publisher_not_known": 21}
    for name in names:
        clients.allow(name, 0, 1.0)
    assert sum(isinstance(request, CarriedNotification) for request in asked) == 9
    assert clients._waiting_bytes == 0


def test_a_publisher_that_is_idle_makes_room_and_its_numbers_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client with many names does not take those of others for good; one that left may come again."""
    monkeypatch.setattr(node_clients, "PUBLISHERS_MAX", 4)
    asked: list[Any] = []
    clients = clients_of(asked)

    def publish(name: str, now_ms: float) -> None:
        clients.note_message(LocalMessage("a", b"x", "", block(name)), True, now_ms, 0)
        for request in [request for request in asked if isinstance(request, AdvertiseRequest)]:
            clients.allow(request.publisher, request.connection, now_ms)

    for number, name in enumerate(("evil1", "evil2", "evil3", "late", "evil1")):
        publish(name, 1_000.0 + number)
    assert clients.counts == {"publisher_refused": 1}  # "late" counts as the broker's.
    publish("evil3", 70_000.0)
    publish("late", 70_001.0)
    left = {request.publisher for request in asked if isinstance(request, UnadvertiseRequest)}
    assert left == {"b01.1.p.evil1", "b01.1.p.evil2"}
    publish("evil1", 70_002.0)
    numbers = [(one.publisher, one.sequence) for one in asked if isinstance(one, CarriedNotification)]
    assert len(set(numbers)) == len(numbers)
    assert numbers[-1] == ("b01.1.p.evil1", 64)
    stays = [(one.publisher, one.connection) for one in asked if isinstance(one, AdvertiseRequest)]
    assert len(set(stays)) == len(stays)


@given(st.text(max_size=20), st.integers(0, 3))
def test_no_publisher_is_called_like_a_subscription_or_the_broker(given_name: str, number: int) -> None:
    """Both are clients of one register, and what ends one would end the other."""
    asked: list[Any] = []
    clients = clients_of(asked)
    for subject in range(number + 1):
        clients.note_interest(f"a{subject}", True)
    for name in (given_name, f"s.{number}", f"s{number}", "", "."):
        clients.note_message(LocalMessage("a", b"x", "", block(name)), True, 0.0, 0)
    clients.settle(True)
    subscriptions = {request.subscription for request in asked if isinstance(request, SubscribeRequest)}
    publishers = {request.publisher for request in asked if isinstance(request, AdvertiseRequest)}
    assert not subscriptions & publishers
    assert all(name == "b01.1" or name.startswith("b01.1.p.") for name in publishers)


def test_a_subscription_that_an_agent_has_brought_keeps_its_name() -> None:
    """The plan that brings it is in the name of its queue group; one that no plan brings is named by the node."""
    asked: list[Any] = []
    clients = clients_of(asked)
    clients.note_interest("a.b regraft-agent.web1.k3-1.2", True)
    clients.note_interest("a.b regraft-agent.web1.k3-1.3~0badcafe-9@7", True)
    clients.settle(True)
    first, second = asked[-2:]
    assert isinstance(first, SubscribeRequest)
    assert first.subscription.startswith("web1.k3-1.2~")
    assert isinstance(second, ArriveRequest)
    assert (second.subscription, second.epoch) == ("web1.k3-1.3~0badcafe-9", 7)


def test_a_subscription_that_no_plan_brings_any_more_begins_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overlay may begin afresh while agents keep what an earlier one had moved."""
    asked: list[Any] = []
    clients = clients_of(asked)
    clients.note_interest("a.b regraft-agent.web1.k3-1.3~0badcafe-9@7", True)
    clients.settle(True)
    clients.follow_agents(True, 0.0)
    assert len(asked) == 2  # The broker's publisher, and the arrival.
    monkeypatch.setattr(agent_clients, "ARRIVAL_S_MAX", -1.0)
    clients.follow_agents(True, 0.0)
    assert asked[2] == CancelRequest("web1.k3-1.3~0badcafe-9")
    assert isinstance(asked[3], SubscribeRequest)
    assert asked[3].subscription.startswith("web1.k3-1.3~")
    assert asked[3].subscription != "web1.k3-1.3~0badcafe-9"
    clients.follow_agents(True, 0.0)
    clients.note_interest("a.b regraft-agent.web1.k3-1.3~0badcafe-9@7", False)
    assert asked[4:] == [CancelRequest(asked[3].subscription)]
