"""The digest of a plan that commands carry, so that brokers and controllers mean the same plan. Pure.

The digest that an operator approves is another one, ``Plan.approval_digest``.
"""

from __future__ import annotations

import hashlib

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Plan

BETWEEN = "-"  # Follows the digest of the overlay, which a broker can compute.


def plan_digest(plan: Plan, target: OverlayConfiguration) -> str:
    """Return the digest of a plan that leads to ``target``, without the plan's term, phase and costs.

    Plans that lead to the same overlay have different digests if they begin at different epochs, move different
    clients, list different lost brokers, or were begun by different controllers.
    """
    moves = sorted(f"{move.client} {move.home_from} {move.home_to}" for move in plan.moves)
    moves += sorted(f"{move.home_from} {move.home_to}" for move in plan.subscribers_moved)
    text = "\n".join([str(plan.epoch_from), plan.begun_by, " ".join(sorted(plan.brokers_lost)), *moves])
    return target.digest + BETWEEN + hashlib.sha256(text.encode()).hexdigest()[:16]


def overlay_digest(digest: str) -> str:
    """Return the part of a plan's digest that is the digest of the overlay it leads to."""
    return digest.partition(BETWEEN)[0]
