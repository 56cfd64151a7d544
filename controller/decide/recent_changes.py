"""What plans have changed recently: links, and the homes of clients. Changing these again must save more (tabu).

In: plans, oldest first. Out: what was changed and when. What is asked for more belongs to the judge. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from regraft.schemas.plan import Plan, Proposal


@dataclass(frozen=True)
class RecentChanges:
    """The end of the window on which each link, client and ring ID was changed last, in ms.

    ``links`` are those added or removed, ``clients`` those moved, ``brokers`` those that took another ring ID,
    ``filled`` those that all subscribers of another one went to.
    """

    links: Mapping[tuple[str, str], int] = field(default_factory=dict)
    clients: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plans: Iterable[Plan]) -> RecentChanges:
        """Return what plans that are or were in force, oldest first, have changed."""
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
        """Return when any of what the proposal changes was changed last, -1 when none ever was."""
        times = [self.links.get(pair, -1) for pair in (*proposal.links_removed, *proposal.links_added)]
        times += [self.clients.get(move.client, -1) for move in proposal.moves]
        times += [self.brokers.get(move.broker, -1) for move in proposal.id_moves]
        times += [self.filled.get(move.home_from, -1) for move in proposal.subscribers_moved]
        return max(times, default=-1)
