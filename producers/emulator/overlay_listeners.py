"""Interfaces of listeners to an emulated overlay."""

from __future__ import annotations

from typing import Protocol

from regraft.producers.brokers.match_content import Filter
from regraft.schemas.client import Role
from regraft.schemas.command import CommandResult


class OverlayListener(Protocol):
    """Listens to changes of clients and answers to commands."""

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """A client has connected or moved to another home, with its filter, or has left, with None."""

    def on_may_publish(self, publisher: str) -> None:
        """All brokers that must know the publisher do."""

    def on_result(self, result: CommandResult) -> None:
        """A broker has answered a command."""


class UserListener(Protocol):
    """Listens to changes of the users of a ring."""

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """A user has connected, moved to another home or changed its topics, or has left, with None."""
