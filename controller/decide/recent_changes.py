"""List what plans have changed recently: links, ring IDs and homes. Changing these again must save more (tabu).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from regraft.schemas.plan import Plan, Proposal


@dataclass(frozen=True)
class RecentChanges:
    """When each link, client and ring ID was last changed, as the end of that plan's window in ms.

    ``links`` were added or removed, ``clients`` moved, ``brokers`` took another ring ID, and all subscribers of another
    broker moved to those in ``filled``.
    """

    links: Mapping[tuple[str, str], int] = field(default_factory=dict)
    clients: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> RecentChanges:
        """Return what plans that are or were in force have changed; ``plans`` are oldest first."""
        links: dict[tuple[str, str], int] = {}
        clients: dict[str, int] = {}
        brokers: dict[str, int] = {}
        filled: dict[str, int] = {}
        for plan in plans:
            links |= dict.fromkeys((*plan.links_removed, *plan.links_added), plan.window_end_ms)
            clients |= dict.fromkeys((move.client for move in plan.moves), plan.window_end_ms)
            brokers |= dict.fromkeys((move.broker for move in plan.id_moves), plan.window_end_ms)
            filled |= dict.fromkeys((move.home_to for move in plan.subscribers_moved), plan.window_end_ms)
        return cls(links, clients, brokers, filled)

    def latest_ms(self, proposal: Proposal) -> int:
        """Return when anything that the proposal changes was last changed, in ms; -1 if never."""
        times = [self.links.get(pair, -1) for pair in (*proposal.links_removed, *proposal.links_added)]
        times += [self.clients.get(move.client, -1) for move in proposal.moves]
        times += [self.brokers.get(move.broker, -1) for move in proposal.id_moves]
        times += [self.filled.get(move.home_from, -1) for move in proposal.subscribers_moved]
        return max(times, default=-1)
