"""Compute where a plan leads, with the homes of the clients that it moves. Pure.

Whether the plan was executed is not known here (:mod:`controller.state.plan_log`).
"""

from __future__ import annotations

from regraft.controller.state.find_homes import homes_after, homes_before
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Plan


def configuration_after(plan: Plan, before: OverlayConfiguration) -> OverlayConfiguration:
    """Return the configuration that the plan leads to from ``before``, with the homes of all clients moved so far."""
    return before.target_of(plan).with_homes(before.home_of | homes_after([plan]))


def configuration_before(plan: Plan, after: OverlayConfiguration) -> OverlayConfiguration:
    """Return the configuration that the plan began from, with the homes of the clients that it moved."""
    return after.origin_of(plan, after.home_of | homes_before([plan]))
