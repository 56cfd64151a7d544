"""What trees and structured cyclic overlays share: their publishers move, and where each is, windows and plans show."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from regraft.controller.kinds.overlay_kind import (
    ConfigurationT,
    FollowedHomes,
    HomesBefore,
    OverlayKind,
    ReachedT,
    StateT,
)
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.plan import Proposal


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


@dataclass(frozen=True, eq=False)
class PublisherKind(OverlayKind[ConfigurationT, StateT, ReachedT]):
    """What a tree and a structured cyclic overlay have in common: notifications take links, and publishers move.

    ``degree_max`` caps the links of a broker; the caps of load are the inventory's.
    """

    NEEDS_REGISTER: ClassVar[bool] = False
    LOST_MOVES_MAX: ClassVar[int] = 500  # Every broker receives every move.

    inventory: Inventory
    degree_max: int

    def with_homes(self, present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
        """Return the overlay with the homes of all publishers of the windows."""
        return with_publishers(present, windows)

    def missing_in(self, state: StateT) -> str:
        """Return nothing: a complete window is sufficient."""
        return ""

    def alternatives_to(self, proposal: Proposal) -> int:
        """Return the pairs of brokers, which links join; slots to exchange and publishers to move are about as many."""
        return len(self.inventory.brokers) ** 2

    def moves_max(self, settings: DecisionSettings) -> int:
        """Return how many publishers one plan may move."""
        return 0 if self.inventory.clients_stay else settings.moves_per_plan_max

    def can_be_costed(self, window: ClosedWindow) -> bool:
        """Return True: every window knows what was delivered where."""
        return True

    def message_cost(self, configuration: ConfigurationT) -> float:
        """Return the mean cost of a link."""
        return statistics.fmean(self.inventory.cost_of_link(*pair) for pair in configuration.links)

    def followed_homes(self, start_epoch: int) -> FollowedHomes:
        """Return the tracker of publishers' homes on a shadow overlay."""
        return FollowedPublishers(start_epoch)
