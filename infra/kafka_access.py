"""How a process reaches Kafka: the one value from which all its clients are built.

Out: the options about the connection, as librdkafka's clients and as Spark want them. Building clients belongs to
:mod:`infra.kafka_clients`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """TLS and SASL of every client: none, connections are plain text. Settings of either go here and nowhere else."""

    def client_options(self) -> dict[str, str]:
        """Return it as options of librdkafka."""
        return {"security.protocol": "plaintext"}

    def spark_options(self) -> dict[str, str]:
        """Return it as options of Spark's Kafka source, which has the names of the Java client."""
        return {"kafka.security.protocol": "PLAINTEXT"}


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Where Kafka is, who asks, and how the connection is secured.

    ``bootstrap``: servers as host:port, several with commas. ``client_id``: the name in Kafka's own logs and quotas,
    and the consumer group of readers that commit nothing.
    """

    bootstrap: str
    client_id: str = "regraft"
    security: KafkaSecurity = KafkaSecurity()

    def client_options(self) -> dict[str, str]:
        """Return the connection as options of librdkafka."""
        return {"bootstrap.servers": self.bootstrap, "client.id": self.client_id, **self.security.client_options()}

    def spark_options(self) -> dict[str, str]:
        """Return the connection as options of Spark's Kafka source."""
        return {"kafka.bootstrap.servers": self.bootstrap, **self.security.spark_options()}
