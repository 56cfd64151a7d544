"""The live view in Valkey or Redis: the loop's document, cut into one key for each part.

Best effort: the view is written whole each time, so a server that lost it has it again with the next writing, and a
server that is away costs one short attempt per pause. Kafka stays the source of truth.

Keys, each a JSON text: ``<namespace>:live:<part>`` with part one of VIEW_PARTS, or ``counts`` for all single numbers.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import structlog

from controller.control_ports import Document

log = structlog.get_logger(__name__)

VIEW_PARTS = (
    "configuration",
    "window",
    "network",
    "cost",
    "plans",
    "orders",
    "refusals",
    "events",
    "last_decision",
    "faults",
    "shadows",
)
PAUSE_MS_MIN = 500  # After a failure; doubled up to the maximum, so that a lost server does not slow the loop.
PAUSE_MS_MAX = 15_000


class ViewClient(Protocol):
    """The one call of redis-py that the view needs; the client must have socket time-outs below a second."""

    def mset(self, mapping: Any) -> Any:
        """Set all keys at once."""
        ...


class LiveView:
    """Writes the document through a client; after a failure it keeps away for a pause that grows."""

    def __init__(self, client: ViewClient, namespace: str) -> None:
        self._client = client
        self._prefix = f"{namespace}:live:"
        self._pause_ms = PAUSE_MS_MIN
        self._silent_until_ms: int | None = None
        self.failures = 0

    def publish(self, document: Document, now_ms: int) -> None:
        """Write the whole view, unless the server failed a short while ago."""
        if self._silent_until_ms is not None and now_ms < self._silent_until_ms:
            return
        parts = {part: document.get(part) for part in VIEW_PARTS}
        parts["counts"] = {key: value for key, value in document.items() if key not in VIEW_PARTS}
        try:
            self._client.mset({self._prefix + part: json.dumps(value) for part, value in parts.items()})
        # The client library raises its own and the socket's errors, and none of them may stop the loop.
        except Exception as error:
            self._on_failure(error, now_ms)
            return
        if self._silent_until_ms is not None:
            log.info("live_view_is_back", failures=self.failures)
        self._silent_until_ms = None
        self._pause_ms = PAUSE_MS_MIN

    def _on_failure(self, error: Exception, now_ms: int) -> None:
        self.failures += 1
        if self._silent_until_ms is None:
            log.warning("live_view_is_away", reason=str(error), next_attempt_ms=self._pause_ms)
        self._silent_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
