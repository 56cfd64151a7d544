"""Describe briefly what a proposal or a plan changes: links, ring IDs or places, homes of clients. For people only.

Many links, IDs and users are counted and only some of them named.
"""

from __future__ import annotations

from typing import Protocol

from regraft.schemas.plan import ClientMove, HomeMove, IdMove, LinkPair, moves_of_clients
from regraft.schemas.texts import name_some

NAMED_MAX = 3  # Links, brokers with another ID and clients that move: the others are only counted.


class Changes(Protocol):
    """The fields that proposals and plans have in common."""

    @property
    def links_removed(self) -> tuple[LinkPair, ...]:
        """Links to remove."""
        ...

    @property
    def links_added(self) -> tuple[LinkPair, ...]:
        """Links to add."""
        ...

    @property
    def moves(self) -> tuple[ClientMove, ...]:
        """Clients to move."""
        ...

    @property
    def id_moves(self) -> tuple[IdMove, ...]:
        """Brokers that get another ring ID or place."""
        ...

    @property
    def subscribers_moved(self) -> tuple[HomeMove, ...]:
        """Brokers whose subscribers all move."""
        ...


def changes_text(changes: Changes, *, has_places: bool = False) -> str:
    """Return what changes, for example ``b00-b04 for b01-b02, 214 clients move (u1 b3 -> b7, ... and 211 more)``.

    ``has_places``: brokers have places instead of ring IDs.
    """
    parts = []
    if changes.links_added or changes.links_removed:
        parts.append(_links_text(changes.links_added, changes.links_removed))
    if changes.id_moves:
        count = len(changes.id_moves)
        what, done = ("place", "changed") if has_places else ("ring ID", "reassigned")
        texts = [move.slot_text if has_places else move.text for move in changes.id_moves]
        parts.append(f"{count} {what}{'s' * (count > 1)} {done} ({name_some(texts, NAMED_MAX)})")
    if changes.moves:
        moves = moves_of_clients(changes.moves)
        counted = f"{len(moves)} clients move" if len(moves) > 1 else "1 client moves"
        parts.append(f"{counted} ({name_some([move.text for move in moves], NAMED_MAX)})")
    if changes.subscribers_moved:
        count = len(changes.subscribers_moved)
        counted = f"all subscribers of {count} broker{'s' * (count > 1)} move"
        parts.append(f"{counted} ({name_some([move.text for move in changes.subscribers_moved], NAMED_MAX)})")
    return ", ".join(parts)


def _links_text(added: tuple[LinkPair, ...], removed: tuple[LinkPair, ...]) -> str:
    """Return what is exchanged, or only added or removed as brokers come and go."""
    coming, going = ([f"{a}-{b}" for a, b in links] for links in (added, removed))
    if coming and going and len(coming) > NAMED_MAX:
        return f"{len(coming)} links for {len(going)} ({name_some(coming, NAMED_MAX)})"
    if coming and going:
        return f"{' '.join(coming)} for {' '.join(going)}"
    return f"{name_some(coming or going, NAMED_MAX)} {'added' if coming else 'removed'}"
