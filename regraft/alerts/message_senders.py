"""The protocol of message senders, and the one error that they raise."""

from __future__ import annotations

from typing import Protocol

from regraft.alerts.alert_message import AlertMessage


class SendError(RuntimeError):
    """A message was not sent. The text says why, without secrets.

    ``can_retry``: whether another attempt may succeed; ``wait_s``: the pause before it that the target asks for.
    ``is_uncertain``: whether the target may have received the message anyway.
    """

    def __init__(
        self, reason: str, *, can_retry: bool = True, wait_s: float | None = None, is_uncertain: bool = False
    ) -> None:
        super().__init__(reason)
        self.can_retry = can_retry
        self.wait_s = wait_s
        self.is_uncertain = is_uncertain


class MessageSender(Protocol):
    """One target, which gets one message at a time."""

    def send(self, message: AlertMessage) -> None:
        """Send a message once. Raises SendError if it was not sent."""
