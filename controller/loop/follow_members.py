"""Follow the state of each member: orders about it, silence, restart or return, admission to the overlay.

In: orders about members, announcements, closed windows, peers that brokers have lost, the plans in force. Out: the
fleet, each change stored with its event; and the brokers that the plan under way cannot count on. Adding brokers to the
overlay and removing them belongs to :mod:`controller.loop.repair_overlay`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec.structs import replace

from regraft.controller.control_ports import EventSink, RecordSource
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner, plans_missing
from regraft.controller.execute.find_lost import joining_plan, lost_brokers, lost_during
from regraft.controller.execute.take_announcements import (
    ADMITTED,
    NEVER_REPORTED,
    AnnouncementTaker,
    is_awaited_unasked,
)
from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.execute.transition import EmitEvent, PersistMember
from regraft.controller.execute.weigh_claims import MUTED_MS, Claim
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.member_transitions import NEVER_MS, died, entered_state, is_dead_by_order, restarted
from regraft.controller.state.overlays_in_window import brokers_elsewhere
from regraft.infra.process.handle_each import handle_each
from regraft.schemas.announcement import Announcement
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.member import Member, MemberState
from regraft.schemas.member_life import state_after
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.texts import name_some


class BrokerActivity:
    """When each broker was last seen, in event time. Memory O(brokers)."""

    def __init__(self, boots: Mapping[str, int]) -> None:
        """Start with the known incarnations, by broker; 0 means none."""
        self.boots = {broker: boot for broker, boot in boots.items() if boot}
        self._last_seen_ms: dict[str, int] = {}
        self._begun_ms: int | None = None
        self.newest: ClosedWindow | None = None

    def add(self, window: ClosedWindow) -> dict[str, int]:
        """Add a window; return the brokers that reported from a later incarnation, with their previous one."""
        self._begun_ms = window.start_ms if self._begun_ms is None else self._begun_ms
        self.newest = window
        again = {}
        for broker, boot in window.boots.items():
            self._last_seen_ms[broker] = window.end_ms
            if boot > self.boots.get(broker, 0):
                if broker in self.boots:
                    again[broker] = self.boots[broker]
                self.boots[broker] = boot
        return again

    def silent_ms(self, broker: str, since_ms: int) -> int:
        """Return how long a broker has been silent that could have been active since a time.

        Silence lasts until the end of the newest window, and begins no earlier than the first window.
        """
        if self.newest is None or self._begun_ms is None:
            return 0
        last_ms = max(self._last_seen_ms.get(broker, self._begun_ms), min(since_ms, self.newest.end_ms))
        return self.newest.end_ms - last_ms

    def was_active_since(self, broker: str, since_ms: int) -> bool:
        """Return True if the broker was active in any window that ended after a time."""
        return self._last_seen_ms.get(broker, -1) > since_ms

    def is_active_since(self, broker: str, since_ms: int) -> bool:
        """Return True if the broker was active in the newest window, and that did not begin before a time."""
        return self.newest is not None and broker in self.newest.boots and self.newest.start_ms >= since_ms


NAMED_MAX = 5
DOUBTED_MS = 20_000  # After too many brokers seemed dead, until all that live have been heard again.
NOT_IN_OVERLAY = "it counted as in service, but the overlay in force does not have it"
SEVERITIES = {MemberState.DEAD: Severity.CRITICAL}  # All other states are reported as information.


class FollowMembers:
    """Keeps the states of the fleet's members up to date."""

    def __init__(
        self,
        settings: ControllerSettings,
        orders: OrderTaker,
        announcements: RecordSource[Announcement],
        runner: PlanRunner,
        events: EventSink,
        metrics: LoopMetrics,
    ) -> None:
        self._settings = settings.members
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._orders = orders
        self._announcements = AnnouncementTaker(self._settings, announcements, events, metrics.announcements)
        self._runner = runner
        self._events = events
        self._metrics = metrics
        self._activity: BrokerActivity | None = None
        self._restarted: dict[str, int] = {}  # Restarted brokers, with the boot time of their previous incarnation.
        self._claims = runner.claims
        self._lost_since_ms: dict[str, int] = {}
        self._doubted: dict[str, frozenset[str]] = {}  # By what they do, the brokers in doubt, to report each once.
        self._doubted_ms: dict[str, int] = {}  # When there was doubt last.

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process orders, announcements, reports and windows, and change the members they concern."""
        orders = self._orders.take_about_members()
        handle_each(orders, lambda one: self._execute(one, state, now_ms), state.errors, "order about a member")
        for one in self._announcements.read(state, now_ms):
            self._change(Member(one.broker, MemberState.JOINING, now_ms, ADMITTED, facts=one.facts), state, now_ms)
        self._claims.agent_of = state.fleet.inventory.agent_of
        self._judge_outsiders(self._runner.take_outside(), state, now_ms)
        self._judge_unanswering(state, now_ms)
        handle_each(state.taken, lambda one: self._follow(one, state, now_ms), state.errors, "window not judged")
        self._settle(state, now_ms)
        self._measure_repairs(state, now_ms)
        moving = state.plan_log.moving
        lost = lost_during(moving, state.plan_log, state.fleet) if moving else frozenset[str]()
        self._runner.lose(lost)
        self._orders.members = state.fleet.members

    def _follow(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Note who was active in a window, and judge it if it is recent."""
        self._restarted |= self._activity_in(state).add(window)
        # A controller that has just begun to read may find in the next window what an old one lacks.
        is_recent = now_ms - window.end_ms <= self._window_age_ms_max
        # With plans missing, the controller stops after this step: no broker is to blame.
        if is_recent and not plans_missing(state, now_ms, self._window_age_ms_max):
            self._judge(window, state, now_ms)
            self._judge_claims(window, state, now_ms)

    def _activity_in(self, state: LoopState) -> BrokerActivity:
        if self._activity is None:
            self._activity = BrokerActivity({broker: one.boot_ms for broker, one in state.fleet.members.items()})
        return self._activity

    def _execute(self, order: Order, state: LoopState, now_ms: int) -> None:
        """Execute the order, unless the member has changed since so that it no longer applies."""
        member = state.fleet.members.get(order.subject)
        after = state_after(order.kind, member)
        if after is None:
            return
        reason = f"{order.kind.done} by {order.by}: {order.reason}"
        subject = member or Member(order.subject, after, now_ms, reason, facts=order.facts)
        if order.kind is OrderKind.DEAD:
            dead = died(subject, self._activity_in(state).boots.get(order.subject, 0), reason, now_ms, self._settings)
            changed = replace(dead, deaths_ms=(*dead.deaths_ms[:-1], order.time_ms))
        else:
            changed = replace(entered_state(subject, after, reason, now_ms), returns_ms=0)
        self._change(replace(changed, ordered_ms=order.time_ms), state, now_ms)

    def _judge_outsiders(self, outside: dict[str, int], state: LoopState, now_ms: int) -> None:
        """Declare brokers dead if they refuse a plan because they restarted: repairs that count on them would fail.

        However many they are: each speaks for itself.
        """
        present, members, activity = state.plan_log.present, state.fleet.members, self._activity_in(state)
        serving = [broker for broker in present.brokers if members[broker].state.is_serving]
        for broker in (one for one in serving if outside.get(one, -1) > present.epoch):
            why = "it reports that it restarted"
            self._change(
                died(members[broker], activity.boots.get(broker, 0), why, now_ms, self._settings), state, now_ms
            )

    def _judge_unanswering(self, state: LoopState, now_ms: int) -> None:
        """Declare brokers dead that answer no command, though windows may hear them: plans would wait forever."""
        unanswering, members = self._runner.unanswering(now_ms), state.fleet.members
        if self._is_doubted("answer no command", unanswering.keys(), len(state.plan_log.present.brokers), now_ms):
            return
        for broker, silent_ms in sorted(unanswering.items()):
            if members[broker].state not in (MemberState.DEAD, MemberState.LEFT):
                why = f"it has answered no command for {silent_ms / 1000:g} s"
                boot_ms = self._activity_in(state).boots.get(broker, 0)
                self._change(died(members[broker], boot_ms, why, now_ms, self._settings), state, now_ms)

    def _judge(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Declare silent and restarted brokers dead, unless these are too many; let dead ones rejoin.

        A broker that reports another boot speaks for itself: after a power cut all of them may, and none is doubted.
        """
        activity, members = self._activity_in(state), state.fleet.members
        serving = [one for one in state.plan_log.present.brokers if members[one].state.is_serving]
        silent = {one: why for one in serving if (why := self._silence_reason(members[one], window, state, now_ms))}
        restarts = {
            one: why for one, why in self._unknown_incarnations(serving, window, state, now_ms) if one not in silent
        }
        doubtful = frozenset(silent) | (frozenset(restarts) - self._restarted.keys())
        self._restarted = {}
        if self._is_doubted("are silent or restarted", doubtful, len(serving), now_ms):
            silent, restarts = {}, {one: why for one, why in restarts.items() if one not in doubtful}
        for broker, why in silent.items():
            self._change(
                died(members[broker], activity.boots.get(broker, 0), why, now_ms, self._settings), state, now_ms
            )
        for broker, why in restarts.items():
            boot_ms = activity.boots.get(broker, 0)
            self._change(restarted(members[broker], boot_ms, why, now_ms, self._settings), state, now_ms)
        for member in list(state.fleet.members.values()):
            self._judge_absent(member, state, now_ms)

    def _silence_reason(self, member: Member, window: ClosedWindow, state: LoopState, now_ms: int) -> str:
        """Return why a broker counts as silent; empty if it does not."""
        silent_ms = self._activity_in(state).silent_ms(member.broker, member.since_ms)
        if silent_ms >= self._settings.silence_ms:
            return f"silent for {silent_ms / 1000:g} s"
        is_silent = silent_ms > 0 and member.broker not in window.boots
        if is_silent and self._claims_about(member.broker, state, now_ms):
            return f"a neighbour has lost it, and it has been silent for {silent_ms / 1000:g} s"
        return ""

    def _claims_about(self, broker: str, state: LoopState, now_ms: int) -> list[Claim]:
        """Return the claims of brokers in service that a neighbour is dead, since it has been in its present state."""
        return self._claims.about(broker, state.fleet.members[broker].since_ms, now_ms, state.fleet.serving)

    def _judge_claims(self, window: ClosedWindow, state: LoopState, now_ms: int) -> None:
        """Count claims about brokers that the window hears against the brokers that make them."""
        for broker in state.plan_log.present.brokers:
            if broker not in window.boots or not state.fleet.members[broker].state.is_serving:
                continue
            for claim in self._claims_about(broker, state, now_ms):
                is_heard = max(claim.reported_ms, claim.received_ms) <= window.start_ms
                if is_heard and self._claims.count_unfounded(claim, broker, now_ms):
                    self._report_muted(claim.by, broker, now_ms)

    def _report_muted(self, speaker: str, about: str, now_ms: int) -> None:
        text = (
            f"{speaker} keeps reporting that neighbours are dead, most recently {about}, although windows include "
            f"them: its reports about neighbours are ignored for {MUTED_MS / 60_000:g} minutes; check {speaker} and "
            "its links"
        )
        self._events.emit(AdaptationEvent(speaker, EventKind.DEATHS_IMPLAUSIBLE, Severity.WARNING, now_ms, text))

    def _unknown_incarnations(
        self, serving: list[str], window: ClosedWindow, state: LoopState, now_ms: int
    ) -> list[tuple[str, str]]:
        """Return the brokers whose incarnation the overlay in force does not know, with the reasons."""
        plan_log = state.plan_log
        reasons = {one: "it restarted" for one in serving if one in self._restarted}
        for broker in serving:
            if broker not in window.boots:
                continue
            since_ms, claims = state.fleet.members[broker].since_ms, self._claims_about(broker, state, now_ms)
            claims = [one for one in claims if since_ms < one.reported_ms <= window.start_ms]
            if self._claims.are_believed(claims, broker, now_ms):
                who = " and ".join(one.by for one in claims[:NAMED_MAX])
                verbs = ("considers", "ignores") if len(claims) == 1 else ("consider", "ignore")
                reasons.setdefault(broker, f"{who} {verbs[0]} it dead, though it runs, and {verbs[1]} it")
        if plan_log.moving is None:
            epoch = plan_log.present.epoch
            elsewhere = brokers_elsewhere(window, epoch, plan_log.transition_ended_ms)
            for broker in serving:
                if broker in elsewhere:
                    reasons[broker] = f"it is at epoch {elsewhere[broker]}, but {epoch} is in force"
        return sorted(reasons.items())

    def _judge_absent(self, member: Member, state: LoopState, now_ms: int) -> None:
        """Let a dead broker rejoin once it reports again; declare a joining one dead if it has gone silent."""
        activity, broker = self._activity_in(state), member.broker
        silent_ms = activity.silent_ms(broker, member.since_ms)
        boot_ms, is_active = activity.boots.get(broker, 0), activity.is_active_since(broker, member.since_ms)
        if member.state is MemberState.DEAD and is_active and now_ms >= member.returns_ms:
            if boot_ms > member.boot_ms or not is_dead_by_order(member):
                back = entered_state(member, MemberState.JOINING, "it reports again", now_ms)
                self._change(replace(back, boot_ms=boot_ms), state, now_ms)
        elif (
            member.state is MemberState.JOINING and boot_ms > member.boot_ms
        ):  # Commands to its last incarnation are lost.
            self._change(replace(member, since_ms=now_ms, boot_ms=boot_ms), state, now_ms)
        elif member.state is MemberState.JOINING and activity.was_active_since(broker, member.since_ms):
            if silent_ms >= self._settings.silence_ms:
                why = f"silent for {silent_ms / 1000:g} s while it was joining"
                self._change(died(member, boot_ms, why, now_ms, self._settings), state, now_ms)
        elif (
            is_awaited_unasked(member)
            and silent_ms >= self._settings.come_ms_max
            and not _may_be_in_overlay(broker, state)
        ):
            self._change(entered_state(member, MemberState.LEFT, NEVER_REPORTED, now_ms), state, now_ms)

    def _is_doubted(self, doing: str, gone: Set[str], serving_count: int, now_ms: int) -> bool:
        """Return True if too many brokers seem dead, or did shortly before: those that live are heard one by one."""
        if len(gone) > self._settings.deaths_share_max * serving_count:
            self._report_doubt(doing, frozenset(gone), serving_count, now_ms)
            self._doubted_ms[doing] = now_ms
        elif now_ms - self._doubted_ms.get(doing, -DOUBTED_MS) >= DOUBTED_MS:
            self._doubted.pop(doing, None)
            return False
        return True

    def _report_doubt(self, doing: str, gone: frozenset[str], serving_count: int, now_ms: int) -> None:
        if gone == self._doubted.get(doing):
            return
        self._doubted[doing] = gone
        named = name_some(sorted(gone), NAMED_MAX)
        text = (
            f"{len(gone)} of {serving_count} brokers {doing} at the same time ({named}), more than deaths_share_max "
            f"({self._settings.deaths_share_max:g}) allows: none is declared dead, because monitoring may have failed; "
            "declare the dead ones with `regraft members dead`, or let those that restarted join again with "
            "`regraft members readmit`"
        )
        self._events.emit(AdaptationEvent("members", EventKind.DEATHS_IMPLAUSIBLE, Severity.CRITICAL, now_ms, text))

    def _settle(self, state: LoopState, now_ms: int) -> None:
        """Change the state of the brokers that plans have added to the overlay or removed from it."""
        plan_log = state.plan_log
        present, is_moving = frozenset(plan_log.present.brokers), plan_log.moving is not None
        for broker, member in state.fleet.members.items():
            if member.state is MemberState.JOINING and broker in present:
                plan = joining_plan(member, plan_log)
                if plan is not None:
                    why = f"added to the overlay by {plan.plan}"
                    self._change(entered_state(member, MemberState.IN_SERVICE, why, now_ms), state, now_ms)
            elif not is_moving and broker not in present and _is_to_leave(member):
                why = f"removed from the overlay; {member.reason}"
                self._change(entered_state(member, MemberState.LEFT, why, now_ms), state, now_ms)
            elif not is_moving and broker not in present and member.state is MemberState.IN_SERVICE:
                self._change(entered_state(member, MemberState.JOINING, NOT_IN_OVERLAY, now_ms), state, now_ms)

    def _measure_repairs(self, state: LoopState, now_ms: int) -> None:
        """Record for each lost broker, once it is out of the overlay, how long that took."""
        lost = lost_brokers(state.plan_log, state.fleet)
        for broker in self._lost_since_ms.keys() - lost:
            self._metrics.repair_ms.observe(now_ms - self._lost_since_ms.pop(broker))
        for broker in lost:
            self._lost_since_ms.setdefault(broker, now_ms)

    def _change(self, member: Member, state: LoopState, now_ms: int) -> None:
        """Put a member's new record into the fleet, and have it stored and reported."""
        state.fleet = state.fleet.with_records([member])
        state.is_changed = True
        self._claims.forget(member.broker)
        self._metrics.member_changes.labels(member.state).inc()
        severity = SEVERITIES.get(member.state, Severity.INFO)
        text = f"{member.broker} is {member.state.replace('_', ' ')}: {member.reason}"
        event = AdaptationEvent(member.broker, EventKind.MEMBER_CHANGED, severity, now_ms, text)
        event.details.update({"state": str(member.state)})
        self._runner.add([PersistMember(member), EmitEvent(event)])


def _may_be_in_overlay(broker: str, state: LoopState) -> bool:
    """Return True if the overlay has a broker, or may get it by the plan under way."""
    return broker in state.plan_log.present.brokers or state.plan_log.moving is not None


def _is_to_leave(member: Member) -> bool:
    is_given_up = member.state is MemberState.DEAD and member.returns_ms == NEVER_MS
    return member.state is MemberState.LEAVING or is_given_up
