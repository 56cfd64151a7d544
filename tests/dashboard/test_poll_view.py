"""Polling the live view: what pages get when the server or the controller is silent."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regraft.dashboard.dashboard_metrics import DashboardMetrics
from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.poll_view import PAUSE_MS_MAX, ViewPoller
from regraft.dashboard.read_view import SERIES
from regraft.dashboard.window_series import WindowSeries
from tests.dashboard.view_documents import view_texts, written_document


class MemorySource:
    """Texts in memory; ``error`` makes every poll fail, ``hangs`` makes it last forever."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.error: Exception | None = None
        self.hangs = False
        self.keys: list[str] = []

    async def mget(self, keys: Sequence[str]) -> list[Any]:
        self.keys = list(keys)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return [self.texts.get(key.rpartition(":")[2]) for key in keys]


class ScriptedPoller:
    """A poller with a clock that only moves when it polls."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000
        self.source = MemorySource()
        settings = DashboardSettings(
            bootstrap="none", inventory_path=Path("none"), namespace="lab", answer_ms_max=20, poll_ms=1000
        )
        self.board = LiveBoard(SERIES)
        self.metrics = DashboardMetrics()
        self.poller = ViewPoller(self.source, self.board, settings, self.metrics, False, lambda: self.now_ms)

    def poll(self, *, after_ms: int = 1000) -> dict[str, Any]:
        """Poll once more and return what pages get of the view."""
        self.now_ms += after_ms
        asyncio.run(self.poller.poll())
        shown: dict[str, Any] = self.board.value("server")
        return shown


def document_of(time_ms: int) -> dict[str, bytes]:
    return view_texts({**written_document(), "time_ms": time_ms})


def test_all_keys_of_the_namespace_are_read_at_once() -> None:
    """One call reads the entire view."""
    scripted = ScriptedPoller()
    scripted.poll()
    assert all(key.startswith("lab:live:") for key in scripted.source.keys)
    assert {"lab:live:network", "lab:live:alerts", "lab:live:counts"} <= set(scripted.source.keys)


def test_a_server_that_is_away_is_reported_with_its_reason_and_the_view_stays() -> None:
    """The board keeps its parts and reports since when and why; polling recovers by itself."""
    scripted = ScriptedPoller()
    scripted.source.texts = document_of(1)
    assert scripted.poll()["view"] == "live"
    scripted.source.error = ConnectionError("nobody listens")
    away = scripted.poll()
    assert (away["view"], away["since_ms"], away["reason"]) == ("away", scripted.now_ms, "nobody listens")
    assert scripted.poll()["since_ms"] == away["since_ms"]
    assert scripted.board.value("plans")
    scripted.source.error = None
    back = scripted.poll()
    assert (back["view"], back["reason"]) == ("live", "")
    assert scripted.metrics.failures._value.get() == 2


def test_a_server_that_never_answers_is_away() -> None:
    """Every poll has a time-out."""
    scripted = ScriptedPoller()
    scripted.source.hangs = True
    shown = scripted.poll()
    assert (shown["view"], shown["reason"]) == ("away", "no answer within 20 ms")


def test_the_pause_grows_to_a_bound_and_is_short_again_afterwards() -> None:
    """A server that is away is polled less and less often, but never given up."""
    scripted = ScriptedPoller()
    scripted.source.error = ConnectionError("nobody listens")
    pauses = []
    for _ in range(6):
        scripted.poll()
        pauses.append(scripted.poller._pause_ms)
    assert pauses == [2000, 4000, PAUSE_MS_MAX, PAUSE_MS_MAX, PAUSE_MS_MAX, PAUSE_MS_MAX]
    scripted.source.error = None
    scripted.poll()
    assert scripted.poller._pause_ms == 1000


def test_an_empty_server_is_distinguished_from_an_unreachable_one() -> None:
    """Valkey answers but holds nothing: no controller writes the view."""
    assert ScriptedPoller().poll()["view"] == "empty"


def test_new_documents_are_dated_by_our_own_clock() -> None:
    """A controller whose clock is hours behind is not stale as long as its documents change."""
    scripted = ScriptedPoller()
    scripted.source.texts = document_of(1_000_000)
    assert scripted.poll()["news_ms"] == 1_000_000  # It may have been stored long ago: only its own time is known.
    scripted.source.texts = document_of(1_001_000)
    shown = scripted.poll()
    assert (shown["news_ms"], shown["told_ms"]) == (scripted.now_ms, 1_001_000)
    silent = scripted.poll(after_ms=60_000)
    assert silent["news_ms"] == scripted.now_ms - 60_000


def test_documents_from_the_future_count_as_current() -> None:
    """A controller whose clock is ahead is not shown as being in the future."""
    scripted = ScriptedPoller()
    scripted.source.texts = document_of(9_000_000)
    assert scripted.poll()["news_ms"] == scripted.now_ms


def test_a_view_that_cannot_be_shown_is_reported_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parts say together may break what computes with them: polling continues."""
    scripted = ScriptedPoller()
    scripted.source.texts = document_of(1)
    with monkeypatch.context() as patch:
        patch.setattr(WindowSeries, "add", lambda *_: 1 / 0)
        shown = scripted.poll()
        assert shown["errors"] == ["the live view cannot be shown (ZeroDivisionError: division by zero)"]
    scripted.source.texts = document_of(2)
    assert scripted.poll()["errors"] == []
