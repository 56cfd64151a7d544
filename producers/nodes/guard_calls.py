"""End what runs nodes when a call of one fails: a core that has failed is never used again.

In: calls that others make, such as links and doors. Out: the same calls, which do nothing after the first failure. What
follows from that failure belongs to who runs the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class CallGuard:
    """Notes the first failure of the calls that it guards; ``failure`` is None as long as there is none.

    Called with a call and its broker it returns the guarded one.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def __call__(self, call: Callable[..., None], broker: str) -> Callable[..., None]:
        """Return the call as one that never fails, and does nothing once one has failed."""

        def guard(*arguments: Any) -> None:
            if self.failure is not None:
                return
            try:
                call(*arguments)
            except Exception as error:
                log.exception("node_failed", broker=broker)
                self.failure = error

        return guard
