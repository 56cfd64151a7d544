"""Settings that several planners have; each planner has its own values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from regraft.controller.settings.planner_settings import PlannerSettings

Order = Literal["gain", "arrival"]


@dataclass(frozen=True)
class OrderSettings(PlannerSettings):
    """In which order changes that are found together are proposed."""

    # "gain" proposes the best first by true cost: the judge accepts in this order, so no other finds more. "arrival"
    # takes them in random order and ignores true cost, like the paper's brokers, which the lab compares.
    order: Order = "gain"


@dataclass(frozen=True)
class HorizonSettings(OrderSettings):
    """How far brokers know each other."""

    horizon_hops: Annotated[int, "eta of Jaeger07: only brokers within this many hops are linked"] = 4

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if self.horizon_hops < 2:
            errors.append(
                f"horizon_hops is {self.horizon_hops}: must be at least 2, because a direct neighbour is already linked"
            )
        return errors


@dataclass(frozen=True)
class SessionSettings(PlannerSettings):
    """What GRAPE of Cheung09 traces and weighs."""

    # By how many percent GRAPE minimises its first metric, 1 to 100. 100, the whole of it: a lower weight saves less of
    # what plans are judged by.
    grape_weight: int = 100
    # Length of a trace session, the paper's G_threshold of 100.
    grape_notifications_min: int = 100
    # Whether links count in delivery delays. Not in the paper, and delays do not count in the default metric.
    link_delays: bool = False


@dataclass(frozen=True)
class ReassignmentSettings(PlannerSettings):
    """When a reassignment of ring IDs pays."""

    ring_free_s: Annotated[
        float,
        "T_free of Zhao13: time within which a reassignment of IDs must pay",
    ] = 600.0
    # Beta, what the notifications of that time must cost, as a share of the costliest reassignment, before one is
    # computed; the paper's 0.1.
    ring_demand_share_min: float = 0.1

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if not 0 < self.ring_free_s < math.inf:
            errors.append(f"ring_free_s is {self.ring_free_s}: must be above 0, or no reassignment could ever pay")
        return errors


@dataclass(frozen=True)
class ExchangeSettings(PlannerSettings):
    """How far a search for exchanges goes."""

    # Exchanges in one plan, of two brokers' places (some 2 * (regions + clusters) links change) or of a link between
    # regions (one in every cluster).
    exchanges_max: int = 6
    # Exchanges that are priced in one call.
    evaluations_max: int = 2_000
    # The share of the cost that each must save. Default 0.005: few exchanges that matter instead of many small ones.
    gain_share_min: float = 0.005
