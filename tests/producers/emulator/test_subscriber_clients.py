"""Subscribers with one subscription each: whose word ends a stay, and whose notifications they take."""

from __future__ import annotations

import simpy

from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.subscriber_clients import HomesInTurn, SubscriberClients
from regraft.producers.emulator.user_clients import topic_filter


def connected(turns: HomesInTurn | None = None) -> SubscriberClients:
    """Return the clients of an overlay, with s at b1."""
    clients = SubscriberClients(
        simpy.Environment(), Ledger(1_000.0), lambda *_: None, lambda *_: None, lambda *_: None, lambda _: True,
        lambda *_: None, turns,
    )  # fmt: skip
    clients.subscribe("s", "b1", topic_filter("a"))
    return clients


def test_only_its_home_can_drop_a_subscriber() -> None:
    """Neither can the broker it is to move to, whose plan may be aborted, nor the one it has left."""
    clients = connected()
    clients.move("s", "b2", 1)
    assert not clients.drop("s", "b2")
    assert clients.take("s", "b2", 1) == "b1"
    assert not clients.drop("s", "b1")
    assert clients.confirm("s")
    assert clients.drop("s", "b2")
    assert not clients.confirm("s")


def test_a_subscriber_takes_nothing_from_its_old_home_behind_the_next_one() -> None:
    """The next home hands over nothing before the end of the plan, unless the old one counts as dead."""
    turns = HomesInTurn()
    clients = connected(turns)
    clients.move("s", "b2", 1)
    assert [turns.takes("s", broker) for broker in ("b1", "b2", "b1")] == [True, True, False]
    clients.cancel("s")
    assert not turns.takes("s", "b1")
