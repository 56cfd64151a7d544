"""Durable ingress from a JetStream stream: stored messages are taken over the leaf link and acknowledged once safe.

In: the server's messages to the node's own subjects. Out: messages with receipts, and requests to JetStream's API.
Bytes and the connection belong to :mod:`producers.nodes.nats.nats_connector`.

The stream keeps a durable consumer for the node, so that unacknowledged messages are delivered again after the node or
the server was away. A consumer that is gone is made again where it was, and a stream that is gone is reported until it
is back: the server says so when a request is due, or gives no answer, and every few seconds the node asks.

Each message has a ``Nats-Msg-Id``, by which a stream that stores it recognises duplicates.
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
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of
from regraft.producers.nodes.nats.jetstream_taken import StreamTaken
from regraft.producers.nodes.nats.nats_protocol import with_header
from regraft.schemas.safe_names import safe_name

log = structlog.get_logger(__name__)

BATCH = 500  # Messages per request, and the most under way to the overlay.
EXPIRES_S = 2.0
ACK_WAIT_S = 10.0
ASK_AGAIN_S = 2 * EXPIRES_S
LOOK_S = 10.0  # How often the node asks whether stream and consumer are as it knows them.
NANOSECONDS = 1_000_000_000
ACK, SHORT_ACK = "$JS.ACK.", 9  # The number of words if there is no domain.
MESSAGE_ID = b"Nats-Msg-Id"
MANY, BAD_ANSWER, MADE_AGAIN = "already_under_way", "answer_unreadable", "consumer_made_again"
NO_ANSWER, FOREIGN = "JetStream does not answer", "consumer {} was created with different settings: delete it"
WAITED = (b"404", b"408")  # Statuses of a request that has ended because there are no more messages.
NO_STREAM, NO_CONSUMER = 10_059, 10_014  # Codes of errors.
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
        self.error = ""
        self.is_ready = False
        self._broker, self._send, self._deliver = broker, send, deliver
        self._inbox = f"_REGRAFT.{secrets.token_hex(INBOX_BYTES)}"
        self._consumer = f"regraft-{safe_name(broker)}"
        self._captured = MatchIndex()
        self._taken = StreamTaken()
        self._created = ""  # When the stream was made, as the server says it.
        self._request, self._arrived, self._asked_s, self._looked_s = 0, 0, 0.0, 0.0

    @property
    def answers(self) -> str:
        """The subjects of the answers, which the connector must subscribe."""
        return f"{self._inbox}.>"

    def begin(self) -> None:
        """Request the stream and the node's consumer of it; call after each connection to the server."""
        self.is_ready = False
        self._look()

    def _look(self) -> None:
        self._looked_s = time.monotonic()
        self._ask("STREAM.INFO", b"", "stream")

    def receive(self, message: LocalMessage) -> bool:
        """Handle a message from the server; return False if a client published it and the stream does not store it."""
        if message.subject.startswith(f"{self._inbox}."):
            purpose = message.subject[len(self._inbox) + 1 :]
            try:
                if purpose in ("stream", "known", "made"):
                    self._handle_answer(purpose, json.loads(message.payload or b"{}"))
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
        if subject := self._taken.release(receipt):
            self._send(LocalMessage(subject, b"+ACK"))

    def repeat_unanswered(self) -> None:
        """Ask again what got no answer, and look now and then; call every second or so.

        A request may have been lost with a connection, or its consumer is gone.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s > ASK_AGAIN_S:
            if not self.is_ready and self._created and not self.error:
                self._note_error(NO_ANSWER)
            self.begin()
        elif now_s - self._looked_s > LOOK_S:
            self._look()

    # --- answers of the server ---------------------------------------------------------------------------------------

    def _handle_answer(self, purpose: str, answer: dict[str, Any]) -> None:
        if not answer:  # A status: nothing answers there.
            self.is_ready = False
        elif error := answer.get("error"):
            self._handle_error(purpose, error)
        elif purpose == "stream":
            self._note_stream(answer)
            self._ask("CONSUMER.INFO", b"", "known", self._consumer)
        elif answer["config"].get("deliver_subject") or answer["config"].get("ack_policy") != "explicit":
            self._note_error(FOREIGN.format(self._consumer))
        else:
            self._taken.note_floor(int(answer["ack_floor"]["stream_seq"]))
            self.error = ""
            if not self.is_ready:
                self.is_ready = True
                self._ask_next()

    def _handle_error(self, purpose: str, error: dict[str, Any]) -> None:
        if error.get("err_code") == NO_CONSUMER and purpose == "known":
            self._make_consumer()
            return
        if error.get("err_code") == NO_STREAM:
            self._note_captured([])  # What it stored crosses like any other message.
        self._note_error(str(error.get("description", error)))

    def _note_error(self, reason: str) -> None:
        """Note why nothing can be taken; the first of several equal ones is logged."""
        self.is_ready, error = False, f"{reason} (stream {self.stream!r})"
        if error != self.error:
            log.warning("ingress_refused", broker=self._broker, reason=error)
        self.error = error

    def _note_stream(self, answer: dict[str, Any]) -> None:
        self._note_captured(answer["config"].get("subjects", []))
        last, following = int(answer["state"]["last_seq"]), self._taken.next_number
        is_other = self._created not in ("", answer["created"])
        if is_other or (following is not None and last < following - 1):
            log.warning("stream_replaced", broker=self._broker, stream=self.stream)
            self._taken.begin_again()
        self._created = answer["created"]

    def _make_consumer(self) -> None:
        """Make the consumer: for what comes from now on, or where this incarnation's earlier consumer was."""
        begin: dict[str, object] = {"deliver_policy": "new"}
        if (following := self._taken.next_number) is not None:
            begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": following}
            self.counts[MADE_AGAIN] += 1
            log.warning("consumer_made_again", broker=self._broker, stream=self.stream, begins=following)
        settings = {
            "durable_name": self._consumer,
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_S * NANOSECONDS),
            "max_ack_pending": BATCH,
            **begin,
        }
        body = json.dumps({"stream_name": self.stream, "config": settings}).encode()
        self.is_ready = False
        self._ask("CONSUMER.DURABLE.CREATE", body, "made", self._consumer)

    def _note_captured(self, subjects: list[str]) -> None:
        self._captured = MatchIndex()
        for subject in subjects:
            try:
                self._captured.add(subject, filter_of(subject), self.stream)
            except SubjectError as error:
                log.warning("ingress_subject_refused", broker=self._broker, reason=str(error))

    def _handle_next(self, request: str, message: LocalMessage) -> None:
        is_present = request == str(self._request) and self.is_ready
        if not message.reply.startswith(ACK):  # A status: the request has ended.
            if is_present and _status_of(message.headers) in WAITED:
                self._ask_next()
            elif is_present:  # The consumer is gone, or its leader: look in a second or so, so as not to ask nonstop.
                self.is_ready, self._looked_s = False, time.monotonic() - LOOK_S
            return
        ack, _, subject = message.reply.partition("@")
        key = _numbers_of(ack)
        receipt = self._taken.take(key, ack)
        if receipt:
            self._deliver(LocalMessage(subject, message.payload, "", self._with_id(key, subject, message), receipt))
        else:
            self.counts[MANY] += 1
            if receipt is not None:  # It was acknowledged, which the consumer does not know.
                self._send(LocalMessage(ack, b"+ACK"))
        if is_present:
            self._arrived += 1
            if self._arrived == BATCH:
                self._ask_next()

    def _with_id(self, key: tuple[int, str], subject: str, message: LocalMessage) -> bytes:
        """Return a message's headers with an id, by which another stream recognises it if it comes twice."""
        if b"\r\n" + MESSAGE_ID.lower() + b":" in message.headers.lower():
            return message.headers
        name = f"{self._broker} {self.stream} {key[0]} {key[1]} {subject}".encode() + message.payload
        mark = hashlib.blake2b(name, digest_size=ID_BYTES).hexdigest()
        return with_header(message.headers, MESSAGE_ID, f"regraft.{mark}".encode())

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


def _status_of(headers: bytes) -> bytes:
    """Return the status in the first line of a header block, b"" if it has none."""
    words = headers.partition(b"\r\n")[0].split()
    return words[1] if len(words) > 1 else b""
