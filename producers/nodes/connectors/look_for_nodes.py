"""Find other nodes of the overlay that a broker reaches by itself: a cluster, a leaf link, a bridge, the same server.

Nodes ask with a message on a reserved subject, and answer each other.

A node asks before its connector opens, and once in a while after that. If two are open, the one whose name comes first
stays; a node that asks before it opens gives way to any that is open. Answers contain a random number of the question,
so that one that was stored somewhere is not taken for a living node. A way that carries only questions, in one
direction, makes the node at its end unhealthy: messages arrive twice, but cannot circulate.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote

import structlog

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.safe_names import safe_name
from regraft.schemas.wire_grammar import ANY

log = structlog.get_logger(__name__)

SUBJECT = "_REGRAFT.node."  # Followed by the overlay's namespace and the node's name.
ANSWER_S_MAX = 0.5  # Until another node has answered, before a connector opens.
ASK_S, ASK_SOON_S = 60.0, 5.0  # Between two questions; the latter if something hints at another way.
HEARD_S = 2.5 * ASK_S  # A question shows for this long that there is a way to here.
NONCE_BYTES = 8
ASKS, ANSWERS, IS_OPEN = "asks", "answers", "is_open"


def node_subject(overlay: str, node: str) -> str:
    """Return the subject that belongs to a node: one token for its overlay, one for its name."""
    return f"{SUBJECT}{safe_name(overlay)}.{safe_name(node)}"


def loop_error(node: str) -> str:
    """Return what it means that the broker reaches another node by itself, and what to do."""
    return (
        f"the broker reaches node {node} of the same overlay on its own, so messages would arrive twice or circulate: "
        "remove the bridge, leaf link, gateway or federation between the two brokers, or leave one node for a cluster"
    )


class NodeSearch:
    """The search of one connector. ``send`` publishes at its broker; ``on_found`` is called if the connector must give
    way.
    """

    def __init__(self, overlay: str, node: str, send: Callable[[LocalMessage], None]) -> None:
        self.subject = node_subject(overlay, node)
        self.found = ""
        self.is_open = False
        self.on_found: Callable[[str], None] = lambda _node: None
        self._prefix = node_subject(overlay, "")
        self._node, self._send = unquote(self.subject[len(self._prefix) :]), send  # As others read it.
        self.subjects = f"{self._prefix}{ANY}"  # Of all nodes of the overlay.
        self._nonce, self._asked_s = "", 0.0
        self._heard, self._heard_s = "", -HEARD_S
        self._answered: asyncio.Event | None = None

    @property
    def heard(self) -> str:
        """Return an open node whose questions arrive here, though it may not get the answers, "" if there is none."""
        return self._heard if time.monotonic() - self._heard_s < HEARD_S else ""

    def node_of(self, subject: str) -> str:
        """Return the other node to which a subject belongs, "" if it belongs to none or to this one."""
        if not subject.startswith(self._prefix) or subject in (self.subject, self.subjects):
            return ""
        name = unquote(subject[len(self._prefix) :])
        return name if len(name) <= NAME_LENGTH_MAX else ""

    async def look(self) -> None:
        """Ask, and wait for answers; raise ConnectorError if another node is there to which this one gives way.

        After a reconnect of a connector that was open, nothing waits: messages that the broker has kept must be taken.
        """
        self._answered = asyncio.Event()
        self.ask()
        if self.is_open:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._answered.wait()
        if self._answered.is_set():  # Also if this process was held up, and both are due.
            raise ConnectorError(loop_error(self.found))
        self.found, self.is_open = "", True

    def ask(self) -> None:
        """Ask whether another node is there."""
        self._nonce, self._asked_s = secrets.token_hex(NONCE_BYTES), time.monotonic()
        self._publish({ASKS: self._nonce, IS_OPEN: self.is_open})

    def ask_again(self, *, is_hinted: bool = False) -> None:
        """Ask if the last question was long ago; sooner if something hints at another way."""
        if time.monotonic() - self._asked_s > (ASK_SOON_S if is_hinted else ASK_S):
            self.ask()

    def receive(self, message: LocalMessage) -> bool:
        """Handle a question or answer of another node; return False for any other message."""
        if not message.subject.startswith(SUBJECT):
            return False
        if node := self.node_of(message.subject):
            try:
                said = json.loads(message.payload)
                asks, answers, is_open = (said.get(name) for name in (ASKS, ANSWERS, IS_OPEN))
            except (ValueError, AttributeError, RecursionError):  # Some client's own: it says nothing.
                return True
            if isinstance(asks, str) and len(asks) == 2 * NONCE_BYTES:
                self._publish({ANSWERS: asks, IS_OPEN: self.is_open})
                if is_open is True:
                    self._hear(node)
            elif answers == self._nonce and self._nonce:
                self.note(node, is_open=is_open is True)
        return True

    def _hear(self, node: str) -> None:
        if self.heard != node:
            log.warning("node_heard", node=self._node, reason=loop_error(node))
        self._heard, self._heard_s = node, time.monotonic()

    def note(self, node: str, *, is_open: bool) -> None:
        """Note another node; give way if only the other is open, or else if the other's name comes first."""
        gives_way = node < self._node if is_open == self.is_open else is_open
        if not gives_way:
            return
        self.found = node
        if self._answered is not None:
            self._answered.set()
        if self.is_open:
            self.is_open = False
            self.on_found(node)

    def _publish(self, content: dict[str, object]) -> None:
        self._send(LocalMessage(self.subject, json.dumps(content).encode()))
