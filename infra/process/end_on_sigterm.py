"""Let SIGTERM end a block in order: what it has opened is closed and removed, as after Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit 143, if this is the main thread, which alone may set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    earlier = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
