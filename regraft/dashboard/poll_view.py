"""Poll the live view and put changes on the board; an unreachable server stops nothing.

In: a Valkey client, the board. Out: the board's parts, and its part ``server``: whether there is a view, if not since
when and why, and when the controller last wrote it; and its part ``verdict``. Reading the texts belongs to
``read_view``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import structlog

from regraft.dashboard.dashboard_metrics import DashboardMetrics
from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.read_view import KEYS, ViewReader
from regraft.schemas.loop_verdict import LoopVerdict

log = structlog.get_logger(__name__)

PAUSE_MS_MAX = 5000  # Between attempts while the server is unreachable; the first retry is after poll_ms.
STARTING, LIVE, EMPTY, UNREACHABLE = "starting", "live", "empty", "away"


class ViewSource(Protocol):
    """The one call of redis-py that the poller uses; the client must have socket timeouts and no retries."""

    def mget(self, keys: Sequence[str]) -> Awaitable[list[Any]]:
        """Return the texts of the keys, None for each missing one."""


class ViewPoller:
    """Keeps the board up to date with the live view."""

    def __init__(
        self,
        source: ViewSource,
        board: LiveBoard,
        settings: DashboardSettings,
        metrics: DashboardMetrics,
        can_order: bool,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._source = source
        self._board = board
        self._settings = settings
        self._metrics = metrics
        self._can_order = can_order
        self._now_ms = now_ms
        self._keys = [f"{settings.namespace}:live:{part}" for part in KEYS]
        self._reader = ViewReader(settings.windows_max)
        self._pause_ms = settings.poll_ms
        self._document_ms: int | None = None  # The controller's time of the newest document seen here,
        self._news_ms: int | None = None  # and when it was seen, by the local clock.
        self._polled_ms: int | None = None
        self._polled_at_s = time.monotonic()
        self.state, self._since_ms, self._reason = STARTING, now_ms(), ""
        self._unread = ""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            began_s = time.monotonic()
            await self.poll()
            spent_ms = (time.monotonic() - began_s) * 1000
            await asyncio.sleep(max(self._pause_ms - spent_ms, 1) / 1000)

    async def poll(self) -> None:
        """Read all keys once and put changes on the board."""
        self._polled_at_s = time.monotonic()
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation, and the poller could not be stopped.
            async with asyncio.timeout(self._settings.answer_ms_max / 1000):
                texts = await self._source.mget(self._keys)
        # The client raises its own and the socket's errors; none of them may stop the page.
        except Exception as error:
            self._on_failure(error)
            await self._board.replace({"server": self.server_part()})
            return
        finally:
            self._metrics.poll_ms.observe((time.monotonic() - self._polled_at_s) * 1000)
        self._pause_ms = self._settings.poll_ms
        self._polled_ms = self._now_ms()
        try:
            fresh = self._reader.read(dict(zip(KEYS, texts, strict=True)))
            self._note_news()
            fresh["verdict"] = self._verdict()
        except Exception as error:  # Together the parts may say what each alone does not; the next ones are read.
            log.exception("live_view_unreadable")
            fresh, self._unread = {}, f"the live view cannot be shown ({type(error).__name__}: {error})"
            self._metrics.failures.inc()
        else:
            self._unread = ""
        self._enter(LIVE if any(text is not None for text in texts) else EMPTY)
        self._metrics.undecodable.set(len(self._reader.errors))
        await self._board.replace({**fresh, "server": self.server_part()})

    def silent_ms(self) -> int:
        """Return how long ago the server was last polled, in ms."""
        return int((time.monotonic() - self._polled_at_s) * 1000)

    def server_part(self) -> dict[str, Any]:
        """Return the state of the view itself, for pages."""
        return {
            "view": self.state,
            "since_ms": self._since_ms,
            "reason": self._reason,
            "looked_ms": self._polled_ms,
            "news_ms": self._news_ms,
            "told_ms": self._document_ms,
            "stale_ms": self._settings.stale_ms,
            "namespace": self._settings.namespace,
            "can_order": self._can_order,
            "login_to_read": self._settings.login_to_read,
            "errors": sorted(filter(None, (self._unread, *self._reader.errors.values()))),
        }

    def _verdict(self) -> LoopVerdict:
        """Return whether the loop is healthy, by the controller's clock."""
        silent_ms = 0 if self._news_ms is None else self._now_ms() - self._news_ms
        return self._reader.verdict(silent_ms / 1000, (self._document_ms or 0) + silent_ms)

    def _on_failure(self, error: Exception) -> None:
        self._metrics.failures.inc()
        reason = str(error) or type(error).__name__
        if self.state != UNREACHABLE:
            log.warning("live_view_unreachable", reason=reason)
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._settings.answer_ms_max} ms"
        self._enter(UNREACHABLE, reason)
        self._pause_ms = min(self._pause_ms * 2, max(PAUSE_MS_MAX, self._settings.poll_ms))

    def _enter(self, state: str, reason: str = "") -> None:
        if state != self.state:
            if self.state == UNREACHABLE:
                log.info("live_view_restored", away_ms=self._now_ms() - self._since_ms)
            self.state, self._since_ms = state, self._now_ms()
        self._reason = reason

    def _note_news(self) -> None:
        """Record by the local clock when news arrived, because the controller's clock may differ.

        The first document counts by the controller's time.
        """
        news_ms = self._reader.news_ms
        if news_ms is None or news_ms == self._document_ms:
            return
        self._news_ms = self._now_ms() if self._document_ms is not None else min(news_ms, self._now_ms())
        self._document_ms = news_ms
