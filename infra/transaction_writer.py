"""Write records in Kafka transactions: what is filled in together is read whole or not at all.

In: a transactional id, and what fills each transaction. Out: committed transactions. Of all writers with one id only
the newest can write: beginning shuts the others out and ends what they left open. What is written, and who may be the
newest, belongs to its users.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from regraft.infra.kafka_access import KafkaAccess
from regraft.infra.kafka_clients import close_producer, open_transactional_producer

log = structlog.get_logger(__name__)

CALL_S = 1.0  # Longest wait for one answer, so that a loop stays alive while Kafka is away.
TRANSACTION_MS = 15_000  # Readers see nothing newer than an open transaction: a killed writer's ends by itself.
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class WriterLostError(RuntimeError):
    """This writer can write nothing more, and it is unknown whether its last transaction was: begin with a new one.

    ``is_taken_over`` is False where Kafka may have given the writer up by itself, as it does with a transaction that is
    open for too long.
    """

    def __init__(self, reason: str, *, is_taken_over: bool) -> None:
        super().__init__(reason)
        self.is_taken_over = is_taken_over


class TransactionWriter:
    """One writer of a transactional id; no call waits much longer than CALL_S. ``failures`` counts attempts."""

    def __init__(self, kafka: KafkaAccess, transactional_id: str) -> None:
        self._id = transactional_id
        self._producer = open_transactional_producer(kafka, transactional_id, TRANSACTION_MS, {"linger.ms": 0})
        self._is_open = False
        self._is_filled = False
        self._must_abort = False
        self._is_initialised = False
        self._stored_s = time.monotonic()
        self.failures = 0

    def begin(self) -> bool:
        """Shut out an earlier writer and end what it left open; False while Kafka does not answer."""
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
        """Write what ``fill`` produces, whole; False when that has to be tried again.

        While it :attr:`is_committing`, the filled transaction continues and ``fill`` is not called. Raises
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
            self._must_abort = True
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
        """Return True if something was handed over that is not known to be written: it must not change meanwhile."""
        return self._is_filled

    def close(self) -> None:
        """Give up what is not written."""
        try:
            if self._is_open:
                self._producer.abort_transaction(CALL_S)
        except KafkaException as error:
            log.debug("transaction_left_open", writer=self._id, reason=str(error))
        close_producer(self._producer, 0.0)

    def _on_failure(self, error: KafkaException) -> None:
        """Log it, and choose how to continue: retry, abort, or give up."""
        fault: KafkaError = error.args[0]
        self._count_failure(fault.str())
        if fault.fatal():
            was_away = time.monotonic() - self._stored_s > TRANSACTION_MS / 1000
            # After this time Kafka itself aborts an open transaction.
            raise WriterLostError(fault.str(), is_taken_over=fault.code() in FENCED and not was_away) from error
        # A commit that was not answered is asked for again; of what was only half handed over nothing counts.
        is_commit_open = self._is_filled and fault.retriable() and not fault.txn_requires_abort()
        self._must_abort = self._is_open and not is_commit_open

    def _count_failure(self, reason: str) -> None:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # At 1, 2, 4, 8 ...: an outage must not flood the log.
            log.warning("transaction_not_written", writer=self._id, reason=reason, count=self.failures)
