"""A connector connects a node to the real broker next to it, whose clients know nothing of nodes.

In: what local clients want and publish. Out: what others have published. Each kind of broker has its own connector:
:mod:`producers.nodes.nats.nats_connector`, :mod:`producers.nodes.mqtt.mqtt_connector` and
:mod:`producers.nodes.amqp.amqp_connector`. The overlay's side belongs to the node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from regraft.producers.nodes.connectors.roaming_clients import RoamingClients
from regraft.schemas.agent_note import AgentNote


@dataclass(frozen=True, slots=True)
class LocalMessage:
    """A message that a client has published; ``headers`` is the block as the broker has it, empty if there is none.

    ``receipt`` is to be released at the connector once the message is safe; 0 if the connector does not wait for that.
    ``publisher`` and ``number`` identify a message of the overlay that is handed over, published at ``home``.
    ``groups_excluded`` are queue groups that handle it at another broker, ``agents`` those of subscriptions beside
    agents that get it, and ``only_for`` such subscriptions if nobody else does. ``apart_for`` are those of them that a
    plan is bringing here; ``epoch`` is the overlay's when it was published.
    """

    subject: str
    payload: bytes
    reply: str = ""
    headers: bytes = b""
    receipt: int = 0
    publisher: str = ""
    number: int = 0
    groups_excluded: frozenset[str] = frozenset()
    home: str = ""
    agents: frozenset[str] = frozenset()
    only_for: tuple[str, ...] = ()
    apart_for: tuple[str, ...] = ()
    epoch: int = -1


class ConnectorError(RuntimeError):
    """The real broker cannot be used; the message says why and what to do."""


class NoteLine(Protocol):
    """The line to agents at a broker; ``on_note`` receives what the agent of a client, named first, has to say.

    ``on_open`` is called when the line is there again: notes may have been lost.
    """

    overlay: str
    on_note: Callable[[str, AgentNote], None]
    on_open: Callable[[], None]

    def write(self, subscription: str, note: AgentNote) -> None:
        """Send a note to the agent of a subscription."""


class Connector(Protocol):
    """The way to one real broker.

    ``on_interest`` is called once with True when a first local client wants a subject, including those wanted before
    the connector was opened, and once with False when the last one leaves. ``on_message`` receives what local clients
    publish, never what the node handed over. ``counts`` counts dropped messages by reason. ``groups_once`` are queue
    groups that handle each message once in the whole overlay: their interest is reported under the names of
    :func:`producers.nodes.groups_once.key_of`. ``agents`` is None where there can be none.
    """

    counts: Counter[str]
    groups_once: frozenset[str]
    agents: NoteLine | None

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the connector; raise ConnectorError if the broker cannot be reached."""

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the local clients that want it; return False if it was dropped."""

    def release(self, receipt: int) -> None:
        """Note that the message with this receipt is safe: its broker may forget it."""

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Ask for messages with further subjects; return what completes once they will arrive, None if they do now."""

    def ask_only(self, subjects: Collection[str]) -> None:
        """Ask for messages with these subjects, and no longer for others; until the first call, for all."""

    @property
    def is_open(self) -> bool:
        """Return True if the broker is connected."""

    @property
    def error(self) -> str:
        """Return what is wrong around the broker although it is connected, "" if nothing is known."""

    @property
    def roaming(self) -> RoamingClients | None:
        """Return what is known of clients that may have a session at several brokers, None where there are none."""

    async def close(self) -> None:
        """Close the connector."""


class PlainConnector:
    """What a connector has of the rest of :class:`Connector` if its broker sends it everything, and has nothing beyond
    that.
    """

    groups_once: frozenset[str] = frozenset()
    roaming: RoamingClients | None = None
    agents: NoteLine | None = None

    @property
    def error(self) -> str:
        """Return "": nothing is known."""
        return ""

    def release(self, receipt: int) -> None:
        """Do nothing: no message has a receipt."""

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Do nothing: everything arrives."""

    def ask_only(self, subjects: Collection[str]) -> None:
        """Do nothing: everything arrives."""
