"""Track where users are on a shadow planner's ring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regraft.controller.kinds.overlay_kind import FollowedHomes, HomesBefore
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import homes_in


class FollowedUsers(FollowedHomes):
    """A user is where the shadow has moved it, else where it would be without the acting planner's moves.

    A user that moves by itself has moved on this ring, too.
    """

    def __init__(self, start_epoch: int) -> None:
        self._start_epoch = start_epoch
        self._moved_from: dict[str, str] = {}  # Where users really were when they were moved here.

    def learn(self, known: Mapping[str, str], window: ClosedWindow, homes_before: HomesBefore) -> dict[str, str] | None:
        """Undo the acting planner's moves here, and drop the homes of users that have moved by themselves."""
        before_acting = homes_before(self._start_epoch)
        new = {user: home for user, home in before_acting.items() if user not in known}
        own = [user for user in self._moved_from if user not in before_acting]
        homes = {} if window.interests is None else homes_in(window.interests, own)
        gone = {user for user, home in homes.items() if home != self._moved_from[user]}
        if not new and not gone:
            return None
        self._moved_from = {user: home for user, home in self._moved_from.items() if user not in gone}
        return {user: home for user, home in known.items() if user not in gone} | new

    def note_moves(self, clients: Iterable[str], newest: ClosedWindow) -> None:
        """Remember where the moved users really are."""
        if newest.interests is not None:
            self._moved_from |= homes_in(newest.interests, clients)

    def forget_all_but(self, kept: Mapping[str, str]) -> None:
        """Forget all users except these."""
        self._moved_from = {user: home for user, home in self._moved_from.items() if user in kept}

    def shown(self, homes: Mapping[str, str]) -> dict[str, str]:
        """Return all homes: those that the acting planner has moved are elsewhere here, too."""
        return dict(homes)
