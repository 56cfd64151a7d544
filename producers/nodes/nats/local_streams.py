"""Streams of a NATS server that store only what is published at their site: others are not asked for their subjects.

A leaf link reports a stream as it reports a client, so a client that wants exactly a local stream's subject, and no
queue group, is left out too.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.schemas.wire_grammar import ANY, OWN_PREFIXES

log = structlog.get_logger(__name__)

LOOK_S = 10.0  # How often the node asks which streams there are.
ASK_AGAIN_S = 2.0  # Before the connector opens.
STREAMS_MAX = 10_000
NAMED_MAX = 10  # In the log.
INBOX_BYTES = 16
NO_ANSWER, NOT_ENABLED = "JetStream does not answer", (10_039, 10_076)  # The latter: codes of errors.
UNKNOWN = "if there are streams, they store what is published at any broker of the overlay"
CROSSES = (
    "streams store what is published at any broker of the overlay: to prevent that, list them in "
    "connectors.nats.local_streams"
)


class LocalStreams:
    """The streams of one server; ``names`` are the local ones, ``*`` for all. ``send`` sends to the server.

    ``on_change`` is called when other ``subjects`` are local than before.
    """

    def __init__(self, broker: str, names: Collection[str], send: Callable[[LocalMessage], None]) -> None:
        self.names = frozenset(names)
        self.subjects: frozenset[str] = frozenset()
        self.on_change: Callable[[], None] = lambda: None
        self._broker, self._send = broker, send
        self._inbox = f"_REGRAFT.{secrets.token_hex(INBOX_BYTES)}"
        self._is_known, self._error = False, ""
        self._found: dict[str, list[str]] = {}  # What the answers so far list: stream -> its subjects.
        self._asked_s = 0.0
        self._said: frozenset[str] = frozenset()

    def leaves_out(self, subject: str) -> bool:
        """Return True if interest in a subject may be that of a local stream."""
        return bool(self.names) and (not self._is_known or subject in self.subjects)

    async def wait(self, place: str, s_max: float) -> None:
        """Wait until the streams are known, if any is local; raise ConnectorError if that takes longer than
        ``s_max``.
        """
        until_s = time.monotonic() + s_max
        while self.names and not self._is_known:
            if time.monotonic() > until_s:
                raise ConnectorError(
                    f"the streams of {place} cannot be listed ({self._error or NO_ANSWER}): enable JetStream there "
                    "and let the node request $JS.API.STREAM.LIST, or leave connectors.nats.local_streams empty"
                )
            self.ask_again({})
            await asyncio.sleep(0.01)

    @property
    def answers(self) -> str:
        """The subject of the answers, which the connector must subscribe."""
        return f"{self._inbox}.streams"

    def ask(self) -> None:
        """Ask which streams there are; call after each connection to the server."""
        self._found = {}
        self._ask(0)

    def ask_again(self, facts: Mapping[str, Any]) -> None:
        """Ask if the last question was long ago; call every second or so, with what the server says of itself."""
        if self._is_known and not self.names:
            return
        if time.monotonic() - self._asked_s > (LOOK_S if self._is_known or not self.names else ASK_AGAIN_S):
            if not self._is_known and self._asked_s and facts.get("jetstream"):
                self._note_error(NO_ANSWER)
            self.ask()

    def receive(self, message: LocalMessage) -> bool:
        """Handle an answer; return False for any other message."""
        if message.subject != self.answers:
            return False
        try:
            self._take(json.loads(message.payload or b"{}"))
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # A server of another version.
            self._note_error(f"the list of streams cannot be read ({error!r})")
        return True

    def _take(self, answer: dict[str, Any]) -> None:
        if not answer:  # A status: nothing answers there.
            return
        if (error := answer.get("error")) and error.get("err_code") not in NOT_ENABLED:
            self._note_error(str(error.get("description", error)))
            return
        listed = answer.get("streams") or []
        for each in listed:
            self._found[str(each["config"]["name"])] = [str(one) for one in each["config"].get("subjects") or ()]
        following = int(answer.get("offset", 0)) + len(listed)
        if listed and following < min(int(answer["total"]), STREAMS_MAX):
            self._ask(following)
        else:
            self._note_all()

    def _ask(self, offset: int) -> None:
        self._asked_s = time.monotonic()
        self._send(LocalMessage("$JS.API.STREAM.LIST", json.dumps({"offset": offset}).encode(), self.answers))

    def _note_all(self) -> None:
        local = self._found.keys() if ANY in self.names else self.names & self._found.keys()
        subjects = frozenset(one for name in local for one in self._found[name])
        has_changed = not self._is_known or subjects != self.subjects
        self.subjects, self._error, self._is_known = subjects, "", True
        self._say({name: wanted for name, wanted in self._found.items() if name not in local})
        if has_changed:
            self.on_change()

    def _say(self, others: Mapping[str, list[str]]) -> None:
        """Log which streams want subjects from everywhere, if there are others than before."""
        wanting = {
            name: crossing
            for name, subjects in sorted(others.items())
            if (crossing := [one for one in subjects if not one.startswith(OWN_PREFIXES)])
        }
        if not self._said.issuperset(wanting):
            shown = dict(list(wanting.items())[:NAMED_MAX])
            log.warning("streams_cross", broker=self._broker, reason=CROSSES, count=len(wanting), streams=shown)
        self._said |= wanting.keys()

    def _note_error(self, error: str) -> None:
        if error != self._error:
            log.warning("streams_not_listed", broker=self._broker, reason=f"{error}: {UNKNOWN}")
        self._error = error
