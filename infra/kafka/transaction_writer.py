"""Write records in Kafka transactions: the records of a transaction are read together or not at all.

Of all writers with one id only the newest can write: ``begin`` fences the others and ends their open transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, open_transactional_producer
from regraft.infra.process.handle_each import is_logged

log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer, so that a loop keeps running while Kafka is unavailable.
TRANSACTION_MS = 15_000  # An open transaction blocks readers; that of a killed writer is aborted after this time.
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class WriterLostError(RuntimeError):
    """This writer cannot write any more, and it is unknown whether its last transaction was committed: use a new one.

    ``is_taken_over`` is False if Kafka may have fenced the writer itself, as it does if a transaction is open for too
    long.
    """

    def __init__(self, reason: str, *, is_taken_over: bool) -> None:
        super().__init__(reason)
        self.is_taken_over = is_taken_over


class TransactionWriter:
    """One writer of a transactional id; no call waits much longer than CALL_S. ``failures`` counts failed attempts."""

    def __init__(self, kafka: KafkaAccess, transactional_id: str) -> None:
        self._id = transactional_id
        self._producer = open_transactional_producer(kafka, transactional_id, TRANSACTION_MS, {"linger.ms": 0})
        self._is_open = False
        self._is_filled = False
        self._must_abort = False
        self._abort_since_s = 0.0
        self._is_initialised = False
        self._stored_s = time.monotonic()
        self.failures = 0

    def begin(self) -> bool:
        """Fence an earlier writer and end its open transaction; return False if Kafka does not answer."""
        if not self._is_initialised:
            try:
                self._producer.init_transactions(CALL_S)
            except KafkaException as error:
                self._on_failure(error)
                return False
            self._is_initialised = True
            self._stored_s = time.monotonic()
        return True

    def commit(self, fill: Callable[[Producer], None]) -> bool:
        """Write all records that ``fill`` produces in one transaction; return False if it must be called again.

        If :attr:`is_committing`, it continues with the filled transaction and does not call ``fill``. Raises
        WriterLostError.
        """
        try:
            if self._must_abort:
                self._producer.abort_transaction(CALL_S)
                self._is_open = self._is_filled = self._must_abort = False
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            if not self._is_filled:
                fill(self._producer)
                self._is_filled = True
            self._producer.commit_transaction(CALL_S)
        except BufferError as error:
            self._note_abort()
            self._count_failure(str(error))
            return False
        except KafkaException as error:
            self._on_failure(error)
            return False
        self._is_open = self._is_filled = False
        self._stored_s = time.monotonic()
        return True

    @property
    def is_committing(self) -> bool:
        """True if records were produced whose commit is unconfirmed: their source must not change meanwhile."""
        return self._is_filled

    def close(self) -> None:
        """Abort an open transaction, and close the producer."""
        try:
            if self._is_open:
                self._producer.abort_transaction(CALL_S)
        except KafkaException as error:
            log.debug("transaction_left_open", writer=self._id, reason=str(error))
        close_producer(self._producer, 0.0)

    def _on_failure(self, error: KafkaException) -> None:
        """Log a failure, and choose how to continue: retry the commit, abort, or raise WriterLostError."""
        cause: KafkaError = error.args[0]
        self._count_failure(cause.str())
        now_s, allowed_s = time.monotonic(), TRANSACTION_MS / 1000  # Then Kafka itself aborts an open transaction.
        was_away = now_s - self._stored_s > allowed_s
        # A producer that could not abort by then may hang in its next transaction, although Kafka is back.
        if cause.fatal() or (self._must_abort and now_s - self._abort_since_s > allowed_s):
            raise WriterLostError(cause.str(), is_taken_over=cause.code() in FENCED and not was_away) from error
        # A commit without an answer is repeated; a transaction that was only partly filled is aborted. So is an abort
        # without one: while it is under way, a commit is refused as long as it is tried.
        is_commit_open = self._is_filled and cause.retriable() and not cause.txn_requires_abort()
        if self._is_open and not is_commit_open:
            self._note_abort()

    def _note_abort(self) -> None:
        self._abort_since_s = self._abort_since_s if self._must_abort else time.monotonic()
        self._must_abort = True

    def _count_failure(self, reason: str) -> None:
        self.failures += 1
        if is_logged(self.failures):
            log.warning("transaction_not_written", writer=self._id, reason=reason, count=self.failures)
