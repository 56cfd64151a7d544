"""What a fleet asks of a client of a real broker, whichever kind that is.

In: subjects of the overlay. Out: a contract; the clients of each kind keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

PUBLISHER_HEADER = "Regraft-Publisher"
Take = Callable[[bytes], None]


class FleetClient(Protocol):
    """One connection to a server. Subjects are those of the overlay; each subscription gets each message once."""

    async def publish(self, subject: str, payload: bytes, publisher: str) -> None:
        """Publish as this publisher."""
        ...

    async def subscribe(self, subject: str, take: Take) -> Any:
        """Let ``take`` have what is published with a subject; return what ends it."""
        ...

    async def unsubscribe(self, subscription: Any) -> None:
        """End a subscription."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...
