"""Review plans that wait for an operator: approved and executed exactly as shown, refused, or out of date.

In: orders in force, the plan that waits, the situation at the newest window. Out: effects for the plan runner. Which
orders are in force belongs to :mod:`controller.execute.take_orders`, choosing proposals for a plan to
:mod:`controller.decide.choose_proposals`, whether plans need approval to the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regraft.controller.decide.choose_proposals import recheck_plan
from regraft.controller.decide.judge_proposals import Situation, judge_state, judge_worth
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.execute.transition import EmitEvent, PersistPlan
from regraft.controller.kinds.overlay_kind import needs_no_gain
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, entered

NOT_KNOWN = "the orders in force are not known yet: check that the topics of orders and audit exist and can be read"


class PlanReviewer:
    """Reviews the one plan that waits for an operator."""

    def __init__(self, settings: ControllerSettings, orders: OrderTaker, runner: PlanRunner) -> None:
        self._settings = settings
        self._orders = orders
        self._runner = runner

    def paused(self, now_ms: int) -> str:
        """Return why no decision may be made now; empty if decisions may be made."""
        if not self._orders.is_known:
            return NOT_KNOWN
        order = self._orders.book.paused(now_ms)
        return "" if order is None else f"paused by {order.by}: {order.reason}"

    def maintained(self, now_ms: int) -> dict[str, str]:
        """Return the brokers in maintenance, each with who ordered it and why."""
        return {
            broker: f"in maintenance, by {order.by}: {order.reason}"
            for broker, order in self._orders.book.maintained(now_ms).items()
        }

    def evacuated(self, now_ms: int) -> frozenset[str]:
        """Return the brokers in maintenance whose clients are to move away."""
        return frozenset(broker for broker, order in self._orders.book.maintained(now_ms).items() if order.evacuate)

    def muted_until_ms(self, plan_log: PlanLog) -> dict[str, int]:
        """Return until when each planner is muted whose plan an operator has refused: it would propose it again."""
        muted: dict[str, int] = {}
        for plan in plan_log.plans:
            order = self._orders.book.about_plan(plan.plan) if plan.phase is PlanPhase.REFUSED else None
            if order is not None and order.kind is not OrderKind.APPROVE:
                for proposal in plan.proposals:
                    until_ms = order.time_ms + self._settings.decision.mute_ms
                    muted[proposal.planner] = max(muted.get(proposal.planner, 0), until_ms)
        return muted

    def begin(self, plan: Plan, now_ms: int, note: str = "") -> None:
        """Begin a plan or, in a dry run, store it for review; ``note`` is added to its reason."""
        if self._settings.dry_run:
            self.propose(plan, now_ms, note)
        else:
            self._runner.begin(plan, now_ms, f"chosen; {note}" if note else "chosen")

    def propose(self, plan: Plan, now_ms: int, note: str = "") -> None:
        """Store a plan for review; ``note`` is added to its reason."""
        note = f"; {note}" if note else ""
        proposed = entered(plan, PlanPhase.PROPOSED, f"waits for approval{note}", now_ms)
        text = f"{plan.plan} waits for approval: `regraft plans list {plan.plan}`"
        self._runner.add([PersistPlan(proposed), _event(plan, EventKind.PLAN_PROPOSED, Severity.INFO, now_ms, text)])

    def cancel(self, state: LoopState, now_ms: int) -> None:
        """Abort the plan that is being prepared if an operator has ordered that."""
        plan = state.plan_log.moving
        if plan is None or OrderKind.CANCEL not in LIFE[plan.phase].orders:
            return
        order = self._orders.book.about_plan(plan.plan)
        if order is not None and order.kind is OrderKind.CANCEL:
            self._runner.cancel(f"cancelled by {order.by}: {order.reason}", now_ms)

    def advance_review(self, state: LoopState, situation_of: Callable[[], Situation | None], now_ms: int) -> bool:
        """Refuse the waiting plan if an operator refuses it or it is out of date, execute it if it is approved.

        Return True if a plan has begun. ``situation_of`` is called only for an approved plan.
        """
        plan = state.plan_log.proposed
        if plan is None or plan.is_membership or self._runner.is_busy or not self._orders.is_known:
            return False
        order = self._approval(plan, "", state.plan_log, now_ms)
        situation = situation_of() if order is not None else None
        if situation is None or order is None:
            return False
        if self._is_worth_unknown(plan, situation):
            return False  # It waits for a state fit to act on, until its review ends.
        stale = self.objection(plan, situation)
        if stale:
            self._refuse(plan, f"approved by {order.by}, but no longer as shown: {stale}", now_ms)
            return False
        self._runner.begin(plan, now_ms, f"approved by {order.by_and_why}")
        return True

    def approval_of_change(self, plan: Plan, stale: str, plan_log: PlanLog, now_ms: int) -> str:
        """Return who has approved a waiting change of brokers, and why; empty while nobody has, or if it is refused.

        ``stale`` is why it is no longer the change to make, empty if it is.
        """
        order = None if self._runner.is_busy else self._approval(plan, stale, plan_log, now_ms)
        return "" if order is None else order.by_and_why

    def was_refused(self, change: BrokerChange, plan_log: PlanLog, now_ms: int) -> bool:
        """Return True if an operator refused this change of the overlay in force so recently that it is not shown."""
        return any(
            plan.is_membership
            and plan.phase is PlanPhase.REFUSED
            and plan.epoch_from == plan_log.present.epoch
            and plan_log.change_of(plan) == change
            and (order := self._orders.book.about_plan(plan.plan)) is not None
            and order.kind is not OrderKind.APPROVE
            and now_ms - order.time_ms < self._settings.decision.mute_ms
            for plan in plan_log.plans
        )

    def _approval(self, plan: Plan, stale: str, plan_log: PlanLog, now_ms: int) -> Order | None:
        """Return the order that approves a waiting plan; refuse it if an order does, or if it is out of date."""
        order = self._orders.book.about_plan(plan.plan)
        refusal = stale or self._out_of_date(plan, plan_log, now_ms)
        if order is not None and order.kind is not OrderKind.APPROVE:
            refusal = f"{order.kind.done} by {order.by}: {order.reason}"
        if refusal:
            self._refuse(plan, refusal, now_ms)
            return None
        return order

    def revalidate(self, state: LoopState, situation: Situation, now_ms: int) -> None:
        """Refuse the waiting plan, if any, if it is no longer worth its transition cost on the newest window."""
        plan = state.plan_log.proposed
        if plan is None or plan.is_membership or self._runner.is_busy:
            return
        situation = replace(situation, plan_in_review="")
        stale = "" if self._is_worth_unknown(plan, situation) else self.objection(plan, situation)
        if stale:
            self._refuse(plan, f"no longer as shown: {stale}", now_ms)

    def objection(self, plan: Plan, situation: Situation) -> str:
        """Return why the plan cannot be executed as shown in the situation; empty if it can.

        A rollback was not made for a gain on these windows, so only its epoch counts.
        """
        if plan.undoes:
            return ""
        refusal = recheck_plan(plan, situation)
        return "" if refusal is None else f"{refusal[0]}, {refusal[1]}"

    def _is_worth_unknown(self, plan: Plan, situation: Situation) -> bool:
        """Return True if the plan's worth is unknown at present, so that it can be neither executed nor refused."""
        if judge_state(situation, self._settings.decision) is not None:
            return True
        is_to_save = not (plan.undoes or needs_no_gain(plan.proposals))
        return is_to_save and judge_worth(situation, self._settings.decision) is not None

    def _out_of_date(self, plan: Plan, plan_log: PlanLog, now_ms: int) -> str:
        present = plan_log.present.epoch
        if plan.epoch_from != present:
            return f"stale: it starts from epoch {plan.epoch_from}, but epoch {present} is in force"
        waited_ms = now_ms - plan.history[-1].time_ms if plan.history else 0
        if waited_ms > self._settings.review_ms_max:
            return f"it was not approved within {self._settings.review_ms_max} ms"
        return ""

    def _refuse(self, plan: Plan, reason: str, now_ms: int) -> None:
        refused = entered(plan, PlanPhase.REFUSED, reason, now_ms)
        text = f"{plan.plan} is not executed: {reason}"
        self._runner.add([PersistPlan(refused), _event(plan, EventKind.PLAN_REFUSED, Severity.INFO, now_ms, text)])


def _event(plan: Plan, kind: EventKind, severity: Severity, now_ms: int, text: str) -> EmitEvent:
    return EmitEvent(AdaptationEvent(plan.plan, kind, severity, now_ms, text, plan.plan))
