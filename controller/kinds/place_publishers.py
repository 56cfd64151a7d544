"""Find the homes of publishers from windows, and from plans for those silent since: on trees and cyclic overlays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from regraft.controller.kinds.overlay_kind import FollowedHomes, HomesBefore
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.overlay_configuration import OverlayConfiguration

ConfigurationT = TypeVar("ConfigurationT", bound=OverlayConfiguration)


def with_publishers(present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
    """Return the overlay with the homes of all publishers of the windows.

    Windows of the present epoch take precedence; then what plans set (``present.homes``), for publishers that have been
    silent since they were moved; then windows from before the last transition. A publisher that is homeless in any
    window gets no home and so stays: all others have one anyway. Neither does a client of a broker that is no longer in
    the overlay.
    """
    homeless = frozenset[str]().union(*(window.homeless for window in windows))
    earlier: dict[str, str] = {}
    since: dict[str, str] = {}
    for window in windows:
        (since if window.epoch == present.epoch else earlier).update(window.homes)
    placed = {name: home for name, home in present.homes if name in earlier or name in since}
    publishers = earlier | placed | since
    here = present.neighbours
    return present.with_homes({name: at for name, at in publishers.items() if name not in homeless and at in here})


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
