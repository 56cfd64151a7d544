"""Telemetry is true: batches without gaps, cells that add up to the ledger, and consistent counters."""

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.client import Role
from regraft.schemas.codec import decode, encode
from regraft.schemas.telemetry import TelemetryBatch

ALL_BITS = (1 << 64) - 1
WORKLOAD = WorkloadSettings(publisher_count=8, notifications_per_s=20.0, interested_broker_count=4, lifetime_s_mean=3.0)


@pytest.fixture(scope="module")
def virtual() -> VirtualOverlay:
    """Ten brokers after ten seconds of traffic."""
    overlay = VirtualOverlay(place_overlay(10, 4, random.Random(3)), WORKLOAD, VirtualSettings(seed=3))
    overlay.run_for(10_000)
    overlay.finish()
    return overlay


def batches_by_broker(virtual: VirtualOverlay) -> dict[str, list[TelemetryBatch]]:
    found: dict[str, list[TelemetryBatch]] = defaultdict(list)
    for batch in virtual.telemetry.batches:
        found[batch.broker].append(batch)
    return found


def test_batches_are_gapless_and_staggered(virtual: VirtualOverlay) -> None:
    """Each broker counts its batches from 0, one every 250 ms, and no two brokers start together."""
    found = batches_by_broker(virtual)
    assert len(found) == 10
    for batches in found.values():
        assert [batch.sequence for batch in batches] == list(range(len(batches)))
        gaps = {after.time_ms - before.time_ms for before, after in pairwise(batches[:-1])}
        assert gaps == {250}
        assert {batch.boot for batch in batches} == {int(virtual.settings.start_ms)}
    assert len({batches[0].time_ms for batches in found.values()}) == 10


def test_cells_add_up_to_the_account(virtual: VirtualOverlay) -> None:
    """All cells together hold exactly what was published, each notification at one broker, and what was delivered."""
    published: dict[tuple[str, str, int, int], int] = defaultdict(int)
    masks: dict[tuple[str, str, int, int], int] = defaultdict(int)
    deliveries: dict[tuple[str, str, int, int], int] = defaultdict(int)
    for batch in virtual.telemetry.batches:
        for cell in batch.deliveries:
            key = (batch.broker, cell.publisher, cell.block, cell.second)
            published[key] |= cell.published & ALL_BITS
            masks[key] |= cell.mask & ALL_BITS
            deliveries[key] = max(deliveries[key], cell.local_deliveries)
    account = virtual.ledger.snapshot()
    anywhere: dict[tuple[str, int, int], int] = defaultdict(int)
    for (_, *name), mask in published.items():
        anywhere[tuple(name)] |= mask
    assert sum(mask.bit_count() for mask in anywhere.values()) == account.published
    assert sum(mask.bit_count() for mask in published.values()) == account.published
    for (_, *name), mask in masks.items():
        assert mask & ~anywhere[tuple(name)] == 0
    assert sum(deliveries.values()) == account.delivered + account.concurrent
    assert 0 < sum(mask.bit_count() for mask in masks.values()) <= account.delivered + account.concurrent


def test_counters_never_fall_and_are_consistent(virtual: VirtualOverlay) -> None:
    """Entered minus left is what waits, and the sum over links of deliveries is what brokers took from links."""
    last: dict[tuple[str, str], tuple[int, int, int]] = {}
    for batch in virtual.telemetry.batches:
        for sample in batch.queues:
            assert sample.messages_in - sample.messages_out == sample.queue_length <= sample.queue_length_max
            assert sample.notifications_out <= sample.messages_out
            before = last.get((batch.broker, sample.peer), (0, 0, 0))
            counters = last[batch.broker, sample.peer] = (sample.messages_in, sample.messages_out, sample.wait_ms)
            assert all(earlier <= later for earlier, later in zip(before, counters, strict=True))
    assert {peer for _, peer in last} == {"", *virtual.overlay.brokers}
    for (broker, peer), (_, messages_out, wait_ms) in last.items():
        # Messages wait at busy brokers; links without a bandwidth let nothing wait.
        assert (wait_ms > 0) == (not peer), (broker, peer, messages_out)


def test_probes_cover_live_links_near_their_rtt(virtual: VirtualOverlay) -> None:
    """Each batch probes each link of its broker, with a jitter of a few per cent around the measured RTT."""
    inventory = virtual.overlay.inventory
    for batch in virtual.telemetry.batches:
        assert tuple(probe.peer for probe in batch.probes) == inventory.bootstrap.neighbours[batch.broker]
        for probe in batch.probes:
            rtt_ms = 2 * inventory.cost_of_link(batch.broker, probe.peer)
            assert probe.rtt_ms == pytest.approx(rtt_ms, rel=0.15)


def test_client_changes_are_reported_once_and_the_register_is_current(virtual: VirtualOverlay) -> None:
    """Every client connected once and left at most once; the register holds the connected ones."""
    changes = [change for batch in virtual.telemetry.batches for change in batch.clients]
    counts = Counter((change.client, change.sequence) for change in changes)
    assert set(counts.values()) == {1}
    came = {client for client, sequence in counts if sequence == 0}
    left = {client for client, sequence in counts if sequence == 1}
    assert left < came
    assert came - left == set(virtual.clients.connected)
    roles = Counter(client.role for client in virtual.clients.connected.values())
    assert roles == {Role.PUBLISHER: 8, Role.SUBSCRIBER: 32}


def test_an_empty_batch_is_the_heartbeat() -> None:
    """A broker without traffic still reports that it is alive."""
    idle = VirtualOverlay(place_overlay(3, 2, random.Random(1)))
    idle.run_for(1_000)
    batches = idle.telemetry.batches
    assert len(batches) == 3 * 3 + 2  # The last broker's fourth batch is due at the end itself.
    assert all(not batch.deliveries and not batch.clients for batch in batches)


def test_every_batch_survives_its_encoding(virtual: VirtualOverlay) -> None:
    """Decoding returns what was sent to Kafka."""
    for batch in list(virtual.telemetry.batches)[:50]:
        assert decode(encode(batch), TelemetryBatch) == batch
    for client in virtual.clients.connected.values():
        assert decode(encode(client), type(client)) == client
