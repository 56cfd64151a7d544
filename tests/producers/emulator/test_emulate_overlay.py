"""Times, queues and links of the model, on overlays small enough to compute by hand."""

import random

import numpy as np
import pytest
import simpy

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.emulator.delivery_cells import CellRule
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay, OverlayTiming, inventory_timing
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.ledger import Ledger
from regraft.producers.emulator.publisher_clients import ClientError
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome

ALL: Filter = (Predicate("symbol", Operator.EQ, "A"),)
CONTENT = {"symbol": "A"}


class Listener(OverlayListener):
    """Records what the overlay reports."""

    def __init__(self) -> None:
        self.may_publish: list[str] = []
        self.results: list[CommandResult] = []
        self.changes: list[tuple[str, Role, str, bool]] = []

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        self.changes.append((client, role, home, filter_ is not None))

    def on_may_publish(self, publisher: str) -> None:
        self.may_publish.append(publisher)

    def on_result(self, result: CommandResult) -> None:
        self.results.append(result)


def chain() -> Inventory:
    """a - b - c: links of 10 and 20 ms, service of 1, 2 and 4 ms."""
    link_cost = np.array([[0.0, 10.0, 99.0], [10.0, 0.0, 20.0], [99.0, 20.0, 0.0]])
    bootstrap = TreeConfiguration.of(0, "abc", [("a", "b"), ("b", "c")])
    return Inventory(("a", "b", "c"), np.array([1.0, 2.0, 4.0]), link_cost, 2, bootstrap)


def chain_overlay(timing: OverlayTiming | None = None, queue_length_max: int = 100) -> tuple[EmulatedOverlay, Listener]:
    """Publisher p at a may publish, subscription s at c is confirmed, and nothing is on its way."""
    overlay = EmulatedOverlay(
        simpy.Environment(),
        chain(),
        timing or inventory_timing(chain(), 0.0),
        Ledger(10_000.0),
        queue_length_max=queue_length_max,
        cells=CellRule(60),
    )
    listener = Listener()
    overlay.listeners.append(listener)
    overlay.advertise("p", "a", ALL)
    overlay.subscribe("s", "c", ALL)
    overlay.env.run(until=1_000)
    assert listener.may_publish == ["p"]
    assert overlay.is_quiet
    return overlay, listener


def test_delivery_takes_the_service_and_delay_of_its_path() -> None:
    """From a to c: 1 + 10 + 2 + 20 + 4 ms over three brokers and two links."""
    overlay, _ = chain_overlay()
    overlay.publish("p", CONTENT, 100)
    assert not overlay.is_quiet
    overlay.env.run(until=2_000)
    account = overlay.ledger.close()
    assert account.is_clean
    assert account.delivered == 1
    assert account.delivery_ms_max == 37.0
    assert overlay.hop_count == 3


def test_a_broker_serves_one_message_at_a_time() -> None:
    """Three simultaneous messages wait for each other: the last is two services of the slowest broker late."""
    overlay, _ = chain_overlay()
    for _ in range(3):
        overlay.publish("p", CONTENT, 100)
    overlay.env.run(until=2_000)
    account = overlay.ledger.close()
    assert account.is_clean
    assert account.delivery_ms_max == 37.0 + 2 * 4.0
    assert overlay.brokers["a"].counters.queue_length_max == 3
    assert overlay.brokers["c"].counters.busy_ms == 12.0


def test_wait_counters_include_served_messages_only() -> None:
    """Three at once wait 0, 1 and 2 services at a; they reach b 1 ms apart for 2 ms, c 2 ms apart for 4 ms."""
    overlay, _ = chain_overlay()
    before_ms = {name: broker.counters.wait_ms for name, broker in overlay.brokers.items()}
    for _ in range(3):
        overlay.publish("p", CONTENT, 100)
    waits_ms = []
    for time_ms in (1_000.5, 1_001.5, 1_002.5, 1_003.5):  # The first to the third are served after 1, 2 and 3 ms.
        overlay.env.run(until=time_ms)
        waits_ms.append(overlay.brokers["a"].counters.wait_ms - before_ms["a"])
    assert waits_ms == [0.0, 0.0, 1.0, 3.0]
    overlay.env.run(until=2_000)
    found_ms = {name: broker.counters.wait_ms - before_ms[name] for name, broker in overlay.brokers.items()}
    assert found_ms == {"a": 0.0 + 1.0 + 2.0, "b": 0.0 + 1.0 + 2.0, "c": 0.0 + 2.0 + 4.0}
    assert all(end.counters.wait_ms == 0.0 for end in overlay.link_ends.values())


def test_messages_wait_at_a_link_until_they_are_sent() -> None:
    """At 10 bytes per ms the first waits its own 10 ms, the second also what is left of those; delay is not a wait."""
    slow = inventory_timing(chain(), 0.0, bytes_per_ms_max=10.0)
    overlay, _ = chain_overlay(slow)
    first, second = (overlay.link_ends[link].counters for link in (("a", "b"), ("b", "c")))
    before_ms = first.wait_ms, second.wait_ms
    overlay.publish("p", CONTENT, 100)
    overlay.publish("p", CONTENT, 100)
    overlay.env.run(until=1_020.5)  # The first has left a's link at 11 ms, and reaches b at 21.
    assert first.wait_ms == before_ms[0]
    overlay.env.run(until=1_025)
    assert first.wait_ms - before_ms[0] == pytest.approx(10.0)
    overlay.env.run(until=2_000)
    assert first.wait_ms - before_ms[0] == pytest.approx(10.0 + (9.0 + 10.0))
    assert second.wait_ms - before_ms[1] == pytest.approx(10.0 + 10.0)


def test_bandwidth_spaces_messages() -> None:
    """With 10 bytes per ms a notification of 100 bytes occupies each link for 10 ms."""
    slow = inventory_timing(chain(), 0.0, bytes_per_ms_max=10.0)
    overlay, _ = chain_overlay(slow)
    overlay.publish("p", CONTENT, 100)
    overlay.publish("p", CONTENT, 100)
    overlay.env.run(until=2_000)
    account = overlay.ledger.close()
    assert account.is_clean
    # The second leaves a's queue 1 ms after the first and waits 9 ms for the link.
    assert account.delivery_ms_max == 37.0 + 2 * 10.0 + 10.0


def test_links_keep_order_under_any_delays() -> None:
    """A later message never overtakes an earlier one on the same link."""
    rng = random.Random(1)
    overlay, _ = chain_overlay(OverlayTiming(lambda *_: 0.01, lambda *_: rng.uniform(0, 100)))
    for _ in range(200):
        overlay.publish("p", CONTENT, 10)
        overlay.env.run(until=overlay.env.now + 1)
    overlay.env.run(until=overlay.env.now + 1_000)
    account = overlay.ledger.close()
    assert account.is_clean
    assert account.delivered == 200


def test_a_full_queue_drops_only_notifications() -> None:
    """Notifications beyond the bound are lost with the reason; requests and commands are still queued."""
    overlay, listener = chain_overlay(queue_length_max=5)
    for _ in range(8):
        overlay.publish("p", CONTENT, 10)
    overlay.obey(Command("plan", CommandPhase.ABORT, "a", 0, 1))
    overlay.subscribe("s2", "a", ALL)
    overlay.env.run(until=2_000)
    account = overlay.ledger.close()
    assert account.lost_by_reason == {"queue_overflow": 3}
    assert overlay.overflow_count == 3
    assert [result.outcome for result in listener.results] == [Outcome.ABORTED]
    overlay.publish("p", CONTENT, 10)
    overlay.env.run(until=3_000)
    assert overlay.ledger.close().delivered == 5 + 2


def test_commands_are_queued_like_messages() -> None:
    """A command is served after the notifications that came before it."""
    overlay, listener = chain_overlay()
    for _ in range(10):
        overlay.publish("p", CONTENT, 10)
    overlay.obey(Command("plan", CommandPhase.ABORT, "a", 0, 1))
    overlay.env.run(until=2_000)
    assert listener.results[0].time_ms == 1_000 + 10


def test_publishing_needs_a_confirmed_advertisement() -> None:
    """A publisher can publish only while all brokers know it."""
    overlay, _ = chain_overlay()
    overlay.advertise("q", "b", ALL)
    with pytest.raises(ClientError, match="not confirmed"):
        overlay.publish("q", CONTENT, 10)
    with pytest.raises(ClientError, match="already connected"):
        overlay.advertise("p", "c", ALL)
    overlay.env.run(until=2_000)
    overlay.publish("q", CONTENT, 10)
    overlay.publishers.disconnect("q")
    with pytest.raises(ClientError, match="may not publish"):
        overlay.publish("q", CONTENT, 10)
    overlay.env.run(until=3_000)
    assert overlay.ledger.close().is_clean


def test_a_cancelled_subscription_is_owed_earlier_notifications() -> None:
    """Notifications on their way when a subscription ends are still delivered, later ones are not."""
    overlay, listener = chain_overlay()
    overlay.publish("p", CONTENT, 10)
    overlay.cancel("s")
    overlay.cancel("s")
    overlay.env.run(until=overlay.env.now + 5)
    overlay.publish("p", CONTENT, 10)
    overlay.env.run(until=2_000)
    account = overlay.ledger.close()
    assert account.is_clean
    assert (account.expected, account.delivered) == (1, 1)
    assert listener.changes == [
        ("p", Role.PUBLISHER, "a", True),
        ("s", Role.SUBSCRIBER, "c", True),
        ("s", Role.SUBSCRIBER, "c", False),
    ]


def test_the_ledger_detects_what_a_faulty_broker_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that fails to forward is detected, although its own tables and counters are consistent."""
    overlay, _ = chain_overlay()
    core = overlay.brokers["b"].core
    handle = core.handle
    monkeypatch.setattr(
        core,
        "handle",
        lambda source, message, now_ms: [] if isinstance(message, Notification) else handle(source, message, now_ms),
    )
    overlay.publish("p", CONTENT, 10)
    overlay.env.run(until=2_000)
    assert overlay.ledger.close().lost_by_reason == {"unexplained": 1}


def test_link_counters_distinguish_sent_from_received() -> None:
    """A notification that is crossing a link has been sent but not received."""
    overlay, _ = chain_overlay()
    before = overlay.link_ends["a", "b"].counters.messages_in
    overlay.publish("p", CONTENT, 100)
    overlay.env.run(until=1_005)
    end = overlay.link_ends["a", "b"]
    assert end.counters.messages_in == before + 1 == end.counters.messages_out + len(end.in_transit)
    assert len(end.in_transit) == 1
    overlay.env.run(until=1_012)
    assert end.counters.messages_in == end.counters.messages_out
    assert end.counters.notifications_out == 1
