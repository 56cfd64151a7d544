"""Subscribers with one subscription each: whose word ends a stay."""

from __future__ import annotations

import simpy

from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.subscriber_clients import SubscriberClients
from regraft.producers.emulator.user_clients import topic_filter


def connected() -> SubscriberClients:
    """Return the clients of an overlay, with s at b1."""
    clients = SubscriberClients(
        simpy.Environment(), Ledger(1_000.0), lambda *_: None, lambda *_: None, lambda *_: None, lambda _: True,
        lambda *_: None,
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
