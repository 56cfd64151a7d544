"""Durable ingress from a JetStream stream: stored messages are taken over the leaf link and acknowledged once safe.

In: the server's messages to the node's own subjects. Out: messages with receipts, and requests to JetStream's API.
Bytes and the connection belong to :mod:`producers.nodes.nats_door`.

The stream keeps a durable consumer for the node, so that unacknowledged messages are delivered again after the node or
the server was away. Each message has a ``Nats-Msg-Id``, by which a stream that stores it recognises duplicates.

Nobody can guess the subject of an answer, or a message's id before the message exists: the one is random, and the other
contains when the stream stored it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.nodes.doors import LocalMessage
from regraft.producers.nodes.nats_protocol import with_header
from regraft.producers.nodes.subject_filters import SubjectError, content_of, filter_of

log = structlog.get_logger(__name__)

BATCH = 500  # Messages per request, and the most under way to the overlay.
EXPIRES_S = 5.0
ACK_WAIT_S = 10.0
ASK_AGAIN_S = 2 * EXPIRES_S
NANOSECONDS = 1_000_000_000
ACK, SHORT_ACK = "$JS.ACK.", 9  # The number of words if there is no domain.
MESSAGE_ID = b"Nats-Msg-Id"
MANY, BAD_ANSWER = "already_under_way", "answer_unreadable"
INBOX_BYTES, ID_BYTES = 16, 16


class JetStreamIngress:
    """One stream of one server. ``send`` sends to the server, ``deliver`` receives each message that is to cross."""

    def __init__(
        self,
        stream: str,
        broker: str,
        send: Callable[[LocalMessage], None],
        deliver: Callable[[LocalMessage], None],
        counts: Counter[str],
    ) -> None:
        self.stream, self.counts = stream, counts
        self.fault = ""
        self.is_ready = False
        self._broker, self._send, self._deliver = broker, send, deliver
        self._inbox = f"_REGRAFT.{secrets.token_hex(INBOX_BYTES)}"
        self._consumer = f"regraft-{broker}"
        self._captured = MatchIndex()
        self._acks: dict[int, str] = {}  # Number in the stream -> subject to acknowledge to, while under way.
        self._request, self._arrived, self._asked_s = 0, 0, 0.0

    @property
    def answers(self) -> str:
        """The subjects of the answers, which the door must subscribe."""
        return f"{self._inbox}.>"

    def begin(self) -> None:
        """Request the stream and the node's consumer of it; call after each connection to the server."""
        self.is_ready = False
        self._ask("STREAM.INFO", b"", "info")

    def receive(self, message: LocalMessage) -> bool:
        """Handle a message from the server; return False if a client published it and the stream does not store it."""
        if message.subject.startswith(f"{self._inbox}."):
            purpose = message.subject[len(self._inbox) + 1 :]
            try:
                if purpose in ("info", "consumer"):
                    self._handle_answer(purpose, json.loads(message.payload))
                else:
                    self._handle_next(purpose, message)
            except (ValueError, LookupError, TypeError, AttributeError) as error:  # A server of another version.
                self.counts[BAD_ANSWER] += 1
                log.warning("answer_unreadable", broker=self._broker, stream=self.stream, reason=repr(error))
            return True
        return self.captures(message.subject)

    def skip(self, reply: str) -> None:
        """Let the stream end a message that was too long to be read: it would be sent again forever."""
        if reply.startswith(ACK):
            self._send(LocalMessage(reply.partition("@")[0], b"+TERM"))

    def captures(self, subject: str) -> bool:
        """Return True if the stream stores messages with this subject, so that they cross from there."""
        return bool(self._captured.destinations(content_of(subject)))

    def release(self, receipt: int) -> None:
        """Acknowledge a message that is safe, so that the stream may forget it."""
        if subject := self._acks.pop(receipt, ""):
            self._send(LocalMessage(subject, b"+ACK"))

    def repeat_unanswered(self) -> None:
        """Repeat a request that got no answer: it may have been lost with a connection."""
        if time.monotonic() - self._asked_s > ASK_AGAIN_S:
            if self.is_ready:
                self._ask_next()
            else:
                self.begin()

    # --- answers of the server ---------------------------------------------------------------------------------------

    def _handle_answer(self, purpose: str, answer: dict[str, Any]) -> None:
        if error := answer.get("error"):
            self.fault = f"{error.get('description', error)} (stream {self.stream!r})"
            log.warning("ingress_refused", broker=self._broker, reason=self.fault)
        elif purpose == "info":
            self._note_captured(answer["config"].get("subjects", []))
            settings = {
                "durable_name": self._consumer,
                "ack_policy": "explicit",
                "ack_wait": int(ACK_WAIT_S * NANOSECONDS),
                "deliver_policy": "new",  # When it is created; later it resumes where it was.
                "max_ack_pending": BATCH,
            }
            body = json.dumps({"stream_name": self.stream, "config": settings}).encode()
            self._ask("CONSUMER.DURABLE.CREATE", body, "consumer", self._consumer)
        else:
            self.is_ready, self.fault = True, ""
            self._ask_next()

    def _note_captured(self, subjects: list[str]) -> None:
        self._captured = MatchIndex()
        for subject in subjects:
            try:
                self._captured.add(subject, filter_of(subject), self.stream)
            except SubjectError as error:
                log.warning("ingress_subject_refused", broker=self._broker, reason=str(error))

    def _handle_next(self, request: str, message: LocalMessage) -> None:
        if not message.reply.startswith(ACK):  # A status: the request has ended.
            if request == str(self._request):
                self._ask_next()
            return
        ack, _, subject = message.reply.partition("@")
        number, stored_ns = _numbers_of(ack)
        if number in self._acks:  # Redelivered while under way: acknowledge the latest delivery.
            self._acks[number] = ack
            self.counts[MANY] += 1
        else:
            self._acks[number] = ack
            headers = message.headers
            if b"\r\n" + MESSAGE_ID.lower() + b":" not in headers.lower():
                name = f"{self._broker} {self.stream} {number} {stored_ns} {subject}".encode() + message.payload
                mark = hashlib.blake2b(name, digest_size=ID_BYTES).hexdigest()
                headers = with_header(headers, MESSAGE_ID, f"regraft.{mark}".encode())
            self._deliver(LocalMessage(subject, message.payload, "", headers, number))
        if request == str(self._request):
            self._arrived += 1
            if self._arrived == BATCH:
                self._ask_next()

    def _ask_next(self) -> None:
        self._request, self._arrived = self._request + 1, 0
        body = json.dumps({"batch": BATCH, "expires": int(EXPIRES_S * NANOSECONDS)}).encode()
        self._ask("CONSUMER.MSG.NEXT", body, str(self._request), self._consumer)

    def _ask(self, what: str, body: bytes, purpose: str, *more: str) -> None:
        self._asked_s = time.monotonic()
        subject = ".".join(["$JS.API", what, self.stream, *more])
        self._send(LocalMessage(subject, body, f"{self._inbox}.{purpose}"))


def _numbers_of(ack: str) -> tuple[int, str]:
    """Return a message's number in the stream, and when it was stored, from the subject to acknowledge to.

    Domain and account precede the stream's name in the longer form.
    """
    words = ack.split(".")
    deliveries = SHORT_ACK - 5 if len(words) == SHORT_ACK else SHORT_ACK - 3
    return int(words[deliveries + 1]), words[deliveries + 3]
