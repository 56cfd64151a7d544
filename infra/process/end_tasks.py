"""End tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

AGAIN_S = 5.0


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, whatever they raise.

    Cancelling may have no effect: libraries suppress it, and up to Python 3.11 ``asyncio.wait_for`` returns a result
    that comes at the same moment. So it is repeated.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
