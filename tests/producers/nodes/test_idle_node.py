"""A node without news sends by the same rule as an emulated broker, and news at once."""

from typing import cast

from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.links.run_links import Links
from tests.fuzz.nodes_under_fuzz import TREE, FakeLinks
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.node_fleet import MemoryPorts

BEGIN_MS = 1_700_000_000_000.0
FLUSH_MS = 250.0
USUAL = HeartbeatRule(FLUSH_MS, window_ms=5_000, grace_ms=2_000)


class IdleSite:
    """A node whose clock the test sets, in ms after ``BEGIN_MS``."""

    def __init__(self, heartbeats: HeartbeatRule | None) -> None:
        self.now_ms = 0.0
        self.ports = MemoryPorts()
        self.node = BrokerNode(
            core_of("n1", TREE, 1),
            self.ports,
            MemoryConnector(),
            lambda _: cast(Links, FakeLinks()),
            lambda: BEGIN_MS + self.now_ms,
            heartbeats=heartbeats,
        )
        self.node.begin()

    def flush_until(self, until_ms: float) -> list[float]:
        """Flush every 250 ms; return when that sent a batch."""
        found = []
        while self.now_ms + FLUSH_MS < until_ms:
            self.now_ms += FLUSH_MS
            self.node.flush()
            found += [batch.time_ms - BEGIN_MS for batch in self.ports.telemetry.batches]
            self.ports.telemetry.batches.clear()
        return found


def test_an_idle_node_sends_around_the_ends_of_windows() -> None:
    """Of twenty flushes in a window it sends twelve; without a rule all."""
    idle = IdleSite(USUAL)
    idle.flush_until(10_000.0)
    grace = [10_000.0 + FLUSH_MS * place for place in range(10)]
    assert idle.flush_until(15_000.0) == [*grace, 13_500.0, 14_750.0]
    every = IdleSite(None)
    assert len(every.flush_until(5_001.0)) == 20


def test_a_client_that_comes_is_reported_at_the_next_flush() -> None:
    """Also where the node would have been silent for another half second; the next pause counts from there."""
    site = IdleSite(USUAL)
    assert site.flush_until(13_000.0)[-1] == 12_250.0
    site.node.note_interest("ticks.a", is_wanted=True)
    assert site.flush_until(15_000.0) == [13_000.0, 14_250.0, 14_750.0]


def test_the_last_batch_is_always_sent() -> None:
    """Even right after a batch: it holds what was not due before."""
    site = IdleSite(USUAL)
    assert site.flush_until(13_000.0)[-1] == 12_250.0
    site.node.flush(is_last=True)
    assert len(site.ports.telemetry.batches) == 1
