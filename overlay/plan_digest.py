"""The digest of a plan that commands carry: by it brokers and controllers mean the same plan. Pure.

In: a plan and the overlay that it leads to. Out: a short text; brokers can check its part about the overlay.
What a person approves is another one, ``Plan.approval_digest``.
"""

from __future__ import annotations

import hashlib

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Plan

BETWEEN = "-"  # The digest of the overlay stands before it: a broker works that out itself.


def plan_digest(plan: Plan, target: OverlayConfiguration) -> str:
    """Return the digest of a plan that leads to ``target``; the plan's term, phase and costs are not part of it.

    Plans that lead to the same overlay differ in it when they begin at another epoch, move other clients, take other
    brokers for lost, or were begun by different controllers.
    """
    moves = sorted(f"{move.client} {move.home_from} {move.home_to}" for move in plan.moves)
    moves += sorted(f"{move.home_from} {move.home_to}" for move in plan.subscribers_moved)
    text = "\n".join([str(plan.epoch_from), plan.begun_by, " ".join(sorted(plan.brokers_lost)), *moves])
    return target.digest + BETWEEN + hashlib.sha256(text.encode()).hexdigest()[:16]


def overlay_digest(digest: str) -> str:
    """Return the part of a plan's digest that is the digest of the overlay it leads to."""
    return digest.partition(BETWEEN)[0]
