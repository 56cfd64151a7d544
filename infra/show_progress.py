"""Show the progress of a long step on the terminal, and only once it has taken a while.

On a terminal a rich bar, elsewhere plain lines at a bounded rate. Quick steps stay silent.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

SILENT_S = 3.0
LINE_INTERVAL_S = 5.0
BAR_WIDTH = 12

Advance = Callable[[str, int], None]


@contextmanager
def show_progress(title: str, total: int, console: Console | None = None) -> Iterator[Advance]:
    """Yield a function ``advance(what, done)`` that shows how many of ``total`` are done, on stderr."""
    out = console or Console(stderr=True)
    started_s = time.monotonic()
    what_column = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # It gives way; the figures never do.
    bar = Progress(
        TextColumn(title), BarColumn(bar_width=BAR_WIDTH), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.description}", table_column=what_column), console=out, transient=True, expand=True,
    )  # fmt: skip
    task = bar.add_task("", total=total)
    shown_s = 0.0

    def advance(what: str, done: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - started_s < SILENT_S:
            return
        if out.is_terminal:
            if not bar.live.is_started:
                bar.start()
            bar.update(task, completed=done, description=what)
        elif now_s - shown_s >= LINE_INTERVAL_S:
            shown_s = now_s
            out.print(f"{title}: {done} of {total} ({what})", markup=False, highlight=False, soft_wrap=True)
            sys.stderr.flush()

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
