"""Judge moves of single subscribers where clients stay, except those that an agent can take along. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regraft.schemas.agent_names import client_of
from regraft.schemas.plan import ClientMove, Verdict


def judge_staying(moves: Sequence[ClientMove], movable: Mapping[str, str]) -> tuple[Verdict, str] | None:
    """Return why these clients may not move although some do: one stays, or would be in two places; or None.

    ``movable`` maps the subscribers that may move to their homes.
    """
    if any(move.client not in movable for move in moves):
        reason = "clients of these brokers stay where they connect: choose a planner that exchanges links"
        return Verdict.CLIENTS_STAY, reason
    return judge_together(moves, movable)


def judge_together(moves: Sequence[ClientMove], movable: Mapping[str, str]) -> tuple[Verdict, str] | None:
    """Return which client would have subscriptions in two places, or None.

    An agent takes a client along with all its subscriptions. Cost O(subscribers that may move).
    """
    names = {move.client: move for move in moves if move.client in movable}
    targets = {(client_of(name), move.home_from): move.home_to for name, move in names.items()}
    left = {home for _, home in targets}
    for name, home in movable.items() if names else ():
        client, move = client_of(name) if home in left else "", names.get(name)
        home_to = targets.get((client, home))
        if home_to is not None and (move is None or move.home_to != home_to):
            at = home if move is None else move.home_to
            return Verdict.CONFLICT, f"{client} would be at {home_to}, but its subscription {name} at {at}"
    return None
