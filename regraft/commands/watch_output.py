"""``--watch``: read and show again every two seconds, on a cleared screen, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

REFRESH_S = 2.0

Content = TypeVar("Content")
Watch = Annotated[bool, typer.Option("--watch", help=f"Refresh every {REFRESH_S:.0f} s until Ctrl-C.")]


def show_watched(read: Callable[[], Content], show: Callable[[Content], None], *, watch: bool) -> Content:
    """Read, show and return the content; if watched, repeat until Ctrl-C, after which the command exits with 0."""
    try:
        while True:
            content = read()
            if watch:
                Console().clear()  # Does nothing unless the output is a terminal.
            show(content)
            if not watch:
                return content
            time.sleep(REFRESH_S)
    except KeyboardInterrupt:
        if not watch:
            raise
        raise typer.Exit from None
