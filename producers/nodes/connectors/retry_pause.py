"""How long a connector waits before it reconnects to its broker. Pure: the caller passes the time."""

from __future__ import annotations

RETRY_S, RETRY_S_MAX = 0.05, 2.0


class RetryPause:
    """Doubles with each attempt up to ``RETRY_S_MAX``, and starts over after a connection that lasted that long.

    So a broker that ends each connection at once, for example because two nodes share a name, is not called nonstop.
    """

    def __init__(self) -> None:
        self._next_s = RETRY_S
        self._opened_s: float | None = None

    def note_open(self, now_s: float) -> None:
        """Note that the connection is usable from now on."""
        self._opened_s = now_s

    def after(self, now_s: float) -> float:
        """Return how many seconds to wait, now that the connection has ended or failed."""
        if self._opened_s is not None and now_s - self._opened_s >= RETRY_S_MAX:
            self._next_s = RETRY_S
        self._opened_s = None
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, RETRY_S_MAX)
        return pause_s
