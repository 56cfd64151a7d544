"""How long a door waits before it calls its broker again. Pure: the caller says what time it is."""

from __future__ import annotations

RETRY_S, RETRY_S_MAX = 0.05, 2.0


class RetryPause:
    """Doubles with each attempt up to ``RETRY_S_MAX``, and starts over after a connection that lasted as long.

    A broker that ends each connection at once, as for two nodes under one name, is not called without a pause.
    """

    def __init__(self) -> None:
        self._next_s = RETRY_S
        self._opened_s: float | None = None

    def note_open(self, now_s: float) -> None:
        """Note that the connection is of use from now on."""
        self._opened_s = now_s

    def after(self, now_s: float) -> float:
        """Return how many seconds to wait, now that the connection is over or was not made."""
        if self._opened_s is not None and now_s - self._opened_s >= RETRY_S_MAX:
            self._next_s = RETRY_S
        self._opened_s = None
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, RETRY_S_MAX)
        return pause_s
