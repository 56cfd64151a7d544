"""Process orders: which of them are in force, what is reported, and what the audit keeps.

In: orders as their topic delivers them, the plans so far. Out: the book of orders, events, the audit.
Executing orders about plans belongs to :mod:`controller.execute.review_plans`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from regraft.controller.control_ports import AuditSink, EventSink, OrderSource
from regraft.controller.kinds.repair import BROKERS_MIN
from regraft.controller.state.plan_log import PlanLog
from regraft.infra.process.handle_each import handle_each
from regraft.schemas.audit import AuditOutcome, GivenOrder
from regraft.schemas.event import FORGED, SENDER, AdaptationEvent, EventKind, Severity
from regraft.schemas.member import Member, MemberState
from regraft.schemas.member_life import why_member_order_refused
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.order_book import OrderBook, order_text
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, why_order_refused

CLOCKS_APART_MS_MAX = 60_000  # How far the clock of an order's giver may be behind the controller's.
REFUSED_MAX = 200_000  # Refused orders that are remembered, in case the topic is read again.
OPEN_MAX = 1_000  # Orders about the open plan whose outcome is not known yet.
MEMBER_ORDERS_MAX = 1_000  # Between two steps; no fleet is larger.
SHOWN_MAX = 20  # Refused orders of one step that are reported one by one; the audit has all.


class OrderTaker:
    """Takes orders and keeps those that stand."""

    def __init__(self, source: OrderSource, events: EventSink, audit: AuditSink) -> None:
        self._source = source
        self._events = events
        self._audit = audit
        self.errors: Counter[str] = Counter()
        self.members: Mapping[str, Member] = {}  # Members that orders may be about; set by the owner of the fleet.
        self._about_members: list[Order] = []
        self._refused: set[tuple[int, int]] = set()  # Offset and time of those refused here.
        self._begin()

    def _begin(self) -> None:
        self.book = OrderBook()
        self.is_known = False
        self._version = self._source.version
        self._open: list[GivenOrder] = []

    def read(self, plan_log: PlanLog, now_ms: int) -> None:
        """Process new orders; report and store what has not been reported yet."""
        orders = self._source.poll()
        if self._source.version != self._version:
            self._begin()
        refused_count = 0
        for given in orders:
            refusal, outcome = self._taken(given, plan_log)
            if outcome is AuditOutcome.REFUSED and given.offset >= 0 and len(self._refused) < REFUSED_MAX:
                self._refused.add((given.offset, given.written_ms))
            if given.is_new:
                self._audit.keep(given.entry(outcome, refusal, now_ms))
                refused_count += outcome is AuditOutcome.REFUSED
                if refused_count <= SHOWN_MAX:
                    self._report(given, refusal, now_ms)
        if refused_count > SHOWN_MAX:
            text = (
                f"{refused_count - SHOWN_MAX} more orders were refused at the same time: `regraft audit` lists them all"
            )
            self._events.emit(AdaptationEvent("orders", EventKind.ORDER_REFUSED, Severity.WARNING, now_ms, text))
        self.is_known = self.is_known or self._source.is_known
        self._open = [given for given in self._open[-OPEN_MAX:] if not self._is_closed(given, plan_log, now_ms)]

    def _is_closed(self, given: GivenOrder, plan_log: PlanLog, now_ms: int) -> bool:
        """Store the final outcome of an order about a plan; return True if it is known."""
        order = given.order
        plan = None if order is None else _named(plan_log, order.subject)
        if order is None or plan is None:
            return True
        outcome = outcome_of(order.kind, plan.phase)
        if outcome is not None:
            self._audit.keep(given.entry(outcome, plan.history[-1].reason if plan.history else "", now_ms))
        return outcome is not None

    def _taken(self, given: GivenOrder, plan_log: PlanLog) -> tuple[str, AuditOutcome]:
        """Return the outcome of an order so far; one whose handling fails is refused, so it is not met again."""
        outcome = "its handling failed, see the controller's log", AuditOutcome.REFUSED
        taken: list[tuple[str, AuditOutcome]] = []
        handle_each([given], lambda one: taken.append(self._take(one, plan_log)), self.errors, "order that failed")
        return taken[0] if taken else outcome

    def _take(self, given: GivenOrder, plan_log: PlanLog) -> tuple[str, AuditOutcome]:
        """Accept the order if it is allowed; return why not (empty if it is) and its outcome so far."""
        order = given.order
        if given.refusal or order is None:
            return given.refusal, AuditOutcome.REFUSED
        if (given.offset, given.written_ms) in self._refused:  # The topic is read again.
            return "it was refused before", AuditOutcome.REFUSED
        if order.kind.scope == "plan":
            return self._take_about_plan(given, order, plan_log)
        if order.kind.scope == "member":
            return self._take_about_member(given, order)
        # One that is not new was accepted when it was given: the broker may be back.
        if given.is_new and order.kind.scope == "broker" and order.subject not in plan_log.present.brokers:
            return f"the overlay has no broker {order.subject}", AuditOutcome.REFUSED
        self.book.take(order)
        return "", AuditOutcome.ACCEPTED

    def _take_about_member(self, given: GivenOrder, order: Order) -> tuple[str, AuditOutcome]:
        refusal = why_member_order_refused(order.kind, order.subject, self.members.get(order.subject), order.facts)
        if len(self._about_members) >= MEMBER_ORDERS_MAX:
            refusal = (
                refusal or f"{MEMBER_ORDERS_MAX} orders about members are already waiting: give it again in a moment"
            )
        if given.is_new and not refusal:
            refusal = self._why_too_few_remain(order)
        if given.is_new and not refusal:  # One reported before has been executed, or refused for good.
            self._about_members.append(order)
        return refusal, AuditOutcome.REFUSED if refusal else AuditOutcome.ACCEPTED

    def _why_too_few_remain(self, order: Order) -> str:
        """Return why a broker must not leave, "" if it may: with fewer, no overlay is possible and none would leave."""
        if order.kind is not OrderKind.DRAIN:
            return ""
        leaving = {order.subject} | {one.subject for one in self._about_members if one.kind is OrderKind.DRAIN}
        staying = sum(
            one.state is MemberState.IN_SERVICE and one.broker not in leaving for one in self.members.values()
        )
        if staying >= BROKERS_MIN:
            return ""
        return (
            f"{order.subject} cannot be drained: {staying} would be left in service, but an overlay needs at least "
            f"{BROKERS_MIN} brokers: add others first"
        )

    def take_about_members(self) -> list[Order]:
        """Return, once, the accepted orders about members, oldest first."""
        orders, self._about_members = self._about_members, []
        return orders

    def _take_about_plan(self, given: GivenOrder, order: Order, plan_log: PlanLog) -> tuple[str, AuditOutcome]:
        plan = _named(plan_log, order.subject)
        if plan is None:
            return f"no plan is named {order.subject}", AuditOutcome.REFUSED
        if refusal := _why_not_meant(order, plan):
            return refusal, AuditOutcome.REFUSED
        self.book.take(order)
        if refusal := why_order_refused(order.kind, plan.plan, plan.phase):
            return refusal, AuditOutcome.TOO_LATE
        self._open.append(given)
        return "", AuditOutcome.ACCEPTED

    def _report(self, given: GivenOrder, refusal: str, now_ms: int) -> None:
        kind = EventKind.ORDER_REFUSED if refusal else EventKind.ORDER_TAKEN
        severity = Severity.WARNING if refusal else Severity.INFO
        order = given.order
        asked = f"order to {order_text(order)}" if order is not None else f"record without an order for {given.key}"
        text = asked + (f"; not executed: {refusal}" if refusal else "")
        subject = order.subject if order is not None else given.key
        plan = subject if order is not None and order.kind.scope == "plan" else ""
        details = {FORGED: "1"} if given.refusal or order is None else {SENDER: order.key_name or order.by}
        self._events.emit(AdaptationEvent(subject, kind, severity, now_ms, text, plan, details))


def outcome_of(kind: OrderKind, phase: PlanPhase) -> AuditOutcome | None:
    """Return the outcome of an order about a plan that is now in this phase, or None while it is open."""
    if kind in LIFE[phase].orders:
        return None
    is_given_up = phase is PlanPhase.REFUSED or LIFE[phase].is_aborted
    return AuditOutcome.TOO_LATE if is_given_up is (kind is OrderKind.APPROVE) else AuditOutcome.EXECUTED


def _named(plan_log: PlanLog, name: str) -> Plan | None:
    return next((plan for plan in plan_log.plans if plan.plan == name), None)


def _why_not_meant(order: Order, plan: Plan) -> str:
    """Return why an order that names this plan cannot mean it; empty if it can."""
    made_ms = plan.history[0].time_ms if plan.history else 0
    if not order.plan_digest:
        return f"it does not name the version of {plan.plan}: give it with `regraft plans` or in the dashboard"
    if order.plan_digest != plan.approval_digest:
        own = plan.approval_digest
        return f"it is about a different {plan.plan} (digest {order.plan_digest[:32]}, the digest of this one is {own})"
    if order.time_ms < made_ms - CLOCKS_APART_MS_MAX:
        return f"it is older than {plan.plan} by {(made_ms - order.time_ms) / 1000:,.0f} s"
    return ""
