"""Guard the callbacks of nodes: after one has failed, none runs, so that a failed core is never used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class CallGuard:
    """Keeps the first exception of the calls that it guards in ``failure``, None until then."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def __call__(self, call: Callable[..., None], broker: str) -> Callable[..., None]:
        """Return a call that never raises, and does nothing once any guarded call has failed."""

        def guard(*arguments: Any) -> None:
            if self.failure is not None:
                return
            try:
                call(*arguments)
            except Exception as error:
                log.exception("node_failed", broker=broker)
                self.failure = error

        return guard
