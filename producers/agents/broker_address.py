"""Where an agent reaches brokers, and why it may not."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

OPEN_S_MAX = 10.0  # For a broker to accept a connection and a login.


class UpstreamError(ConnectionError):
    """The broker cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where clients of one broker connect; ``scheme`` says in which protocol."""

    broker: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    scheme: str = "nats"
