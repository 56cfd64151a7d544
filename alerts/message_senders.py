"""What a sender of messages is, and the one error by which it says that a message did not go out."""

from __future__ import annotations

from typing import Protocol

from regraft.alerts.alert_message import AlertMessage


class SendError(RuntimeError):
    """A message did not go out. The text says why and holds no secret.

    ``can_retry``: whether another attempt may do better; ``wait_s``: how long the target asks to be left alone.
    ``is_uncertain``: whether the target may have taken it anyway.
    """

    def __init__(
        self, reason: str, *, can_retry: bool = True, wait_s: float | None = None, is_uncertain: bool = False
    ) -> None:
        super().__init__(reason)
        self.can_retry = can_retry
        self.wait_s = wait_s
        self.is_uncertain = is_uncertain


class MessageSender(Protocol):
    """One target; one message at a time."""

    def send(self, message: AlertMessage) -> None:
        """Send a message once. Raises SendError."""
        ...
