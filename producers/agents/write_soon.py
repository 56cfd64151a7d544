"""Write what one turn of the event loop has to say at once: a call of the system for each packet would cost more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class SoonWriter:
    """``write`` gets the bytes of a turn together."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write, self._parts = write, list[bytes]()

    def write(self, data: bytes) -> None:
        """Write bytes at the end of this turn, behind earlier ones."""
        self._parts.append(data)
        if len(self._parts) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write now what is left."""
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._write(data)
