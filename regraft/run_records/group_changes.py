"""Group the changes of a plan by their reasons, so that a sentence that many changes share is shown once.

In: proposals. Out: groups with what each change adds to the reason. How they are laid out does not belong here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regraft.schemas.plan import Proposal


@dataclass(frozen=True)
class ChangeGroup:
    """The changes that one planner suggests for one reason, each with the details that it alone has."""

    planner: str
    reason: str
    changes: tuple[tuple[Proposal, str], ...]


def group_changes(proposals: Iterable[Proposal]) -> list[ChangeGroup]:
    """Return the proposals by planner and reason, in the order of the first of each.

    Reasons are compared without the names of the links and clients that change; what follows a semicolon are details.
    """
    found: dict[tuple[str, str], list[tuple[Proposal, str]]] = {}
    for proposal in proposals:
        reason, _, detail = proposal.reason.partition("; ")
        shared = _without_names(reason, _names(proposal))
        found.setdefault((proposal.planner, shared), []).append((proposal, detail))
    return [ChangeGroup(planner, reason, tuple(changes)) for (planner, reason), changes in found.items()]


def _names(proposal: Proposal) -> Mapping[str, str]:
    """Return what to call the only link, or the only client, that the proposal changes."""
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
