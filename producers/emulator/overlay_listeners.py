"""Listeners to what happens in an emulated overlay."""

from __future__ import annotations

from typing import Protocol

from regraft.producers.brokers.match_content import Filter
from regraft.schemas.client import Role
from regraft.schemas.command import CommandResult


class OverlayListener(Protocol):
    """Listens to what happens to clients and commands."""

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """A client has come or moved to another home, with its filter, or left, with None."""

    def on_may_publish(self, publisher: str) -> None:
        """All brokers that must know the publisher do."""

    def on_result(self, result: CommandResult) -> None:
        """A broker has answered a command."""


class UserListener(Protocol):
    """Listens to what happens to the users of a ring."""

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """A user has come, moved to another home or wants other topics, or has left, with None."""
