"""The clients that a node represents: what they ask of the core when it has ended a stay."""

from __future__ import annotations

from typing import Any

from regraft.producers.brokers.broker_messages import AdvertiseRequest
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
