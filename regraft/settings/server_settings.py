"""Settings of the servers that the stages work with: Kafka, Valkey and Spark, each one table of the settings.

In: nothing. Out: frozen values with their defaults. Where they are read from belongs to ``run_settings``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from regraft.infra.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.redis_access import RedisAccess, RedisSecurity
from regraft.schemas.topics import DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The Kafka cluster; the demo starts one of its own instead.

    ``bootstrap``: its servers as host:port, several with commas. ``namespace``: prefix of all topic names.
    ``security``: TLS and SASL.
    """

    bootstrap: str = "127.0.0.1:9092"
    namespace: str = DEFAULT_NAMESPACE
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def access(self) -> KafkaAccess:
        """How commands reach Kafka."""
        return KafkaAccess(self.bootstrap, security=self.security)

    def faults(self) -> list[str]:
        """Return what is wrong, one sentence each; no secret is part of any."""
        return [f"security.{fault}" for fault in self.security.faults()]


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The Valkey or Redis that holds the live view, which can be rebuilt from Kafka at any time.

    ``url``: redis://host:port/database, rediss:// with TLS, or unix://path; the credentials may stand in it, and are
    better kept where security says. The value none runs without a live view. ``security``: TLS and the ACL user.
    """

    url: str | None = field(default=None, repr=False)
    security: RedisSecurity = field(default_factory=RedisSecurity)

    @property
    def access(self) -> RedisAccess | None:
        """How it is reached, None without a live view."""
        return None if self.url is None else RedisAccess(self.url, self.security)

    def faults(self) -> list[str]:
        """Return what is wrong, one sentence each; no secret is part of any."""
        return [] if self.access is None else [f"security.{fault}" for fault in self.access.faults()]


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session of the streaming stage, where it is not started by spark-submit.

    ``master``: Spark's master URL. ``driver_memory_mb``: heap of the driver, in which local mode does all its work;
    None takes 1,024 MB and, in a fleet of more than 166 brokers, 40 MB more for each 1,000 telemetry records that a
    micro-batch may hold beyond 20,000. ``driver_host``: the address at which executors of a cluster reach the driver.
    ``executor_memory_mb``: heap of each executor of a cluster.
    """

    master: str = "local[2]"
    driver_memory_mb: int | None = None
    driver_host: str = "127.0.0.1"
    executor_memory_mb: int = 1_024
