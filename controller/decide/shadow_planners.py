"""Run planners beside the acting one, on the same windows and with the same judge, on overlays that exist only here.

In: closed windows and the situations the acting planner decides on. Out: what the traffic would have cost and which
plans would have been made. Nothing here sends, stores or reports; which planner acts belongs to the control loop.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.decide.recent_changes import RecentChanges
from regraft.controller.decide.verify_gain import verify_gain
from regraft.controller.kinds.overlay_kind import AnyKind, HomesBefore
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import configuration_after, homes_after, homes_before
from regraft.controller.state.hot_spots import HotSpots
from regraft.controller.state.overlays_in_window import time_shares
from regraft.controller.state.planner_interface import Planner
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Plan

log = structlog.get_logger(__name__)

PLANS_KEPT_MAX = 50
HOMES_KEPT_MAX = 100_000
OVERLAYS_LEFT_MAX = 8  # Overlays in force during the last windows: one, unless there is no cool-down.

Price = Callable[[OverlayConfiguration], float]


class ShadowPlanner:
    """A chain of planners and the overlay they would have made, from the configuration in force at the start.

    What a broker delivers depends neither on links nor on publishers' homes, and what users want does not depend on
    their homes, so the cost of this overlay on a real window is exact. A user is where this planner moved it, else
    where it would be without the acting planner's moves since the start; one that moves by itself has moved here, too.
    The rules are those of the acting planner: judge, choice, cool-down, rollback of a plan that made things worse,
    muting of its planner, dropping windows from before a change of traffic. Only transitions are missing: a plan takes
    effect at once and costs no messages. So a shadow keeps pace with the same planner acting if its transitions end
    within a window, and is faster if they take longer. After a restart of the controller it begins again at the
    configuration then in force. Exceptions of the planner are counted and not raised.
    """

    def __init__(
        self,
        name: str,
        planners: Sequence[Planner],
        start: OverlayConfiguration,
        kind: AnyKind,
        settings: ControllerSettings,
    ) -> None:
        self.name = name
        self.epoch_start = start.epoch
        self.overlay = start.at_epoch(0).with_homes({})
        self.plans: deque[Plan] = deque(maxlen=PLANS_KEPT_MAX)
        self.plans_made = 0
        self.plans_rolled_back = 0
        self.links_exchanged = 0
        self.moved: Counter[str] = Counter()  # By the kind of client: publishers, users.
        self.id_moves = 0
        self._homes = kind.followed_homes(start.epoch)
        self.refusals: Counter[str] = Counter()
        self.errors = 0
        self.error_text = ""
        self._planners = tuple(planners)
        self._kind = kind
        self._settings = settings
        # (end in ms, overlay until then, homes of the clients that moved then).
        self._left: deque[tuple[int, OverlayConfiguration, Mapping[str, str]]] = deque(maxlen=OVERLAYS_LEFT_MAX)
        self._before: OverlayConfiguration | None = None  # The overlay before the plan not verified yet.
        self._verify_on: list[ClosedWindow] = []
        self._planned_ms: int | None = None
        self._windows_since_plan = 0
        self._lifetime_s: float | None = None
        self._muted_until_ms: dict[str, int] = {}
        self._rolled_back_ms = 0

    @property
    def homes_moved(self) -> dict[str, str]:
        """The homes of the clients that this overlay places elsewhere than the one in force."""
        return self._homes.shown(self.overlay.home_of)

    def add_window(
        self,
        window: ClosedWindow,
        now_ms: int,
        homes_before_acting: HomesBefore,
        changed_since_ms: int | None = None,
    ) -> float | None:
        """Return the cost per second of the window on the overlays of its time; None if the window cannot be costed.

        A plan counts from when it was decided on, some seconds after the end of its window. The last plan is verified
        once enough windows have followed it, unless traffic has changed since, at ``changed_since_ms``.
        ``homes_before_acting`` returns where clients were before the acting planner's plans to epochs after a given
        one.
        """
        if not self._kind.can_be_costed(window):
            return None
        homes = self._homes.learn(self.overlay.home_of, window, homes_before_acting)
        if homes is not None:
            self._place(homes)
        cost = self._cost_by_time_per_s(window)
        if self._before is not None and self.plans[-1].window_end_ms <= (changed_since_ms or 0):
            self._before = None
        # With the acting planner, a window that begins with the plan would contain the transition.
        if self._planned_ms is not None and window.start_ms > self._planned_ms:
            self._windows_since_plan += 1
            self._verify(window, now_ms)
        return cost

    def _cost_by_time_per_s(self, window: ClosedWindow) -> float:
        overlays = [self.overlay]
        for _, overlay, moved in reversed(self._left):
            homes = overlays[-1].home_of
            overlays.append(overlay.with_homes(homes | {one: home for one, home in moved.items() if one in homes}))
        shares = time_shares(window, [until_ms for until_ms, *_ in self._left])
        while self._left and self._left[0][0] <= window.start_ms:
            self._left.popleft()
        intervals = zip(shares, reversed(overlays), strict=True)
        return sum(share * self._kind.cost_per_s(overlay, window) for share, overlay in intervals if share)

    def _place(self, homes: Mapping[str, str]) -> None:
        kept = dict(list(homes.items())[max(len(homes) - HOMES_KEPT_MAX, 0) :])
        self._homes.forget_all_but(kept)
        self.overlay = self.overlay.with_homes(kept)

    def reprice(self, kind: AnyKind) -> None:
        """Use other costs for the same brokers and links."""
        self._kind = kind

    def decide(self, acting: Situation, price_of: Price) -> bool:
        """Decide on the acting planner's situation as if this planner's overlay were in force; False after an error.

        ``price_of`` returns what a transition from an overlay would cost, per second.
        """
        self._lifetime_s = acting.subscription_lifetime_s
        try:
            situation = self._situation(acting, price_of)
            decision = decide_plan(situation, self._planners, self.overlay.epoch + 1, self._settings)
        # A shadow planner must not stop the acting one, whatever it raises.
        except Exception as error:
            self.errors += 1
            self.error_text = f"{type(error).__name__}: {error}"
            if self.errors == 1:
                log.exception("shadow_planner_failed", planner=self.name)
            return False
        if decision.state_verdict is not None:
            self.refusals[decision.state_verdict] += 1
        self.refusals.update(str(proposal.verdict) for proposal in decision.refused)
        if decision.plan is not None:
            self._adopt(decision.plan, acting.state.newest, acting.now_ms)
        return True

    def _situation(self, acting: Situation, price_of: Price) -> Situation:
        # The real window may be of another epoch or of two; here it must be of this overlay's.
        newest, overlay = acting.state.newest, self.overlay
        # No later window would show the moved subscribers on this overlay; without counts, none are moved.
        own = dataclasses.replace(
            newest, epoch_min=overlay.epoch, epoch_max=overlay.epoch, epochs={}, subscribers_at=None, movable={}
        )
        windows = (*acting.state.windows[:-1], own)
        changed_ms = acting.changed_since_ms or 0
        is_calm = self._planned_ms is None or self._planned_ms <= changed_ms
        return dataclasses.replace(
            acting,
            state=self._kind.state_of(overlay, windows),
            price_per_s=price_of(overlay),
            plan_running="",
            windows_since_plan=None if is_calm else self._windows_since_plan,
            muted_until_ms={} if self._rolled_back_ms < changed_ms else self._muted_until_ms,
            paused="",  # An operator has paused the acting planner; a shadow changes nothing.
            plan_in_review="",
            recent=RecentChanges.of(self.plans),
            hot=HotSpots(),  # Queues of the real overlay do not apply to this one.
        )

    def _adopt(self, plan: Plan, newest: ClosedWindow, now_ms: int) -> None:
        self.plans.append(plan)
        self.plans_made += 1
        self.links_exchanged += len(plan.links_added)
        self.id_moves += len(plan.id_moves)
        clients = [move.client for move in plan.moves]
        self.moved[self.overlay.CLIENTS] += len(clients)
        self._homes.note_moves(clients, newest)
        self._before = self.overlay
        self._left.append((now_ms, self.overlay, homes_before([plan])))
        self.overlay = configuration_after(plan, self.overlay)
        self._verify_on = []
        self._planned_ms, self._windows_since_plan = now_ms, 0

    def _verify(self, window: ClosedWindow, now_ms: int) -> None:
        if self._before is None or self._planned_ms is None:
            return
        if window.is_complete and not window.is_delayed(self._settings.decision.queue_wait_ms_max):
            self._verify_on.append(window)
        if len(self._verify_on) < self._settings.verify_windows:
            if now_ms - self._planned_ms > self._settings.verify_ms_max:
                self._before = None  # The acting planner's plans are closed unverified likewise.
            return
        plan, before = self.plans[-1], self._before
        self._before = None
        homes = self.overlay.home_of
        first = {client: home for client, home in homes_before([plan]).items() if client in homes}
        before = before.with_homes(homes | first)  # Includes the clients that have come or moved since.
        verification = verify_gain(plan, before, self.overlay, self._verify_on, self._kind, self._lifetime_s)
        self.plans[-1] = msgspec.structs.replace(plan, cost_observed_per_s=verification.cost_observed_per_s)
        if verification.made_worse(self._settings.decision):
            self.plans_rolled_back += 1
            self._left.append((now_ms, self.overlay, homes_after([plan])))
            self.overlay = before.at_epoch(self.overlay.epoch + 1)
            self._planned_ms, self._windows_since_plan = now_ms, 0
            self._rolled_back_ms = now_ms
            for proposal in plan.proposals:
                self._muted_until_ms[proposal.planner] = now_ms + self._settings.decision.mute_ms
