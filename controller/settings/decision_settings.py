"""When a change is worth making, as a frozen value, each setting with its unit and the reason for its default. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regraft.schemas.units import MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """When a change is worth making."""

    changes_per_plan_max: Annotated[int, "maximum number of links exchanged in one plan"] = 12
    # Publishers moved in one plan: twice the links, as a move opens no link, it only sends subscriptions along the path
    # between the two homes.
    moves_per_plan_max: int = 24
    users_per_plan_max: Annotated[
        int,
        "maximum number of users (ring) or subscribers (tree) moved in one plan",
    ] = 500
    pay_back_s: Annotated[
        float,
        "time within which the savings of a change must pay for its control messages",
    ] = 300.0
    # A change must also pay back within this many mean lifetimes of a subscription, if that is shorter. 4: by then 2 %
    # of what subscriptions had in common with the present ones is left.
    pay_back_lifetimes: float = 4.0
    # A link, ring ID or home that a plan changed less than this many mean lifetimes ago is changed again only for a
    # gain that exceeds luck by itself. Default 2.
    tabu_lifetimes: float = 2.0
    noise_factor: Annotated[
        float,
        "by how many standard deviations savings must exceed chance; at 2 one worthless decision in 44 may "
        "pass; 0 turns the test off",
    ] = 2.0
    # noise_factor for a change that must show its gain alone, as if it had not been selected for it. 1: with 2, clearly
    # worthwhile changes had to wait for more windows.
    change_noise_factor: float = 1.0
    gain_share_min: Annotated[
        float,
        "a plan must save more than this share of the present cost",
    ] = 0.01
    # The same for each change of links, ring IDs or homes. Default 0.0005: a plan includes small changes, too.
    change_share_min: float = 0.0005
    frailty_weight: Annotated[
        float,
        "penalty, as a share of the present cost, if the worst single death would cut off all deliveries; "
        "proportionally less for less",
    ] = 0.3
    # No plan loads a broker further whose queue measures more (messages in / out * length) until it measures half; 0
    # disables this veto. Default 10, the tau of Shafique.
    broker_congestion_max: float = 10.0
    # The same for links. Default 100, because that queue also holds what is on its way: 50 messages at 500 a second
    # over 100 ms.
    link_congestion_max: float = 100.0
    # While messages wait longer in a queue, averaged over a window, no plan that must save begins; such windows count
    # neither as traffic to decide on nor as changed traffic, and verify no plan, because brokers behind the queue
    # report deliveries too late.
    queue_wait_ms_max: float = 1000.0
    # Windows that must close after a plan before the next. None: verification uses later windows without blocking, and
    # waiting for two raised the regret after a sudden change from 17.9 to 20.6 %.
    cool_down_windows: int = 0
    # A state whose newest window ended longer ago is stale: 12 windows, so that a pause of a stage is none, and an
    # outage is. In proportion with longer windows.
    window_age_ms_max: int = MINUTE_MS
    # How long a planner is ignored after one of its plans had to be undone. Default 5 minutes.
    mute_ms: int = 5 * MINUTE_MS

    def pay_back_within_s(self, lifetime_s: float | None) -> float:
        """Return within how many seconds a plan must earn its transition cost; ``lifetime_s`` is None if unknown."""
        return self.pay_back_s if lifetime_s is None else min(self.pay_back_s, self.pay_back_lifetimes * lifetime_s)

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        least = {
            "changes_per_plan_max": 1,
            "users_per_plan_max": 1,
            "noise_factor": 0,
            "gain_share_min": 0,
            "frailty_weight": 0,
        }
        errors = values_below(self, least)
        if self.pay_back_s <= 0:
            errors.append(
                f"pay_back_s is {self.pay_back_s}: must be above 0, because a change needs time to pay for itself"
            )
        if self.gain_share_min >= 1:
            errors.append(
                f"gain_share_min is {self.gain_share_min}: must be below 1, because no change saves the whole cost"
            )
        return errors


def values_below(settings: object, least: dict[str, int]) -> list[str]:
    """Return a sentence for each named setting whose value is below its minimum."""
    return [
        f"{name} is {getattr(settings, name)}: must be at least {limit}"
        for name, limit in least.items()
        if getattr(settings, name) < limit
    ]
