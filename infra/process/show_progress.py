"""Show the progress of a long step on the terminal, and only once it has taken a while.

A progress bar on a terminal, elsewhere plain lines at a bounded rate. Short steps show nothing. Long ones are never
silent: a thread shows the elapsed time while the step has nothing new to report.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

SILENT_S = 3.0
LINE_INTERVAL_S = 5.0
WAIT_LINE_INTERVAL_S = 10.0  # Between lines that only show that the step still runs.
TICK_S = 1.0
BAR_WIDTH = 12

Advance = Callable[[str, int], None]


@contextmanager
def show_progress(title: str, total: int, console: Console | None = None) -> Iterator[Advance]:
    """Yield a function ``advance(what, done)`` that shows how many of ``total`` are done, on stderr."""
    shown = _Shown(title, total, console or Console(stderr=True))
    is_over = threading.Event()

    def keep_showing() -> None:
        while not is_over.wait(TICK_S):
            shown.tick()

    ticker = threading.Thread(target=keep_showing, name=f"progress of {title}", daemon=True)
    ticker.start()
    try:
        yield shown.advance
    finally:
        is_over.set()
        ticker.join()
        shown.close()


class _Shown:
    """The progress of one step; a lock separates the step from the ticking thread."""

    def __init__(self, title: str, total: int, out: Console) -> None:
        self._title, self._total, self._out = title, total, out
        what_column = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # Shrinks, unlike the figures.
        self._bar = Progress(
            TextColumn(title), BarColumn(bar_width=BAR_WIDTH), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.description}", table_column=what_column), console=out, transient=True, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total)
        self._started_s = time.monotonic()
        self._line_s = 0.0
        self._newest = ("", 0)
        self._lock = threading.Lock()

    def advance(self, what: str, done: int) -> None:
        """Record the step's progress, and show it unless the step has just begun or was just shown."""
        with self._lock:
            self._newest = (what, done)
            self._show(LINE_INTERVAL_S)

    def tick(self) -> None:
        """Show that the step still runs."""
        with self._lock:
            self._show(WAIT_LINE_INTERVAL_S)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar.live.is_started:
            self._bar.stop()

    def _show(self, line_interval_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._started_s < SILENT_S:
            return
        what, done = self._newest
        if self._out.is_terminal:
            if not self._bar.live.is_started:
                self._bar.start()
            self._bar.update(self._task, completed=done, description=what)
        elif now_s - self._line_s >= line_interval_s:
            self._line_s = now_s
            at = f"{what}, " if what else ""
            text = f"{self._title}: {done} of {self._total} ({at}{now_s - self._started_s:.0f} s)"
            self._out.print(text, markup=False, highlight=False, soft_wrap=True)
            sys.stderr.flush()
