"""Handle external records one by one, so that one whose handling fails stops neither the others nor the process.

Records that do not decode become dead letters before (:mod:`infra.kafka.dead_letters`); what fails here is an error of
ours, which the log has in full. Of many repetitions only some are logged, so that they do not flood the log; all are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

Record = TypeVar("Record")


def handle_each(records: Iterable[Record], handle: Callable[[Record], object], errors: Counter[str], what: str) -> None:
    """Call ``handle`` with each record; one that raises is counted under ``what``, logged and left out."""
    for record in records:
        try:
            handle(record)
        except Exception:  # Any error of one record: the next one, and the next process, must not meet it again.
            errors[what] += 1
            if is_logged(errors[what]):
                log.exception("record_failed", what=what, count=errors[what], record=repr(record)[:1_000])


def count_logged(counts: Counter[str], what: str, report: Callable[..., Any], event: str, /, **facts: object) -> None:
    """Count one more of ``what``, and report some of many: the facts with the count."""
    counts[what] += 1
    if is_logged(counts[what]):
        report(event, **facts, count=counts[what])


def is_logged(count: int) -> bool:
    """Return True for the 1st, 2nd, 4th, 8th ... time that something happened."""
    return count & (count - 1) == 0
