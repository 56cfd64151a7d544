"""A connector without a broker, for tests of nodes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from regraft.producers.nodes.connectors.connector import LocalMessage, PlainConnector


def _ignore_interest(_subject: str, _wanted: bool) -> None:
    pass


def _ignore_message(_message: LocalMessage) -> None:
    pass


@dataclass(eq=False)
class MemoryConnector(PlainConnector):
    """A broker in memory that keeps what it was handed; ``want``, ``leave`` and ``publish_locally`` act as clients."""

    counts: Counter[str] = field(default_factory=Counter)
    handed: list[LocalMessage] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    wanted: Counter[str] = field(default_factory=Counter)
    is_open: bool = False
    _on_interest: Callable[[str, bool], None] = _ignore_interest
    _on_message: Callable[[LocalMessage], None] = _ignore_message

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the connector and report what is already wanted."""
        self._on_interest, self._on_message, self.is_open = on_interest, on_message, True
        for subject in self.wanted:
            on_interest(subject, True)

    def publish(self, message: LocalMessage) -> bool:
        """Keep the message."""
        self.handed.append(message)
        return True

    def release(self, receipt: int) -> None:
        """Keep the receipt."""
        self.released.append(receipt)

    async def close(self) -> None:
        """Close the connector."""
        self.is_open = False

    def want(self, subject: str) -> None:
        """Add a client that wants a subject."""
        self.wanted[subject] += 1
        if self.wanted[subject] == 1:
            self._on_interest(subject, True)

    def leave(self, subject: str) -> None:
        """Remove a client that wants a subject."""
        self.wanted[subject] -= 1
        if not self.wanted[subject]:
            del self.wanted[subject]
            self._on_interest(subject, False)

    def publish_locally(self, message: LocalMessage) -> None:
        """Publish a message as a client."""
        self._on_message(message)
