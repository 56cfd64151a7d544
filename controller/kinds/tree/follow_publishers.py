"""Track where publishers are on a shadow planner's tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regraft.controller.kinds.overlay_kind import FollowedHomes, HomesBefore
from regraft.controller.state.closed_window import ClosedWindow


class FollowedPublishers(FollowedHomes):
    """A publisher is where the shadow has moved it, else where it first was, regardless of the acting planner."""

    def __init__(self, start_epoch: int) -> None:
        self._start_epoch = start_epoch
        self._moved: set[str] = set()

    def learn(self, known: Mapping[str, str], window: ClosedWindow, homes_before: HomesBefore) -> dict[str, str] | None:
        """Add new publishers at their present homes, or at those before the acting planner's moves since the start."""
        new = {publisher: home for publisher, home in window.homes.items() if publisher not in known}
        if not new:
            return None
        first = homes_before(self._start_epoch)
        here = {publisher: first[publisher] for publisher in new if first.get(publisher) in window.sets.brokers}
        return {**known, **new, **here}

    def note_moves(self, clients: Iterable[str], newest: ClosedWindow) -> None:
        """Remember which publishers were moved."""
        self._moved.update(clients)

    def forget_all_but(self, kept: Mapping[str, str]) -> None:
        """Forget all publishers except these."""
        self._moved.intersection_update(kept)

    def shown(self, homes: Mapping[str, str]) -> dict[str, str]:
        """Return the homes of the publishers that were moved."""
        return {publisher: home for publisher, home in homes.items() if publisher in self._moved}
