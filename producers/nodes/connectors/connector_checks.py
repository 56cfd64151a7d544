"""Check what enters through a connector before the node sees it, and what leaves before it is written.

In: messages and interest of a connector's broker, and messages for it. Out: those that the grammar of protocol lines
allows (:mod:`schemas.wire_grammar`); the others are counted by reason, and their broker may forget them. So nothing
refused is met twice, and what is behind it flows.

What the overlay itself has handed over to a broker does not cross again (:mod:`producers.nodes.connectors.stamps`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.groups_once import parts_of
from regraft.producers.nodes.connectors.look_for_nodes import NodeSearch, loop_error
from regraft.producers.nodes.connectors.stamps import Stamp, Stamps
from regraft.schemas.wire_grammar import OWN_PREFIXES, PAYLOAD_BYTES_MAX, block_error, filter_error, subject_error

log = structlog.get_logger(__name__)

BAD_SUBJECT, BAD_HEADERS, BAD_REPLY, TOO_LARGE = "bad_subject", "bad_headers", "reply_refused", "payload_too_large"
BAD_FILTER, OWN = "bad_filter", "own_subject"
RETURNED, BY_ANOTHER, CLOSED = "returned", "carried_by_another", "connector_closed"
LOOP_S = 60.0  # A node is unhealthy for this long after another has carried a message here.


class ConnectorChecks:
    """The checks of one connector. ``release`` lets its broker forget a message with a receipt.

    ``overlay`` is the overlay's namespace, by which its own messages are known; "" behind a connector, which has
    looked. ``search`` finds other nodes that the broker reaches by itself.
    """

    def __init__(
        self, broker: str, counts: Counter[str], release: Callable[[int], None], overlay: str = "",
        search: NodeSearch | None = None,
    ) -> None:  # fmt: skip
        self.counts = counts
        self._stamps, self._search = Stamps(overlay, broker) if overlay else None, search
        self._carried_by, self._carried_s = "", -LOOP_S
        self._broker, self._release = broker, release
        self._on_interest: Callable[[str, bool], None] = lambda _subject, _wanted: None
        self._on_message: Callable[[LocalMessage], None] = lambda _: None

    def begin(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Pass on to these what is checked from now on."""
        self._on_interest, self._on_message = on_interest, on_message

    def note_interest(self, subject: str, is_wanted: bool) -> None:
        """Pass on that a subject is wanted, or no longer is, maybe by a group; never one that no message can match."""
        if self.may_want(parts_of(subject)[0]):
            self._on_interest(subject, is_wanted)

    def may_want(self, subject: str) -> bool:
        """Return True if messages can match a subject; what can match none is counted, but for subjects of servers."""
        error = filter_error(subject)
        if error and not subject.startswith(OWN_PREFIXES):  # Servers want and publish these all the time.
            self.refuse(BAD_FILTER, error)
        return not error

    def note_message(self, message: LocalMessage) -> None:
        """Pass on a message that a client has published; the broker may forget one that is refused."""
        checked = None if self._is_left_out(message) else self.checked(message)
        if checked is not None:
            self._on_message(checked)
        elif message.receipt:
            self._release(message.receipt)

    def _is_left_out(self, message: LocalMessage) -> bool:
        """Return True if no client has published the message, but a node of the overlay, or if the connector
        is closed.
        """
        if self._search is not None and self._search.receive(message):
            return True
        if self._search is not None and not self._search.is_open and not message.receipt:
            self.counts[CLOSED] += 1
            return True
        stamp = self._stamps.met(message) if self._stamps is not None else None
        return stamp is not None and self._note_carried(stamp)

    def is_carried(self, subject: str, headers: Mapping[str, Any]) -> bool:
        """Return True if the overlay has handed a message over, which is counted."""
        value = headers.get(self.stamp_header)
        stamp = self._stamps.read(value, subject) if self._stamps is not None and isinstance(value, str) else None
        return stamp is not None and self._note_carried(stamp)

    def _note_carried(self, stamp: Stamp) -> bool:
        if stamp.broker == self._broker:  # A queue or a stream holds what is handed over, too.
            self.counts[RETURNED] += 1
            return True
        self._carried_by, self._carried_s = stamp.broker, time.monotonic()
        self.refuse(BY_ANOTHER, loop_error(stamp.broker))
        return True

    @property
    def error(self) -> str:
        """Return what is wrong around the broker, "" if nothing is known: another way to a node of the overlay."""
        if self._search is not None and (node := self._search.found or self._search.heard):
            return loop_error(node)
        return loop_error(self._carried_by) if time.monotonic() - self._carried_s < LOOP_S else ""

    @property
    def stamp_header(self) -> str:
        """Return the name of the header that holds a stamp."""
        return self._stamps.header if self._stamps is not None else ""

    def stamp_of(self, message: LocalMessage) -> tuple[str, str]:
        """Return name and value of the header that is the stamp of a message about to be handed over."""
        return self.stamp_header, self._stamps.stamp_of(message) if self._stamps is not None else ""

    def checked(self, message: LocalMessage) -> LocalMessage | None:
        """Return a message as it may cross, or be written to the broker: without its reply if that is no subject.

        None if it may not, which is counted.
        """
        if len(message.payload) > PAYLOAD_BYTES_MAX:
            self.refuse(TOO_LARGE, f"{len(message.payload)} bytes: at most {PAYLOAD_BYTES_MAX} are carried")
        elif error := subject_error(message.subject):
            if message.subject.startswith(OWN_PREFIXES):
                self.counts[OWN] += 1
            else:
                self.refuse(BAD_SUBJECT, error)
        elif error := block_error(message.headers):
            self.refuse(BAD_HEADERS, error)
        elif message.reply and (error := subject_error(message.reply)):
            self.refuse(BAD_REPLY, error)
            return replace(message, reply="", headers=self._cleared(message.headers))
        else:
            block = self._cleared(message.headers)
            return message if block is message.headers else replace(message, headers=block)
        return None

    def _cleared(self, block: bytes) -> bytes:
        return self._stamps.cleared(block) if self._stamps is not None else block

    def refuse(self, what: str, reason: str) -> None:
        """Count something refused; a connector does so for what has no form of a message or filter at all."""
        count_logged(self.counts, what, log.warning, "input_refused", broker=self._broker, what=what, reason=reason)
