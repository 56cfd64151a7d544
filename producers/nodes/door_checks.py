"""Check what enters through a door before the node sees it, and what leaves before it is written.

In: messages and interest of a door's broker, and messages for it. Out: those that the grammar of protocol lines allows
(:mod:`schemas.wire_grammar`); the others are counted by reason, and their broker may forget them. So nothing refused is
met twice, and what is behind it flows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import structlog

from regraft.infra.log_sparsely import is_logged
from regraft.producers.nodes.doors import LocalMessage
from regraft.schemas.wire_grammar import OWN_PREFIXES, PAYLOAD_BYTES_MAX, block_fault, filter_fault, subject_fault

log = structlog.get_logger(__name__)

BAD_SUBJECT, BAD_HEADERS, BAD_REPLY, TOO_LARGE = "bad_subject", "bad_headers", "reply_refused", "payload_too_large"
BAD_FILTER, OWN = "bad_filter", "own_subject"


class DoorChecks:
    """The checks of one door. ``release`` lets its broker forget a message with a receipt."""

    def __init__(self, broker: str, counts: Counter[str], release: Callable[[int], None]) -> None:
        self.counts = counts
        self._broker, self._release = broker, release
        self._on_interest: Callable[[str, bool], None] = lambda _subject, _wanted: None
        self._on_message: Callable[[LocalMessage], None] = lambda _: None

    def begin(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Pass on to these what is checked from now on."""
        self._on_interest, self._on_message = on_interest, on_message

    def note_interest(self, subject: str, is_wanted: bool) -> None:
        """Pass on that a subject is wanted, or no longer is; never one that no message can match."""
        if self.may_want(subject):
            self._on_interest(subject, is_wanted)

    def may_want(self, subject: str) -> bool:
        """Return True if messages can match a subject; what can match none is counted, but for subjects of servers."""
        fault = filter_fault(subject)
        if fault and not subject.startswith(OWN_PREFIXES):  # Servers want and publish these all the time.
            self.refuse(BAD_FILTER, fault)
        return not fault

    def note_message(self, message: LocalMessage) -> None:
        """Pass on a message that a client has published; the broker may forget one that is refused."""
        checked = self.checked(message)
        if checked is not None:
            self._on_message(checked)
        elif message.receipt:
            self._release(message.receipt)

    def checked(self, message: LocalMessage) -> LocalMessage | None:
        """Return a message as it may cross, or be written to the broker: without its reply if that is no subject.

        None if it may not, which is counted.
        """
        if len(message.payload) > PAYLOAD_BYTES_MAX:
            self.refuse(TOO_LARGE, f"{len(message.payload)} bytes: at most {PAYLOAD_BYTES_MAX} are carried")
        elif fault := subject_fault(message.subject):
            if message.subject.startswith(OWN_PREFIXES):
                self.counts[OWN] += 1
            else:
                self.refuse(BAD_SUBJECT, fault)
        elif fault := block_fault(message.headers):
            self.refuse(BAD_HEADERS, fault)
        elif message.reply and (fault := subject_fault(message.reply)):
            self.refuse(BAD_REPLY, fault)
            return replace(message, reply="")
        else:
            return message
        return None

    def refuse(self, what: str, reason: str) -> None:
        """Count something refused; a door does so for what has no form of a message or filter at all."""
        self.counts[what] += 1
        count = self.counts[what]
        if is_logged(count):
            log.warning("input_refused", broker=self._broker, what=what, reason=reason, count=count)
