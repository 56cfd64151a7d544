"""Let planners decide beside the acting one: on the same windows, by the same judge, on an overlay that exists only
here.

In: closed windows and the situations the acting planner decides on. Out: what the traffic would have cost and which
plans would have been made. Nothing here sends, stores or tells; which planner acts belongs to the control loop.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from controller.controller_settings import ControllerSettings
from controller.decide.decide_plan import decide_plan
from controller.decide.judge_proposals import Situation
from controller.decide.verify_gain import verify_gain
from controller.state.closed_window import ClosedWindow
from controller.state.find_homes import homes_before, homes_in
from controller.state.plan_target import configuration_after, with_homes_of
from controller.state.planner_interface import OverlayState, Planner
from controller.state.ring_state import ring_state_of
from controller.state.window_costs import can_be_costed, cost_per_s
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.inventory import Inventory
from schemas.plan import Plan

log = structlog.get_logger(__name__)

PLANS_KEPT_MAX = 50
HOMES_KEPT_MAX = 100_000

Price = Callable[[AnyConfiguration], float]


class ShadowPlanner:
    """A chain of planners and the overlay that they would have made, from the configuration in force at the start on.

    What a broker delivers depends neither on the links nor on the publishers' homes, and what users want not on where
    they are, so the cost of this overlay on a real window is exact. A user is where this planner has moved it, else
    where it would be without the acting planner's moves since the start; one that goes elsewhere by itself is there for
    this planner, too.
    The rules are those of the acting planner: judge, choice, cool-down, one plan at a time until it is verified, a plan
    that made things worse taken back and its planner muted. Only transitions are missing: a plan holds at once and
    costs no message. So a shadow keeps the pace of the same planner at work whose transitions are over within a window;
    where they take longer, it is quicker. A restarted controller begins again at the configuration then in force. What
    the planner raises is counted and goes no further.
    """

    def __init__(
        self,
        name: str,
        planners: Sequence[Planner],
        start: AnyConfiguration,
        inventory: Inventory,
        settings: ControllerSettings,
    ) -> None:
        self.name = name
        self.overlay = dataclasses.replace(start, epoch=0, homes=())
        self.is_ring = isinstance(start, ChordConfiguration)
        self.start_epoch = start.epoch
        self.plans: deque[Plan] = deque(maxlen=PLANS_KEPT_MAX)
        self.plans_made = 0
        self.plans_taken_back = 0
        self.links_exchanged = 0
        self.publishers_moved = 0
        self.users_moved = 0
        self.id_moves = 0
        self._moved: set[str] = set()
        self._moved_from: dict[str, str] = {}  # Where users really were when they were moved here.
        self.refusals: Counter[str] = Counter()
        self.faults = 0
        self.fault_text = ""
        self._planners = tuple(planners)
        self._inventory = inventory
        self._settings = settings
        self._before: AnyConfiguration | None = None  # The overlay before the plan that is not verified yet.
        self._verify_on: list[ClosedWindow] = []
        self._closed_on: ClosedWindow | None = None  # The window that ended the verification.
        self._planned_ms: int | None = None
        self._windows_since_plan = 0
        self._lifetime_s: float | None = None
        self._muted_until_ms: dict[str, int] = {}

    @property
    def homes_moved(self) -> dict[str, str]:
        """Where the clients are that it has moved; on a ring also those that the acting planner has moved."""
        return {client: home for client, home in self.overlay.homes if self.is_ring or client in self._moved}

    def add_window(
        self, window: ClosedWindow, now_ms: int, homes_before_acting: Mapping[str, str] | None = None
    ) -> float | None:
        """Return what the overlay costs on the window, per second; None where the window of a ring knows no interests.

        The last plan is verified when enough windows have come after it. ``homes_before_acting``: on a ring, where
        users were that the acting planner has moved since the start.
        """
        if not can_be_costed(self.overlay, window):
            return None
        if self.is_ring:
            self._learn_users(window, homes_before_acting or {})
        else:
            self._learn_publishers(window)
        cost = cost_per_s(self.overlay, self._inventory, window, self._settings.ring_delay_weight)
        if self._planned_ms is not None and window.start_ms >= self._planned_ms:
            self._windows_since_plan += 1
            self._verify(window, now_ms)
        return cost

    def _learn_publishers(self, window: ClosedWindow) -> None:
        """Take publishers that are new here as they are; where the acting planner moves them does not count."""
        known = self.overlay.home_of
        new = {publisher: home for publisher, home in window.homes.items() if publisher not in known}
        if new:
            self._place(known | new)

    def _learn_users(self, window: ClosedWindow, homes_before_acting: Mapping[str, str]) -> None:
        """Undo the acting planner's moves here, and let users go that have moved by themselves."""
        known = self.overlay.home_of
        new = {user: home for user, home in homes_before_acting.items() if user not in known}
        own = [user for user in self._moved_from if user not in homes_before_acting]
        homes = {} if window.interests is None else homes_in(window.interests, own)
        gone = {user for user, home in homes.items() if home != self._moved_from[user]}
        if new or gone:
            self._moved -= gone
            self._moved_from = {user: home for user, home in self._moved_from.items() if user not in gone}
            self._place({user: home for user, home in known.items() if user not in gone} | new)

    def _place(self, homes: Mapping[str, str]) -> None:
        kept = dict(list(homes.items())[max(len(homes) - HOMES_KEPT_MAX, 0) :])
        self._moved.intersection_update(kept)
        self._moved_from = {user: home for user, home in self._moved_from.items() if user in kept}
        self.overlay = with_homes_of(self.overlay, kept)

    def decide(self, acting: Situation, price_of: Price) -> bool:
        """Decide on the acting planner's situation as if this planner's overlay were in force; return False on a fault.

        ``price_of`` says what a transition from an overlay would cost, per second.
        """
        self._lifetime_s = acting.subscription_lifetime_s
        try:
            situation = self._situation(acting, price_of)
            decision = decide_plan(situation, self._planners, self.overlay.epoch + 1, self._settings)
        # A planner that only looks on must not stop the one that acts, whatever it raises.
        except Exception as error:
            self.faults += 1
            self.fault_text = f"{type(error).__name__}: {error}"
            if self.faults == 1:
                log.exception("shadow_planner_failed", planner=self.name)
            return False
        if decision.state_verdict is not None:
            self.refusals[decision.state_verdict] += 1
        self.refusals.update(str(proposal.verdict) for proposal in decision.refused)
        if decision.plan is not None:
            self._adopt(decision.plan, acting.state.newest, acting.now_ms)
        return True

    def _situation(self, acting: Situation, price_of: Price) -> Situation:
        # The real window may be of another epoch or of two: here it only has to be one of the overlay's own.
        newest, overlay = acting.state.newest, self.overlay
        own = dataclasses.replace(newest, epoch_min=overlay.epoch, epoch_max=overlay.epoch)
        windows = (*acting.state.windows[:-1], own)
        ring = ring_state_of(overlay, windows) if isinstance(overlay, ChordConfiguration) else None
        # As at work, a plan whose verification ends with a window is closed too late for a decision on that window.
        is_running = self._before is not None or self._closed_on is newest
        return dataclasses.replace(
            acting,
            state=OverlayState(overlay, acting.state.inventory, windows, ring),
            price_per_s=price_of(overlay),
            plan_running=self.plans[-1].plan if is_running else "",
            windows_since_plan=None if self._planned_ms is None else self._windows_since_plan,
            muted_until_ms=self._muted_until_ms,
            paused="",  # A person keeps the acting planner from acting; this one changes nothing.
            plan_in_review="",
        )

    def _adopt(self, plan: Plan, newest: ClosedWindow, now_ms: int) -> None:
        self.plans.append(plan)
        self.plans_made += 1
        self.links_exchanged += len(plan.links_added)
        self.id_moves += len(plan.id_moves)
        clients = [move.client for move in plan.moves]
        if self.is_ring:
            self.users_moved += len(clients)
            if newest.interests is not None:
                self._moved_from |= homes_in(newest.interests, clients)
        else:
            self.publishers_moved += len(clients)
        self._moved.update(clients)
        self._before = self.overlay
        self.overlay = configuration_after(plan, self.overlay)
        self._verify_on = []
        self._planned_ms, self._windows_since_plan = now_ms, 0

    def _verify(self, window: ClosedWindow, now_ms: int) -> None:
        if self._before is None or self._planned_ms is None:
            return
        if window.is_complete:
            self._verify_on.append(window)
        if len(self._verify_on) < self._settings.verify_windows:
            if now_ms - self._planned_ms > self._settings.verify_ms_max:
                self._before = None  # As the acting planner's plans are closed unverified.
            return
        plan, before = self.plans[-1], self._before
        self._before, self._closed_on = None, window
        known = self.overlay.home_of
        first = {client: home for client, home in homes_before([plan]).items() if client in known}
        before = with_homes_of(before, known | first)  # With the clients that have come since, or gone elsewhere.
        weight = self._settings.ring_delay_weight
        found = verify_gain(plan, before, self.overlay, self._verify_on, self._inventory, self._lifetime_s, weight)
        self.plans[-1] = msgspec.structs.replace(plan, cost_observed_per_s=found.cost_observed_per_s)
        if found.made_worse(self._settings.decision):
            self.plans_taken_back += 1
            self.overlay = dataclasses.replace(before, epoch=self.overlay.epoch + 1)
            self._planned_ms, self._windows_since_plan = now_ms, 0
            for proposal in plan.proposals:
                self._muted_until_ms[proposal.planner] = now_ms + self._settings.decision.mute_ms
