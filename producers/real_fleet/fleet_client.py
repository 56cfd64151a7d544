"""What a fleet requires of a client of a real broker, of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

PUBLISHER_HEADER = "Regraft-Publisher"
Take = Callable[[bytes], None]


class FleetClient(Protocol):
    """One connection to a server. Subjects are the overlay's; each subscription receives each message once."""

    async def publish(self, subject: str, payload: bytes, publisher: str) -> None:
        """Publish as this publisher."""

    async def subscribe(self, subject: str, take: Take) -> Any:
        """Call ``take`` with the payload of each message with a subject; return what ``unsubscribe`` needs."""

    async def unsubscribe(self, subscription: Any) -> None:
        """End a subscription."""

    async def close(self) -> None:
        """End the connection."""
