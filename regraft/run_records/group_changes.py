"""Group the changes of a plan by reason, so that a reason that many changes share is shown once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regraft.schemas.plan import Proposal


@dataclass(frozen=True)
class ChangeGroup:
    """The changes that one planner proposes for one reason, each with its details."""

    planner: str
    reason: str
    changes: tuple[tuple[Proposal, str], ...]


def group_changes(proposals: Iterable[Proposal]) -> list[ChangeGroup]:
    """Group proposals by planner and reason, in order of first occurrence.

    Reasons are compared without the names of the links and clients that change. Details follow a semicolon.
    """
    groups: dict[tuple[str, str], list[tuple[Proposal, str]]] = {}
    for proposal in proposals:
        reason, _, detail = proposal.reason.partition("; ")
        shared = _without_names(reason, _names(proposal))
        groups.setdefault((proposal.planner, shared), []).append((proposal, detail))
    return [ChangeGroup(planner, reason, tuple(changes)) for (planner, reason), changes in groups.items()]


def _names(proposal: Proposal) -> Mapping[str, str]:
    """Return general names for the link or client, and its homes, if the proposal changes only one."""
    names: dict[str, str] = {}
    if len(proposal.links_added) == len(proposal.links_removed) == 1:
        for (a, b), name in ((proposal.links_added[0], "the new link"), (proposal.links_removed[0], "the old one")):
            names |= {f"{a}-{b}": name, f"{b}-{a}": name}
    if len(proposal.moves) == 1:
        (move,) = proposal.moves
        names |= {move.client: "the client", move.home_from: "the old one", move.home_to: "the new one"}
    return names


def _without_names(reason: str, names: Mapping[str, str]) -> str:
    for name, instead in names.items():
        reason = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead, reason)
    return reason
