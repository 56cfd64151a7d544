"""Inboxes of NATS clients: the overlay learns of one when the first request with a reply to it crosses, not before.

In: interest of local clients, and their messages. Out: the same, but interest in an inbox only once a message asks for
a reply there. That message waits until the overlay knows the inbox, so that its answer finds the way; it may cross
after later ones of the same publisher.

Each connection that ever made a request has an inbox. Most requests are answered by the server they were sent to, and
every subject that a client wants is known to all brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from regraft.producers.nodes.connectors.connector import LocalMessage

PREFIX = "_INBOX."
WAIT_S_MAX = 2.0  # Then the message crosses; its answer may be lost.
ASLEEP_MAX = 100_000  # Further inboxes are known to the overlay at once.
WAITING_MAX = 1_000  # Messages for one inbox; further ones wait for nothing.


class ReplyInboxes:
    """The inboxes of one broker's clients. ``want`` takes interest, ``pass_on`` messages."""

    def __init__(self, want: Callable[[str, bool], None], pass_on: Callable[[LocalMessage], None]) -> None:
        self._want, self._pass_on = want, pass_on
        self._asleep: dict[str, None] = {}
        self._waiting: dict[str, tuple[float, list[LocalMessage]]] = {}  # Inbox -> until when, and what waits for it.

    def note_interest(self, subject: str, is_wanted: bool) -> None:
        """Note that local clients want a subject, or no longer do."""
        if is_wanted and subject.startswith(PREFIX) and len(self._asleep) < ASLEEP_MAX:
            self._asleep[subject] = None
        elif is_wanted or subject not in self._asleep:
            self._want(subject, is_wanted)
            if not is_wanted:
                self._release(subject)
        else:
            del self._asleep[subject]

    def take(self, message: LocalMessage) -> None:
        """Pass on what a local client has published, at once unless its reply needs an inbox to be known."""
        inbox = self._inbox_of(message.reply)
        if not inbox:
            self._pass_on(message)
        elif inbox in self._asleep:
            del self._asleep[inbox]
            self._waiting[inbox] = time.monotonic() + WAIT_S_MAX, [message]
            self._want(inbox, True)
        else:
            self._waiting[inbox][1].append(message)

    def note_confirmed(self, subject: str) -> None:
        """Note that all brokers know a subject."""
        if subject in self._waiting:
            self._release(subject)

    def release_overdue(self) -> None:
        """Pass on what has waited for too long; to be called often."""
        if self._waiting:
            now_s = time.monotonic()
            for subject in [subject for subject, (until_s, _) in self._waiting.items() if now_s > until_s]:
                self._release(subject)

    def _inbox_of(self, reply: str) -> str:
        """Return the inbox that a reply goes to, if the overlay does not know it yet."""
        if not reply.startswith(PREFIX):
            return ""
        parent = reply.rpartition(".")[0]
        for subject in (reply, f"{parent}.*", f"{parent}.>"):
            if subject in self._asleep or len(self._waiting.get(subject, (0.0, ()))[1]) in range(1, WAITING_MAX):
                return subject
        return ""

    def _release(self, subject: str) -> None:
        for message in self._waiting.pop(subject, (0.0, []))[1]:
            self._pass_on(message)
