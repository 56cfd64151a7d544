"""The register of clients always equals one built from scratch."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regraft.overlay.registered_clients
from regraft.overlay.registered_clients import RegisteredClients
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.client import Client, PredicateRecord, Role
from tests.controller.scripted_ring import publisher, user
from tests.overlay.small_overlays import brokers_named

BROKERS = brokers_named(5)


@dataclass
class PlainRegister:
    """The slow reference: all clients by name."""

    clients: dict[str, Client] = field(default_factory=dict)

    def interests(self) -> UserInterests:
        users = {name: (one.home, one.topics) for name, one in self.clients.items() if one.topics}
        return UserInterests.of(BROKERS, {name: one for name, one in users.items() if one[0] in BROKERS})

    def subscription_count(self) -> int:
        plain = [one for one in self.clients.values() if one.role is Role.SUBSCRIBER and not one.topics]
        return len(plain) + sum(len(set(one.topics)) for one in self.clients.values())


def assert_same(found: UserInterests, expected: UserInterests) -> None:
    assert (found.brokers, found.topics, found.users) == (expected.brokers, expected.topics, expected.users)
    for name in ("homes", "starts", "wanted"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype, name


@given(st.integers(0, 2**32), st.booleans())
def test_any_history_gives_the_register_built_from_scratch(seed: int, forgets_often: bool) -> None:
    """Users arrive, change topics, move, leave and return; publishers and plain subscribers are among them."""
    rng = random.Random(seed)
    register, plain = RegisteredClients(), PlainRegister()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regraft.overlay.registered_clients, "TOPICS_SPARE_MIN", 0 if forgets_often else 1000)
        for step in range(rng.randrange(1, 60)):
            name = f"c{rng.randrange(12)}"
            if rng.random() < 0.25:
                plain.clients.pop(name, None)
                register.remove(name)
            else:
                topics = tuple(rng.choices([f"t{number}" for number in range(40)], k=rng.randrange(4)))
                role = rng.choice([Role.SUBSCRIBER, Role.SUBSCRIBER, Role.PUBLISHER])
                client = Client(name, role, rng.choice([*BROKERS, "elsewhere"]), (), 0.0, step, topics)
                plain.clients[name] = client
                register.put(client)
            if rng.random() < 0.3:
                assert_same(register.interests(BROKERS), plain.interests())
            assert register.subscription_count == plain.subscription_count()
    assert_same(register.interests(BROKERS), plain.interests())
    strangers = [one for one in plain.clients.values() if one.topics and one.home == "elsewhere"]
    assert register.unplaced == len(strangers)


def test_a_user_counts_as_many_subscriptions_as_it_has_topics() -> None:
    """A subscriber without topics counts once; a publisher does not count."""
    register = RegisteredClients()
    register.put(user("u", "b00", "a", "b", "c"))
    register.put(Client("s", Role.SUBSCRIBER, "b00", (), 0.0, 0))
    register.put(publisher("p", "b00", "a"))
    assert (register.subscription_count, register.held_count) == (4, 5)
    register.put(user("u", "b00", "a"))
    assert register.subscription_count == 2


def test_ends_of_subscriptions_are_counted() -> None:
    """Each topic that a user drops is one end, and so is each topic of a user that leaves; a move is none."""
    register = RegisteredClients()
    register.put(user("u", "b00", "a", "b", "c"))
    register.put(user("u", "b01", "a", "b", "c"))
    assert register.ended_count == 0
    register.put(user("u", "b01", "c", "d"))
    assert register.ended_count == 2
    register.remove("u")
    register.remove("u")
    assert register.ended_count == 4


def test_the_snapshot_is_the_same_while_no_user_changes() -> None:
    """Repeated records and changes of publishers give no new snapshot; a move does, leaving the old one unchanged."""
    register = RegisteredClients()
    register.put(user("u", "b00", "a"))
    first = register.interests(BROKERS)
    register.put(user("u", "b00", "a", time_ms=9))
    register.put(publisher("p", "b00", "a"))
    register.remove("p")
    assert register.interests(BROKERS) is first
    register.put(user("u", "b01", "a"))
    assert register.interests(BROKERS) is not first
    assert (first.homes.tolist(), register.interests(BROKERS).homes.tolist()) == ([0], [1])


def test_the_topic_of_a_publisher_outlives_it_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows yet to be closed contain its last notifications; how many are remembered is bounded."""
    monkeypatch.setattr(regraft.overlay.registered_clients, "DEPARTED_KEPT_MAX", 2)
    register = RegisteredClients()
    for name in ("p1", "p2", "p3"):
        register.put(publisher(name, "b00", f"topic of {name}"))
        register.remove(name)
    assert register.topic_of == {"p2": "topic of p2", "p3": "topic of p3"}
    register.put(publisher("p3", "b00", "another"))
    assert register.topic_of["p3"] == "another"


def test_only_a_predicate_that_names_one_topic_gives_a_topic() -> None:
    """A publisher of a tree, with other attributes or operators, has no topic."""
    register = RegisteredClients()
    predicates = (PredicateRecord("symbol", "eq", text="IBM"), PredicateRecord("topic", "present"))
    register.put(Client("p", Role.PUBLISHER, "b00", predicates, 1.0, 0))
    assert register.topic_of == {}


def test_subscribers_without_topics_are_counted_where_they_are() -> None:
    """One that moves, leaves or acquires topics is no longer counted at its old home."""
    clients = RegisteredClients()
    for name, home in (("s1", "b1"), ("s2", "b1"), ("s3", "b2")):
        clients.put(Client(name, Role.SUBSCRIBER, home, (), 0.0, 0))
    assert clients.subscribers_at == {"b1": 2, "b2": 1}
    clients.put(Client("s1", Role.SUBSCRIBER, "b2", (), 0.0, 1))
    clients.put(Client("s2", Role.SUBSCRIBER, "b1", (), 0.0, 1, ("t",)))
    clients.remove("s3")
    assert clients.subscribers_at == {"b2": 1}
    assert clients.subscription_count == 2


def test_subscribers_that_may_move_are_kept_with_their_homes() -> None:
    """Neither publishers nor users are among them, nor one that may no longer move. What was returned stays."""
    clients = RegisteredClients()
    clients.put(Client("s1", Role.SUBSCRIBER, "b1", (), 0.0, 0))
    for name in ("s2", "s3", "s4"):
        clients.put(Client(name, Role.SUBSCRIBER, "b1", (), 0.0, 0, may_move=True))
    clients.put(Client("p", Role.PUBLISHER, "b1", (), 0.0, 0, may_move=True))
    clients.put(Client("u", Role.SUBSCRIBER, "b1", (), 0.0, 0, ("t",), may_move=True))
    first = clients.movable
    assert first == dict.fromkeys(("s2", "s3", "s4"), "b1")
    clients.put(Client("s5", Role.SUBSCRIBER, "b1", (), 0.0, 1))
    clients.remove("s5")
    assert clients.movable is first
    clients.put(Client("s2", Role.SUBSCRIBER, "b2", (), 0.0, 1, may_move=True))
    clients.put(Client("s3", Role.SUBSCRIBER, "b1", (), 0.0, 1))
    clients.remove("s4")
    assert (clients.movable, len(first)) == ({"s2": "b2"}, 3)
    assert clients.subscribers_at == {"b1": 2, "b2": 1}


def test_why_subscribers_stay_is_counted_where_they_are() -> None:
    """Not of one that may move, has topics or left; a reason of a later version, or none, counts as none."""
    clients = RegisteredClients()

    def put(name: str, home: str = "b1", because: str = "", **more: Any) -> None:
        clients.put(Client(name, Role.SUBSCRIBER, home, (), 0.0, 0, stays_because=because, **more))

    for name, because in (("s1", "qos_2"), ("s2", "qos_2"), ("s3", "queue_group"), ("s4", ""), ("s5", "a later one's")):
        put(name, because=because)
    put("s6", because="qos_2", may_move=True)
    put("u", because="qos_2", topics=("t",))
    clients.put(Client("p", Role.PUBLISHER, "b1", (), 0.0, 0, stays_because="qos_2"))
    assert clients.staying == {"b1": {"qos_2": 2, "queue_group": 1}}
    put("s1", "b2", "qos_2")
    put("s2")
    clients.remove("s3")
    assert clients.staying == {"b2": {"qos_2": 1}}
    put("s1", "b2", may_move=True)
    assert clients.staying == {}
    assert clients.subscribers_at == {"b1": 4, "b2": 1}


def test_what_an_agent_reaches_is_kept_until_its_client_has_left() -> None:
    """All subscriptions of a client name the same brokers, so the newest counts; others beside no agent name none."""
    clients = RegisteredClients()

    def put(name: str, *reaches: str) -> None:
        clients.put(Client(name, Role.SUBSCRIBER, "b1", (), 0.0, 0, may_move=True, reaches=reaches))

    put("s1", "b1", "b2")
    put("east.c-1.1", "b1", "b2")
    put("east.c-1.2", "b1", "b2", "b3")
    put("west.c-1.1")
    first = clients.reaches
    assert first == {"east.c-1": ("b1", "b2", "b3")}
    put("east.c-1.2", "b1", "b2", "b3")
    clients.remove("east.c-1.1")
    assert clients.reaches is first
    clients.remove("east.c-1.2")
    assert (clients.reaches, len(first)) == ({}, 1)
