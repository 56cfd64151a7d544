"""When a change is worth making, as a frozen value, each setting with its unit and the reason for its default. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """When a change is worth making.

    ``changes_per_plan_max``: links exchanged in one plan. Few enough for verification to show what helped, enough to
    repair a bad overlay soon. Default 12: over a run of the demo 3 saved 54 %, 12 64 %, 39 only 65 %.
    ``moves_per_plan_max``: publishers moved in one plan. Default 24: a move opens no link, it only sends subscriptions
    along the path between the two homes.
    ``users_per_plan_max``: users moved in one plan on a ring, subscribers on a tree. Default 500: a move costs two
    brokers a few messages, and only its own user notices. A reassignment of ring IDs is one change however many brokers
    it involves.
    ``pay_back_s``: a change must earn its control messages within this time. Default 300 s, a small part of the hours
    that an interest usually lives. ``pay_back_lifetimes``: and within this many mean lifetimes of a subscription, if
    that is shorter. Default 4: by then 2 % of what subscriptions had in common with the present ones is left.
    ``tabu_lifetimes``: a link, ring ID or home that a plan changed less than this many mean lifetimes ago is changed
    again only for a gain that exceeds luck by itself. Default 2.
    ``noise_factor``: the best of all worthless changes makes a plan at most as often as a normal variable exceeds this
    many standard deviations; 0 turns the test off. Default 2, one decision in 44. ``change_noise_factor``: the same for
    each change of a plan, as if it had not been selected for its gain. Default 1: with 2, clearly worthwhile changes
    had to wait for more windows (docs/decisions.md).
    ``gain_share_min``: a plan must save more than this share of the present cost regardless of noise, or the overlay
    would be rebuilt for negligible gains. Default 0.01. ``change_share_min``: the same for each change of links, ring
    IDs or homes. Default 0.0005: a plan includes small changes, too.
    ``frailty_weight``: the penalty, as a share of the present cost, for a change after which the worst single death
    would cut off all deliveries instead of none; proportionally less for less. 0 considers the cost alone. Default 0.3:
    it keeps the worst death from cutting off some 4 % more of all deliveries, for some 1.5 % of cost (docs/frailty.md).
    ``broker_congestion_max``: no plan loads a broker further whose queue measures more (messages in / out * length)
    until it measures half; 0 disables this veto. Default 10, the tau of Shafique. ``link_congestion_max``: the same for
    links. Default 100, because that queue also holds what is on its way: 50 messages at 500 a second over 100 ms.
    ``queue_wait_ms_max``: while messages wait longer in a queue, averaged over a window, no plan that must save begins;
    such windows count neither as traffic to decide on nor as changed traffic, and verify no plan, because brokers
    behind the queue report deliveries too late. 0 for no such limit. Default 1 s, half of what windows wait for late
    reports.
    ``cool_down_windows``: windows that must close after a plan before the next. Default 0: verification uses later
    windows without blocking, and waiting for two raised the regret after a sudden change from 17.9 to 20.6 %.
    ``window_age_ms_max``: a state whose newest window ended longer ago is stale. Default 60 s, several windows.
    ``mute_ms``: how long a planner is ignored after one of its plans had to be undone. Default 5 minutes.
    """

    changes_per_plan_max: int = 12
    moves_per_plan_max: int = 24
    users_per_plan_max: int = 500
    pay_back_s: float = 300.0
    pay_back_lifetimes: float = 4.0
    tabu_lifetimes: float = 2.0
    noise_factor: float = 2.0
    change_noise_factor: float = 1.0
    gain_share_min: float = 0.01
    change_share_min: float = 0.0005
    frailty_weight: float = 0.3
    broker_congestion_max: float = 10.0
    link_congestion_max: float = 100.0
    queue_wait_ms_max: float = 1000.0
    cool_down_windows: int = 0
    window_age_ms_max: int = MINUTE_MS
    mute_ms: int = 5 * MINUTE_MS

    def pay_back_within_s(self, lifetime_s: float | None) -> float:
        """Return within how many seconds a plan must earn its price; ``lifetime_s`` is None if unknown."""
        return self.pay_back_s if lifetime_s is None else min(self.pay_back_s, self.pay_back_lifetimes * lifetime_s)

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        least = {
            "changes_per_plan_max": 1,
            "moves_per_plan_max": 1,
            "users_per_plan_max": 1,
            "noise_factor": 0,
            "change_noise_factor": 0,
            "gain_share_min": 0,
            "change_share_min": 0,
            "frailty_weight": 0,
            "broker_congestion_max": 0,
            "link_congestion_max": 0,
            "queue_wait_ms_max": 0,
            "tabu_lifetimes": 0,
            "cool_down_windows": 0,
            "window_age_ms_max": 1,
            "mute_ms": 0,
        }
        found = values_below(self, least)
        for name in ("pay_back_s", "pay_back_lifetimes"):
            if getattr(self, name) <= 0:
                found.append(f"{name} is {getattr(self, name)}: above 0, a change needs time to pay for itself")
        for name in ("gain_share_min", "change_share_min"):
            if getattr(self, name) >= 1:
                found.append(f"{name} is {getattr(self, name)}: below 1, no change saves the whole cost")
        return found


def values_below(settings: object, least: dict[str, int]) -> list[str]:
    """Return a sentence for each named setting whose value is below its minimum."""
    return [
        f"{name} is {getattr(settings, name)}: at least {limit}"
        for name, limit in least.items()
        if getattr(settings, name) < limit
    ]
