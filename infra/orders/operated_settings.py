"""What the settings of the stages that people watch and give orders to have in common; the composition fills it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.orders.order_keys import OrderSettings
from regraft.schemas.topics import DEFAULT_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class OperatedSettings:
    """Kafka, the live view, and the keys of orders."""

    # The stage's name in Kafka's own logs.
    client_id: ClassVar[str]

    # Kafka's bootstrap servers.
    bootstrap: str
    # Its TLS and SASL.
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    # Prefix of topics and live-view keys.
    namespace: str = DEFAULT_NAMESPACE
    # Where the live view is kept; none runs without one.
    redis_url: str | None = field(default=None, repr=False)
    # Its TLS and credentials.
    redis_security: RedisSecurity = field(default_factory=RedisSecurity)
    # The keys of orders.
    orders: OrderSettings = field(default_factory=OrderSettings)
    # JSON for people, reports, and the process that started the stage; none writes none.
    status_file: Path | None = None

    @property
    def kafka(self) -> KafkaAccess:
        """This stage's access to Kafka."""
        return KafkaAccess(self.bootstrap, self.client_id, self.security)

    @property
    def redis(self) -> RedisAccess | None:
        """This stage's access to the live view, None if none is configured."""
        return None if self.redis_url is None else RedisAccess(self.redis_url, self.redis_security)
