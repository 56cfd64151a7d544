"""What brokers did, through telemetry, aggregation and assembly: publications, homes and deliveries."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import msgspec
import numpy as np
import pytest

from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.client import Role
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import BLOCK_SIZE
from regraft.streaming.reference_aggregator import ReferenceAggregator

WINDOW_MS = 5_000
WORKLOAD = WorkloadSettings(publisher_count=10, notifications_per_s=8.0, interested_broker_count=5, lifetime_s_mean=4.0)

Masks = dict[tuple[str, str, int], int]


class Witness(OverlayListener):
    """Records what clients see: their homes, what publishers hand over and what subscribers get."""

    def __init__(self, virtual: VirtualOverlay) -> None:
        self.homes = {name: client.home for name, client in virtual.clients.connected.items()}
        self.published: dict[int, Masks] = defaultdict(dict)  # start of the window -> masks
        self.delivered: dict[int, Masks] = defaultdict(dict)
        self.hand_overs: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._publish, self._deliver = virtual.ledger.publish, virtual.ledger.deliver
        virtual.overlay.listeners.append(self)
        virtual.ledger.publish = self.publish  # type: ignore[method-assign]
        virtual.ledger.deliver = self.deliver  # type: ignore[method-assign]

    def publish(self, notification: Notification) -> int:
        start_ms, key, bit = place_of(notification, self.homes[notification.publisher])
        self.published[start_ms][key] = self.published[start_ms].get(key, 0) | bit
        return self._publish(notification)

    def deliver(self, notification: Notification, subscription: str, now_ms: float) -> None:
        home = self.homes[subscription]
        start_ms, key, bit = place_of(notification, home)
        self.delivered[start_ms][key] = self.delivered[start_ms].get(key, 0) | bit
        self.hand_overs[start_ms][notification.publisher, home] += 1
        self._deliver(notification, subscription, now_ms)

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        self.homes[client] = home  # Even when it left: what it is still owed is delivered there.


def place_of(notification: Notification, broker: str) -> tuple[int, tuple[str, str, int], int]:
    """Return the start of its window, the key of its mask at a broker, and its bit."""
    block, bit = divmod(notification.sequence, BLOCK_SIZE)
    start_ms = int(notification.publish_ms) // WINDOW_MS * WINDOW_MS
    return start_ms, (broker, notification.publisher, block), 1 << bit


def windows_of(virtual: VirtualOverlay) -> list[ClosedWindow]:
    """Return all windows of the telemetry that was sent, as the controller sees them."""
    aggregator = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for batch in virtual.telemetry.batches:
        aggregator.take(msgspec.to_builtins(batch))
    assembler = WindowAssembler(virtual.overlay.inventory.brokers, AssemblyLimits())
    for window in aggregator.finish():
        records: list[StateRow | WindowClosed] = [*window.rows, window.marker]
        for record in records:
            assembler.add(record, int(virtual.now_ms))
    assert not assembler.refused
    return assembler.closed(int(virtual.now_ms))


@pytest.fixture(scope="module", params=[3, 8])
def seen(request: pytest.FixtureRequest) -> tuple[list[ClosedWindow], Witness]:
    """The windows of 20 s of ten brokers with churn, all of it delivered, and what truly happened."""
    seed: int = request.param
    virtual = VirtualOverlay(place_overlay(10, 4, random.Random(seed)), WORKLOAD, VirtualSettings(seed=seed))
    witness = Witness(virtual)
    virtual.run_for(20_000)
    assert virtual.finish().is_clean
    return windows_of(virtual), witness


def test_windows_hold_what_was_published_and_delivered(seen: tuple[list[ClosedWindow], Witness]) -> None:
    """V(n) is the brokers that published or delivered n, and deliveries are kept separate, bit by bit."""
    windows, witness = seen
    assert sum(window.sets.notification_count > 100 for window in windows) >= 3
    for window in windows:
        published, delivered = witness.published[window.start_ms], witness.delivered[window.start_ms]
        both = {key: published.get(key, 0) | delivered.get(key, 0) for key in {**published, **delivered}}
        truth = DeliverySets.of(window.sets.brokers, both, 5.0)
        assert (window.sets.columns, window.sets.span_s) == (truth.columns, 5.0)
        assert np.array_equal(window.sets.words, truth.words)
        only_delivered = DeliverySets.of(window.sets.brokers, delivered, 5.0, published=published).delivered
        assert np.array_equal(window.sets.delivered, only_delivered)
        assert window.local_deliveries == witness.hand_overs[window.start_ms]


def test_windows_name_the_homes_of_publishers(seen: tuple[list[ClosedWindow], Witness]) -> None:
    """Every publisher that published in a window is at its true home there."""
    windows, witness = seen
    for window in windows:
        active = {publisher for _, publisher, _ in witness.published[window.start_ms]}
        assert window.homes == {publisher: witness.homes[publisher] for publisher in active}
    assert any(len(window.homes) == WORKLOAD.publisher_count for window in windows)


def test_homes_publish_what_none_of_their_clients_wants(seen: tuple[list[ClosedWindow], Witness]) -> None:
    """Some notifications are in V(n) of their home only because they were published there, and move with it."""
    windows, _ = seen
    window = max(windows, key=lambda each: each.sets.notification_count)
    sets = window.sets
    only_published = sets.words & ~sets.delivered
    row = {broker: position for position, broker in enumerate(sets.brokers)}
    at_home = np.zeros_like(only_published)
    for column, (publisher, _) in enumerate(sets.columns):
        at_home[row[window.homes[publisher]], column] = only_published[row[window.homes[publisher]], column]
    assert np.bitwise_count(at_home).sum() > 20
    assert np.array_equal(at_home, only_published)  # Elsewhere V(n) is what was delivered.
    elsewhere = {publisher: sets.brokers[row[home] - 1] for publisher, home in window.homes.items()}
    moved = window.sets_at(elsewhere)
    assert not np.any(moved.words & at_home)
    assert np.array_equal(window.sets_at(window.homes).words, sets.words)
