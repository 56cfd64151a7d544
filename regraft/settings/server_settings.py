"""Settings of the servers that the stages use: Kafka, Valkey and Spark, a table for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity, address_errors
from regraft.infra.live.redis_access import FORMS, RedisAccess, RedisSecurity
from regraft.infra.process.find_port import LOOPBACK
from regraft.schemas.topics import DEFAULT_NAMESPACE, NAMESPACE_PATTERN, TELEMETRY

LOCAL_MASTER, STANDALONE_MASTER = "local", "spark://"
MASTERS = (LOCAL_MASTER, STANDALONE_MASTER, "k8s://", "yarn")
EXECUTOR_MEMORY_MB_MIN = 512  # Spark itself requires 450.


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The Kafka cluster; the demo starts its own instead."""

    bootstrap: Annotated[str, "Kafka's servers as host:port, separated by commas"] = "127.0.0.1:9092"
    namespace: Annotated[str, "prefix of all topic names"] = DEFAULT_NAMESPACE
    telemetry_partitions: Annotated[
        int,
        "partitions of a new telemetry topic, at least 4; 0 for one per 500 brokers",
    ] = 0
    security: Annotated[KafkaSecurity, "TLS and SASL"] = field(default_factory=KafkaSecurity)

    @property
    def access(self) -> KafkaAccess:
        """How commands reach Kafka."""
        return KafkaAccess(self.bootstrap, security=self.security)

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each; none contains a secret."""
        errors = [f"security.{error}" for error in self.security.errors()]
        errors += [f"bootstrap: {error}" for error in address_errors(self.bootstrap)]
        if not NAMESPACE_PATTERN.fullmatch(self.namespace):
            errors.append(f"namespace is {self.namespace!r}: 1 to 128 letters, digits, dots, _ or -, as Kafka requires")
        if self.telemetry_partitions and self.telemetry_partitions < TELEMETRY.partitions:
            errors.append(
                f"telemetry_partitions is {self.telemetry_partitions}: must be at least {TELEMETRY.partitions}, "
                "or 0 to follow the number of brokers"
            )
        return errors


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The Valkey or Redis that holds the live view, which can be rebuilt from Kafka at any time."""

    url: Annotated[
        str | None,
        "redis://host:port/database, rediss:// for TLS, or unix://path; none for no live view",
    ] = field(default=None, repr=False)
    security: Annotated[RedisSecurity, "TLS and the ACL user"] = field(default_factory=RedisSecurity)

    @property
    def access(self) -> RedisAccess | None:
        """How to reach it, None without a live view."""
        return None if self.url is None else RedisAccess(self.url, self.security)

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each; none contains a secret."""
        access = self.access
        if access is not None and not access.is_address:
            return [f"url is not an address: give {FORMS}"]
        return [] if access is None else [f"security.{error}" for error in access.errors()]


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session of the streaming stage, unless it is started by spark-submit."""

    master: Annotated[str, "Spark's master URL"] = "local[2]"
    driver_memory_mb: Annotated[
        int | None,
        "heap of the driver; none for 1,024 MB, in local mode more with more than 833 brokers",
    ] = None
    driver_host: Annotated[str, "address at which executors of a cluster reach the driver"] = LOOPBACK
    executor_memory_mb: Annotated[
        int | None,
        "heap of each executor of a cluster; none for an amount by its share of a micro-batch",
    ] = None
    executor_cores: Annotated[
        int,
        "tasks that an executor runs at once; 0 leaves it to the cluster",
    ] = 0
    executor_python: Annotated[
        str,
        "path of the Python interpreter with Regraft on the workers; empty for the same as here",
    ] = ""
    secret_file: Annotated[
        Path | None,
        "file with the secret by which driver, master and workers of a cluster authenticate each other and "
        "encrypt their traffic",
    ] = None

    @property
    def is_local(self) -> bool:
        """True if the driver does all the work."""
        return self.master.startswith(LOCAL_MASTER)

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = []
        if not self.master.startswith(MASTERS):
            errors.append(f"master is {self.master!r}: must begin with one of {', '.join(MASTERS)}")
        elif self.driver_host == LOOPBACK and not (self.is_local or is_on_loopback(self.master)):
            errors.append(
                f"driver_host is {LOOPBACK}, where executors of {self.master} on other machines do not reach the "
                "driver: name the address at which they reach this machine"
            )
        if self.executor_memory_mb is not None and self.executor_memory_mb < EXECUTOR_MEMORY_MB_MIN:
            errors.append(
                f"executor_memory_mb is {self.executor_memory_mb}: Spark starts no executor with less than "
                f"{EXECUTOR_MEMORY_MB_MIN}"
            )
        if self.secret_file is not None and self.is_local:
            errors.append(
                f"secret_file is {self.secret_file}, but master is {self.master}, which shares its secret with nobody: "
                "leave it out, or name a cluster's master"
            )
        for name in ("executor_memory_mb", "executor_cores", "executor_python"):
            if self.is_local and getattr(self, name):
                errors.append(
                    f"{name} is {getattr(self, name)}, but master is {self.master}, which has no executors: leave it "
                    "out, or name a cluster's master"
                )
        if self.executor_cores < 0:
            errors.append(
                f"executor_cores is {self.executor_cores}: must be at least 1, or 0 for what the cluster offers"
            )
        return errors


def is_on_loopback(master: str) -> bool:
    """Return True if a cluster's master listens for this machine alone, so that all its executors are on it."""
    hosts = [each.rpartition(":")[0] for each in master.removeprefix(STANDALONE_MASTER).split(",")]
    return master.startswith(STANDALONE_MASTER) and all(host in (LOOPBACK, "localhost") for host in hosts)
