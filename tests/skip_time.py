"""An event loop that skips the time it would wait for, so that a load of the machine changes nothing.

A test that is about time itself runs in it. Connections do not: what others do takes no time here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock, ``now_s``, advances only while all its tasks wait, or if the test sets it ahead."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Selector(self._skip))
        self.clock = SimpleNamespace(monotonic=self.time)  # In place of a module's ``time``.

    def time(self) -> float:
        return self.now_s

    def _skip(self, seconds: float | None) -> None:
        if seconds is None:
            raise RuntimeError("All tasks wait for each other.")
        self.now_s += max(0.0, seconds)


class _Selector(selectors.DefaultSelector):
    def __init__(self, skip: Callable[[float | None], None]) -> None:
        super().__init__()
        self._skip = skip

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            self._skip(timeout)
        return events


def run_skipping(loop: SkippingLoop, test: Coroutine[Any, Any, None]) -> None:
    """Run a test to its end, and close the loop."""
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()
