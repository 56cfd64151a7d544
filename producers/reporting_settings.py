"""What the settings of the emulator and of nodes have in common: where Kafka is, and how brokers report."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.infra.kafka.kafka_access import KafkaSecurity
from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.schemas.sampled_blocks import Sampling
from regraft.schemas.topics import DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class ReportingSettings:
    """Where Kafka and the inventory are, and what brokers report."""

    # Kafka servers as host:port.
    bootstrap: str
    # The brokers and costs, as JSON, the same for all nodes.
    inventory_path: Path
    _: KW_ONLY
    # Prefix of the topic names.
    namespace: str = DEFAULT_NAMESPACE
    # Pause between two telemetry batches of a broker with news: twenty batches in a window of 5 s, so that one late
    # batch does not make it incomplete. The emulator's is longer on a faster clock, at most a second, as each is a
    # Kafka record.
    flush_ms: float = 250.0
    # Length and grace of the job's windows, as in streaming: a broker without news sends at their ends, less between.
    # If the job has others, it may wait for a node for up to 1.25 s, but misses it in no window of two seconds or more.
    window_ms: int = 5_000
    grace_ms: int = 2_000
    # Pause between two polls for commands.
    command_poll_ms: float = 20.0
    # How long telemetry and results wait while Kafka is unreachable.
    kafka_outage_s_max: float = 600.0
    metrics_port: Annotated[
        int | None,
        "port for /metrics, /health and /ready; none opens no port",
    ] = None
    # Host to listen on for metrics.
    metrics_host: str = "127.0.0.1"
    # Kafka's TLS and SASL.
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    # The share of all notifications that are reported in full.
    sample_share: float = 1.0
    # How many consecutive notifications of a publisher are sampled together, 4, 8, 16, 32 or 64: about as many as it
    # publishes in a second. Default 4: longer runs save more for busy publishers, short ones show more of slow ones.
    sample_run: int = 4
    # Over how many seconds deliveries of all other notifications are counted together: five times fewer cells, and a
    # window of 5 s is the shortest that operators have reason to take. With other windows, a divisor of theirs.
    sample_counts_s: int = 5

    @property
    def sampling(self) -> Sampling:
        """What brokers report in full."""
        return Sampling.of(self.sample_share, self.sample_counts_s, self.sample_run)

    @property
    def heartbeats(self) -> HeartbeatRule:
        """Which batches without news a broker sends."""
        return HeartbeatRule(self.flush_ms, self.window_ms, self.grace_ms)
