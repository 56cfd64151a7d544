"""Dead letters: records that could not be used, kept with their origin and the reason in one topic."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import structlog
from confluent_kafka import Message

from regraft.infra.process.handle_each import is_logged
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.topics import DEAD_LETTERS, topic_name

log = structlog.get_logger(__name__)

VALUE_BYTES_MAX = 900_000  # Kafka's default limit is 1 MiB; a letter also holds the reason.
REASON_LENGTH_MAX = 1_000  # A reason may quote the record.
# What one sender's letters may take in a span; further refused records are only counted. Senders are distinguished by
# topic, which agents do not share, and by key, which is the broker's name unless the sender lies.
SHARE_SPAN_S = 60.0
SHARE_LETTERS_MAX = 600
SHARE_BYTES_MAX = 8 << 20
SENDERS_PER_TOPIC_MAX = 64

Record = TypeVar("Record", bound=msgspec.Struct)


def dead_letter(
    topic: str, partition: int, offset: int, reason: str, value: bytes, time_ms: int, value_bytes: int | None = None
) -> DeadLetter:
    """Return the dead letter of a record, with at most the first VALUE_BYTES_MAX bytes of its value.

    ``time_ms``: the record's timestamp, by Kafka or its writer, 0 if unknown. ``value_bytes``: the original length if
    ``value`` was already cut.
    """
    size = len(value) if value_bytes is None else value_bytes
    reason = reason[:REASON_LENGTH_MAX]
    if size > VALUE_BYTES_MAX:
        reason = f"{reason} (the first {VALUE_BYTES_MAX} of {size} bytes are kept)"
    return DeadLetter(topic, partition, offset, reason, value[:VALUE_BYTES_MAX], min(max(time_ms, 0), TIME_MS_MAX))


def addressed(letter: DeadLetter, namespace: str) -> tuple[str, str, DeadLetter]:
    """Return topic, key and record to write for a letter."""
    return topic_name(DEAD_LETTERS, namespace), letter.topic, letter


class LetterShare:
    """Gives each sender a share of the dead letters, so that those of one bad sender do not displace the others'.

    ``only_counted`` counts the refused records without a letter, by topic.
    """

    def __init__(self, stopwatch_s: Callable[[], float] = time.monotonic) -> None:
        self._stopwatch_s = stopwatch_s
        self._since_s = stopwatch_s()
        self._letters: Counter[tuple[str, int]] = Counter()
        self._bytes: Counter[tuple[str, int]] = Counter()
        self.only_counted: Counter[str] = Counter()

    def admits(self, letter: DeadLetter, key: bytes | None) -> bool:
        """Return True if the letter may be written; the key is that of the refused record."""
        now_s = self._stopwatch_s()
        if now_s - self._since_s >= SHARE_SPAN_S:
            self._since_s = now_s
            self._letters.clear()
            self._bytes.clear()
        sender = letter.topic, zlib.crc32(key or b"") % SENDERS_PER_TOPIC_MAX
        size = self._bytes[sender] + len(letter.value)
        if self._letters[sender] >= SHARE_LETTERS_MAX or size > SHARE_BYTES_MAX:
            self.only_counted[letter.topic] += 1
            count = self.only_counted[letter.topic]
            if is_logged(count):
                log.warning("dead_letters_only_counted", topic=letter.topic, span_s=SHARE_SPAN_S, count=count)
            return False
        self._letters[sender] += 1
        self._bytes[sender] = size
        return True


class RecordDecoder:
    """Decodes messages; an invalid record is logged, counted in ``undecodable`` by topic, and becomes a dead letter.

    So does a record for which ``error(topic, record)`` returns a reason; an empty reason accepts it. ``on_letter`` gets
    the dead letters within the ``share`` of their sender.
    """

    def __init__(self, on_letter: Callable[[DeadLetter], None], error: Callable[[str, Any], str] | None = None) -> None:
        self._on_letter, self._error = on_letter, error
        self.share = LetterShare()
        self.undecodable: Counter[str] = Counter()

    def decode(self, message: Message, record_type: type[Record]) -> Record | None:
        """Return a message's record; None if it is a tombstone or was refused."""
        value = message.value()
        if value is None:
            return None
        try:
            record = decode(value, record_type)
        except UndecodableRecordError as error:
            self._refuse(message, value, str(error))
            return None
        reason = "" if self._error is None else self._error(message.topic() or "", record)
        if reason:
            self._refuse(message, value, reason)
            return None
        return record

    def _refuse(self, message: Message, value: bytes, reason: str) -> None:
        topic, offset = message.topic() or "", message.offset() or 0
        self.undecodable[topic] += 1
        count = self.undecodable[topic]
        letter = dead_letter(topic, message.partition() or 0, offset, reason, value, message.timestamp()[1])
        if is_logged(count):
            log.warning("record_refused", topic=topic, offset=offset, reason=letter.reason, count=count)
        if self.share.admits(letter, message.key()):
            self._on_letter(letter)
