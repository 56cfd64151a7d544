"""Measures of a placement, computed by hand on three brokers in a row."""

import pytest

from lab.tests.pop_grape.small_relocation import line_inventory, line_window
from regraft.api.records import QueueState
from regraft_lab.pop_grape.placement_measures import counted, measured


def queue(broker: str, peer: str = "", **values: float) -> QueueState:
    """Return a queue with some of its figures."""
    figures = {"messages_in_per_s": 0.0, "notifications_out_per_s": 0.0, "bytes_in_per_s": 0.0} | values
    return QueueState(
        broker,
        peer,
        figures["messages_in_per_s"],
        0.0,
        figures["notifications_out_per_s"],
        figures["bytes_in_per_s"],
        figures.get("bytes_out_per_s", 0.0),
        figures.get("busy_share", 0.0),
        0,
        0,
        0.0,
        1_000,
    )


def test_a_publisher_at_the_far_end() -> None:
    """At a all 4 pass a and b, 2 continue to c. b is one hop away and c two; 4 deliveries each."""
    inventory = line_inventory()
    found = counted([line_window({"p": "a"})], inventory.bootstrap, inventory)
    assert found.message_rate_per_s == pytest.approx((4 + 4 + 2) / 3)
    assert found.utilisations == pytest.approx([4 * 1 / 1000, 4 * 2 / 1000, 2 * 3 / 1000])
    assert found.hops == pytest.approx((4 * 1 + 4 * 2) / 8)
    assert found.delay_ms == pytest.approx(((1 + 10 + 2) + (1 + 10 + 2 + 20 + 3)) / 2)
    assert found.cost_per_s == pytest.approx(4 * 1 + 4 * 10 + 4 * 2 + 2 * 20 + 2 * 3)


def test_clients_stay_on_their_machine() -> None:
    """A publisher on a's machine that connects to b sends over 10 ms; deliveries at b and c return to a."""
    inventory = line_inventory()
    found = counted([line_window({"p": "b"})], inventory.bootstrap, inventory, {"p": "a"})
    assert found.delay_ms == pytest.approx((2 + (2 + 20 + 3)) / 2)
    assert found.client_delay_ms == pytest.approx(found.delay_ms + 10 + (10 + 5) / 2)


def test_windows_with_other_homes_are_each_counted_at_theirs() -> None:
    """One second at a and one at b: the mean of both."""
    inventory = line_inventory()
    there, here = (counted([line_window({"p": home})], inventory.bootstrap, inventory) for home in "ab")
    both = counted([line_window({"p": "a"}), line_window({"p": "b"})], inventory.bootstrap, inventory)
    assert both.cost_per_s == pytest.approx((there.cost_per_s + here.cost_per_s) / 2)
    assert both.message_rate_per_s == pytest.approx((there.message_rate_per_s + here.message_rate_per_s) / 2)
    assert both.hops == pytest.approx((there.hops + here.hops) / 2)


def test_rates_are_those_that_brokers_report() -> None:
    """Input utilisation is arrivals times service; output is the busy share times bytes queued over bytes sent."""
    inventory = line_inventory()
    window = line_window({"p": "a"})
    queues = (
        queue("b", messages_in_per_s=100.0, notifications_out_per_s=90.0),
        queue("b", "a", busy_share=0.2, bytes_in_per_s=30.0, bytes_out_per_s=20.0),
        queue("b", "c", busy_share=0.1, bytes_in_per_s=10.0, bytes_out_per_s=10.0),
    )
    object.__setattr__(window, "queues", queues)
    found = measured([window], inventory.bootstrap, inventory, 7.0, {"p": "a"})
    assert found.message_rate_per_s == pytest.approx(90 / 3)
    assert found.input_utilisation == pytest.approx(100 * 2 / 1000 / 3)
    assert found.output_utilisation == pytest.approx((0.2 * 1.5 + 0.1) / 3)
    assert found.delay_ms == 7.0
    assert found.client_delay_ms == pytest.approx(7.0 + (10 + 5) / 2)
