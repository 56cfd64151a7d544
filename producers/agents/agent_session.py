"""What the parts of a client's session know of it: its moves, where it publishes and its connections to brokers.

What differs between protocols is behind :class:`Session`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.schemas.agent_note import AgentNote
from regraft.schemas.stay_reasons import StayReason


class Upstream(Protocol):
    """One connection to a broker in the place of a client."""

    broker: str
    is_ready: bool
    is_closing: bool
    transport: asyncio.Transport | None

    def close(self) -> None:
        """End the connection; what was written is sent."""


AnUpstream = TypeVar("AnUpstream", bound=Upstream)


class Subscription(Protocol):
    """One of the client's; ``number`` is the agent's, -1 if it stays."""

    home: str
    number: int

    @property
    def words(self) -> list[str]:
        """What it subscribes, word by word."""


class Client(Protocol):
    """What is known of the client; ``stays_because`` is None if it may move."""

    name: str
    stays_because: StayReason | None
    has_published: bool

    @property
    def stays_partly(self) -> StayReason | None:
        """Why the client may not move, or nothing that it subscribes."""

    @property
    def subscriptions(self) -> Mapping[Any, Subscription]:
        """Its subscriptions."""

    def numbered(self, number: int) -> Subscription | None:
        """Return the subscription with a number of the agent's."""

    def has_ended(self, number: int) -> bool:
        """Return True for the number of a subscription that has ended."""

    def renumber(self, subscription: Any) -> None:
        """Give a subscription a number that no earlier one had: it restarts."""


class Moves(Protocol):
    """The subscriptions on their way."""

    @property
    def brokers(self) -> set[str]:
        """The brokers that moving subscriptions leave or go to."""

    def lose(self, broker: str) -> None:
        """Note that a broker is gone."""


class Publishing(Protocol):
    """Where the client publishes."""

    def follow(self) -> None:
        """Publish where subscriptions have moved."""

    def lose(self, broker: str) -> None:
        """Note that the connection to a broker is gone."""


class Session(Protocol):
    """One client of an agent."""

    counts: Counter[str]
    is_over: bool
    moves: Moves
    publishing: Publishing
    client: Client

    @property
    def reads_nothing(self) -> bool:
        """Return True while nothing is read from brokers, since the client takes no more."""

    # --- its connections to brokers ----------------------------------------------------------------------------------

    def new_upstream(self, address: BrokerAddress) -> Any:
        """Return a connection to a broker that is not open."""

    async def log_in(self, upstream: Any) -> None:
        """Open a connection as the client, where notes reach the agent; raise UpstreamError if that is refused."""

    def subscribe(self, upstream: Any, subscription: Any, name: str = "", epoch: int = -1) -> None:
        """Subscribe at a broker; a plan to ``epoch`` brings the overlay's subscription ``name`` there."""

    def unsubscribe(self, upstream: Any, subscription: Any) -> None:
        """End a subscription at a broker."""

    def write_note(self, broker: str, note: AgentNote) -> None:
        """Send a note to the node of a broker, through the broker."""

    def want_flush(self, upstream: Any, *, is_wanted: bool) -> None:
        """Ask a broker for the agent's own messages through the overlay, or no longer."""

    def send_flush(self, upstream: Any, mark: int) -> None:
        """Publish such a message behind everything that the client has published."""

    def note_connected(self, upstream: Any) -> None:
        """Note that there is one more connection to a broker."""

    # --- the client --------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the client, at most as long as it lasts."""

    def hold(self, reason: str) -> None:
        """Let the client wait, until each reason for it is released."""

    def release(self, reason: str) -> None:
        """Take back a reason for which the client waits."""

    def deliver(self, subscription: Any, raw: Any) -> None:
        """Hand a message to the client, with those that the same broker delivers."""

    def deliver_now(self) -> None:
        """Write what has been handed to the client outside the handling of a broker's frames."""

    def end(self, reason: str) -> None:
        """End the client and all its connections."""
