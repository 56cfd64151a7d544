"""What the parts of a client's session know of it: its moves, where it publishes and its connections to brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, Protocol

from regraft.producers.agents.nats_client import NatsClient, Subscription
from regraft.producers.agents.nats_upstream import BrokerAddress, Upstream, UpstreamOwner
from regraft.schemas.agent_note import AgentNote


class Homes(Protocol):
    """The brokers that a client uses; ``home`` is where it publishes, ``brokers`` are all that it may be taken to."""

    home: str
    upstreams: dict[str, Upstream]
    brokers: dict[str, BrokerAddress]

    async def connect_to(self, broker: str) -> Upstream:
        """Return the client's connection to a broker, new or not; raise UpstreamError if there can be none."""
        ...

    def leave_unused(self) -> None:
        """Close connections to brokers that are nobody's home; publish where all subscriptions are."""
        ...

    def restart(self, subscriptions: list[Subscription], broker: str) -> None:
        """Let subscriptions restart at a broker, as new ones."""
        ...


class Moves(Protocol):
    """The subscriptions on their way."""

    @property
    def brokers(self) -> set[str]:
        """The brokers that moving subscriptions leave or go to."""
        ...

    def lose(self, broker: str) -> None:
        """Note that a broker is gone."""
        ...


class Publishing(Protocol):
    """Where the client publishes."""

    def follow(self, homes: set[str]) -> None:
        """Publish where all subscriptions are, if that is one broker."""
        ...


class Session(UpstreamOwner, Protocol):
    """One client of an agent."""

    client: NatsClient
    counts: Counter[str]
    is_over: bool

    @property
    def homes(self) -> Homes:
        """Its connections to brokers."""
        ...

    @property
    def moves(self) -> Moves:
        """Its subscriptions on their way."""
        ...

    @property
    def publishing(self) -> Publishing:
        """Where it publishes."""
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the client, at most as long as it lasts."""
        ...

    def hold(self, reason: str) -> None:
        """Let the client wait, until each reason for it is released."""
        ...

    def release(self, reason: str) -> None:
        """Take back a reason for which the client waits."""
        ...

    def deliver(self, subscription: Subscription, raw: bytes) -> None:
        """Hand a message to the client, with those that the same broker delivers."""
        ...

    def deliver_now(self) -> None:
        """Write what has been handed to the client outside the handling of a broker's frames."""
        ...

    def write_note(self, broker: str, note: AgentNote) -> None:
        """Send a note to the node of a broker, through the broker."""
        ...

    def end(self, reason: str) -> None:
        """End the client and all its connections."""
        ...
