"""A long step shows its progress, and that it still runs when there is nothing new."""

import io
import threading
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from rich.console import Console

from regraft.infra.process import show_progress as shown_progress
from regraft.infra.process.show_progress import show_progress
from tests.wait_until import PATIENCE_S


class _Output(io.StringIO):
    """An output that sets an event once a text is written to it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.has_come = text, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._text in self.getvalue():
            self.has_come.set()
        return written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"SILENT_S": 0.001, "TICK_S": 0.001, "LINE_INTERVAL_S": 0.0, "WAIT_LINE_INTERVAL_S": 0.0}
    for name, value_s in quick.items():
        monkeypatch.setattr(shown_progress, name, value_s)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_step_that_reports_nothing_is_still_shown(is_terminal: bool) -> None:
    """A resolver or a starting service is silent for a minute; the user need not guess whether it hangs."""
    shown = _Output("Fetching")
    console = Console(file=shown, force_terminal=is_terminal, width=100)
    with show_progress("Fetching", 46, console):
        assert shown.has_come.wait(PATIENCE_S)


def test_the_newest_report_is_repeated_with_the_time_it_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the newest report, not the first."""
    times_s = chain([0.0], repeat(7.0))
    monkeypatch.setattr(shown_progress, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    shown = _Output("(resolving scala, ")
    with show_progress("Fetching", 46, Console(file=shown, force_terminal=False, width=100)) as advance:
        advance("starting", 0)
        advance("resolving scala", 3)
        assert shown.has_come.wait(PATIENCE_S)
    assert "Fetching: 3 of 46 (resolving scala, 7 s)" in shown.getvalue()


def test_a_quick_step_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a few seconds needs no bar."""
    monkeypatch.setattr(shown_progress, "SILENT_S", 1_000.0)
    shown = _Output("Fetching")
    with show_progress("Fetching", 46, Console(file=shown, force_terminal=True, width=100)) as advance:
        advance("resolving", 1)
    assert shown.getvalue() == ""
