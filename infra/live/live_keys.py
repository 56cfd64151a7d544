"""Write keys of the live view to Valkey or Redis, best effort: an unavailable server costs one attempt per pause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog

log = structlog.get_logger(__name__)

PAUSE_MS_MIN = 500  # After a failure; doubled up to the maximum, so that the loop is not slowed down.
PAUSE_MS_MAX = 15_000


class KeyClient(Protocol):
    """The one method of redis-py that is needed; the client's socket timeouts must be below a second."""

    def mset(self, mapping: Any) -> Any:
        """Set all keys at once."""


class LiveKeys:
    """Writes keys through a client; after a failure it pauses, longer each time. ``name`` is for the log."""

    def __init__(self, client: KeyClient, name: str) -> None:
        self._client = client
        self._name = name
        self._pause_ms = PAUSE_MS_MIN
        self._silent_until_ms: int | None = None
        self.failures = 0

    def write(self, texts: Callable[[], Mapping[str, str | bytes]], now_ms: int) -> None:
        """Set all keys at once, unless it pauses after a failure; then ``texts`` is not called."""
        if self._silent_until_ms is not None and now_ms < self._silent_until_ms:
            return
        made = texts()
        try:
            self._client.mset(made)
        # The client raises its own and the socket's errors; none may stop the loop.
        except Exception as error:
            self._on_failure(error, now_ms)
            return
        if self._silent_until_ms is not None:
            log.info("live_keys_restored", view=self._name, failures=self.failures)
        self._silent_until_ms = None
        self._pause_ms = PAUSE_MS_MIN

    def _on_failure(self, error: Exception, now_ms: int) -> None:
        self.failures += 1
        if self._silent_until_ms is None:
            log.warning("live_keys_unreachable", view=self._name, reason=str(error), next_attempt_ms=self._pause_ms)
        self._silent_until_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
