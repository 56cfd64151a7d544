"""Begin plans that change the overlay's brokers: repairs at once when brokers are lost, joins and leaves in batches.

In: the fleet, the overlay in force, what operators have ordered. Out: at most one plan that begins or waits for
approval, and commands that make brokers outsiders. The kind computes the new overlay; the fleet says which brokers are
lost or join.

A repair waits for no window, cool-down or verification. A pause holds it, like everything that the controller begins
by itself, but brokers that an operator declared dead are repaired anyway. In a dry run, what no operator ordered waits
for approval, and no broker of the overlay in force is made an outsider before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.find_lost import lost_brokers
from regraft.controller.execute.install_brokers import BrokerInstaller
from regraft.controller.execute.review_plans import PlanReviewer
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.kinds.repair import RepairTask, change_text, named_text
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.member_transitions import is_by_order, is_dead_by_order
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.read_windows import WindowReader
from regraft.overlay.overlay_configuration import NO_CHANGE, BrokerChange, OverlayConfiguration
from regraft.schemas.agent_names import client_of
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.member import MemberState
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.stay_reasons import reasons_text


class RepairOverlay:
    """Makes the overlay consist of the brokers that serve."""

    def __init__(
        self,
        settings: ControllerSettings,
        kind: AnyKind,
        windows: WindowReader,
        reviewer: PlanReviewer,
        runner: PlanRunner,
        events: EventSink,
        term: int,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._windows = windows
        self._reviewer = reviewer
        self._runner = runner
        self._installer = BrokerInstaller(runner, settings.transition.resend_ms, term)
        self._events = events
        self._reported = ""
        self._ready_since_ms: int | None = None
        self._tried: set[BrokerChange] = set()  # Changes tried for the same lost brokers.

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Begin a plan if one is due."""
        self._installer.note_answers(now_ms)
        plan_log = state.plan_log
        if self._runner.is_busy or plan_log.moving is not None:
            return  # It continues without the lost brokers, or is given up.
        lost = lost_brokers(plan_log, state.fleet)
        if reason := self._waiting_reason(lost, state, now_ms):
            self._report(f"repair of {', '.join(sorted(lost))} waits: {reason}" if lost else "", now_ms)
            if (waiting := _waiting_for_approval(plan_log)) is not None:
                self._reviewer.approval_of_change(waiting, "", plan_log, now_ms)  # Only a refusal takes effect.
            return
        to_join = self._to_join(state)
        free, held = self._divided(lost, to_join, state, now_ms)
        approved, approval = self._approved(held, state, now_ms)
        asked = [*free, *sorted(plan_log.change_of(approved).joined)] if approved else free
        self._installer.ask(asked, plan_log, now_ms)
        ready = frozenset(
            one
            for one in asked
            if self._installer.is_ready(one, plan_log.present.epoch, state.fleet.members[one].since_ms)
        )
        if approved is not None:
            if plan_log.change_of(approved).joined <= ready and not self._runner.is_busy:
                self._start(approved, held, f"approved by {approval}", state, now_ms)
            return
        if held.lost:
            return
        change = self._change(lost, ready, state, now_ms)
        is_due = self._is_due(change, free, ready, now_ms)
        if is_due and not self._runner.is_busy and self._may_try(change, plan_log, now_ms):
            self._begin(change, state, now_ms)

    def _waiting_reason(self, lost: frozenset[str], state: LoopState, now_ms: int) -> str:
        """Return why the controller may begin no plan now; empty if it may."""
        paused = self._reviewer.paused(now_ms)
        if lost:
            return "" if any(is_dead_by_order(state.fleet.members[broker]) for broker in lost) else paused
        return paused

    def _to_join(self, state: LoopState) -> list[str]:
        """Return the brokers that wait to join and report: others cannot answer."""
        reporting = state.newest.boots if state.newest is not None else {}
        return [broker for broker in state.fleet.in_state(MemberState.JOINING) if broker in reporting]

    def _is_held(self, broker: str, state: LoopState) -> bool:
        """Return True if a change of this broker needs approval: in a dry run, unless an operator ordered its state."""
        member = state.fleet.members[broker]
        is_allowed = self._settings.act_on_deaths and bool(member.deaths_ms)
        return self._settings.dry_run and not is_allowed and not is_by_order(member)

    def _divided(
        self, lost: frozenset[str], to_join: list[str], state: LoopState, now_ms: int
    ) -> tuple[list[str], BrokerChange]:
        """Return the brokers that may join without approval, and the change that needs it, NO_CHANGE if none does."""
        held = frozenset(one for one in (*lost, *to_join) if self._is_held(one, state))
        if lost and not lost <= held:
            return to_join, NO_CHANGE  # A repair that an order began takes the others along.
        free, joining = [one for one in to_join if one not in held], held.intersection(to_join)
        if lost:
            return free, BrokerChange(joined=joining & lost, lost=lost)
        since_ms = max((state.fleet.members[one].since_ms for one in joining), default=0)
        is_settled = now_ms - since_ms >= self._settings.members.batch_ms
        return free, BrokerChange(joined=joining) if is_settled else NO_CHANGE

    def _approved(self, held: BrokerChange, state: LoopState, now_ms: int) -> tuple[Plan | None, str]:
        """Return the waiting plan if it is approved, and by whom; propose the held change if none waits for it."""
        plan_log = state.plan_log
        waiting = _waiting_for_approval(plan_log)
        if waiting is not None:
            stale = "" if plan_log.change_of(waiting) == held else "other brokers have died, joined or left since"
            approval = self._reviewer.approval_of_change(waiting, stale, plan_log, now_ms)
            return (waiting, approval) if approval else (None, "")
        is_new = held != NO_CHANGE and not self._reviewer.was_refused(held, plan_log, now_ms)
        if is_new and not self._runner.is_busy and self._may_try(held, plan_log, now_ms):
            plan = self._planned(held, state, now_ms)
            if plan is not None:
                self._reviewer.propose(plan, now_ms, change_text(held))
                text = f"repair of {named_text(sorted(held.lost))} waits: approve {plan.plan} (`regraft plans approve`)"
                self._report(text if held.lost else "", now_ms)
        return None, ""

    def _change(self, lost: frozenset[str], ready: frozenset[str], state: LoopState, now_ms: int) -> BrokerChange:
        """Return the brokers to remove and to add: if any are lost, only these and those of them that are back."""
        if lost:
            return BrokerChange(joined=ready & lost, lost=lost)
        return BrokerChange(joined=ready, left=self._leaving(state, now_ms))

    def _leaving(self, state: LoopState, now_ms: int) -> frozenset[str]:
        """Return the leaving brokers that one plan can remove, within its limit of moves; late ones regardless.

        If clients stay, a broker waits only for those that plans can still move away.
        """
        present, members = state.plan_log.present, state.fleet.members
        leaving = [one for one in state.fleet.in_state(MemberState.LEAVING) if one in present.brokers]
        if not leaving:
            return frozenset()
        homes = list(self._placed(present, self._horizon(state)).home_of.values())
        moves_max = self._kind.moves_max(self._settings.decision)
        brokers: set[str] = set()
        for broker in leaving:
            is_late = now_ms - members[broker].since_ms > self._settings.members.drain_ms_max
            count = homes.count(broker)
            if self._kind.inventory.clients_stay:
                count = int(self._is_to_be_emptied(broker, state, now_ms))
            if is_late or count <= moves_max:
                brokers.add(broker)
                moves_max -= count
        return frozenset(brokers)

    def _is_to_be_emptied(self, broker: str, state: LoopState, now_ms: int) -> bool:
        """Return True if clients may move away from a leaving broker, or the register does not say so."""
        newest = state.newest
        if not self._kind.EMPTIES_BROKERS:
            return False
        if newest is None or newest.subscribers_at is None:
            return True
        leaving, present = state.fleet.in_state(MemberState.LEAVING), state.plan_log.present.brokers
        open_homes = set(present).difference(self._reviewer.maintained(now_ms), leaving)
        clients = {client_of(name) for name, home in newest.movable.items() if home == broker}
        return any(newest.may_reach(client, home) for client in clients for home in open_homes)

    def _is_due(self, change: BrokerChange, to_join: Sequence[str], ready: frozenset[str], now_ms: int) -> bool:
        """Return True if there is no reason to wait for further brokers that could join in the same plan."""
        if change == NO_CHANGE:
            self._ready_since_ms = None
            return False
        if change.lost:
            awaited = [one for one in to_join if one in change.lost - ready and self._installer.is_new(one, now_ms)]
            return not awaited
        self._ready_since_ms = now_ms if self._ready_since_ms is None else self._ready_since_ms
        return now_ms - self._ready_since_ms >= self._settings.members.batch_ms

    def _may_try(self, change: BrokerChange, plan_log: PlanLog, now_ms: int) -> bool:
        """Return True unless the same change failed recently; the pause doubles with each failure.

        Each change is remembered, not just the last one, because a broker that could rejoin with a repair may be ready
        only every other time.
        """
        failed = _failed_attempts(plan_log)
        if not failed:
            self._tried.clear()
        if change not in self._tried:
            return True
        settings = self._settings.members
        pause_ms: int = min(settings.retry_ms * 2 ** min(failed - 1, 30), settings.retry_ms_max)
        return now_ms - plan_log.transition_ended_ms >= pause_ms

    def _begin(self, change: BrokerChange, state: LoopState, now_ms: int) -> None:
        plan = self._planned(change, state, now_ms)
        if plan is not None:
            self._reported = ""
            self._start(plan, change, change_text(change) + self._staying_text(change, state), state, now_ms)

    def _staying_text(self, change: BrokerChange, state: LoopState) -> str:
        """Describe the subscribers that leaving brokers keep, which the overlay then no longer serves."""
        newest = state.newest
        if newest is None or not self._kind.inventory.clients_stay:
            return ""
        counts, staying = newest.subscribers_at or {}, newest.staying
        kept = [
            f"{counts[broker]} at {broker}{reasons_text(staying.get(broker, {}), counts[broker])}"
            for broker in sorted(change.left)
            if counts.get(broker)
        ]
        if not kept:
            return ""
        return f"; subscribers that stay and are no longer served: {named_text(kept)}"

    def _start(self, plan: Plan, change: BrokerChange, reason: str, state: LoopState, now_ms: int) -> None:
        """Have a plan executed."""
        self._installer.forget(change.joined)
        self._tried = {change, *(one for one in self._tried if one.lost == change.lost)}
        self._ready_since_ms = None
        self._runner.begin(plan, now_ms, reason)
        state.has_begun = True

    def _planned(self, change: BrokerChange, state: LoopState, now_ms: int) -> Plan | None:
        """Return the plan that makes a change; None, and the reason is reported, if no overlay is possible."""
        present, windows = state.plan_log.present, self._horizon(state)
        if change.lost:  # A publisher whose home fell silent before reporting it is at its former home.
            windows = tuple(replace(window, homeless=frozenset()) for window in windows)
        avoided = (*self._reviewer.maintained(now_ms), *state.fleet.in_state(MemberState.LEAVING))
        moves_max = usual_max = self._kind.moves_max(self._settings.decision)
        if change.lost:  # Without a move, clients of the lost brokers wait until these are back.
            moves_max = max(usual_max, self._kind.LOST_MOVES_MAX)
            if _failed_attempts(state.plan_log) % 2:
                moves_max = 0  # A client may have another home by now, which refuses to release it.
        task = RepairTask(change, state.fleet.inventory, windows, avoided, moves_max, usual_max)
        try:
            repair = self._kind.repaired(self._placed(present, windows), task)
        except ValueError as error:
            self._report(
                f"no overlay is possible without {', '.join(sorted(change.lost | change.left))}: {error}", now_ms
            )
            return None
        window_end_ms = state.newest.end_ms if state.newest is not None else now_ms
        plan = repair.plan(present, state.plan_log.epoch_next, window_end_ms)
        if repair.exceeded:
            text = f"with {plan.plan} {named_text(repair.exceeded)}: add brokers or raise caps to avoid this"
            event = AdaptationEvent(plan.plan, EventKind.CAPS_EXCEEDED, Severity.WARNING, now_ms, text, plan.plan)
            self._events.emit(event)
        return plan

    def _horizon(self, state: LoopState) -> tuple[ClosedWindow, ...]:
        """Return the last complete windows and the newest: only the former know the clients of dead brokers."""
        newest, complete = state.newest, self._windows.complete
        if newest is None:
            return ()
        if newest.is_complete or not complete:
            return self._windows.horizon(newest)[0]
        return (*self._windows.horizon(complete[-1])[0], newest)

    def _placed(self, present: OverlayConfiguration, windows: Sequence[ClosedWindow]) -> OverlayConfiguration:
        """Return the overlay in force with all clients whose homes are known."""
        seen = tuple(window.over(present.brokers) for window in windows)
        return self._kind.with_homes(present, seen) if seen else present

    def _report(self, text: str, now_ms: int) -> None:
        """Report once why nothing is done."""
        if text and text != self._reported:
            self._events.emit(AdaptationEvent("members", EventKind.REPAIR_WAITS, Severity.CRITICAL, now_ms, text))
        self._reported = text


def _waiting_for_approval(plan_log: PlanLog) -> Plan | None:
    """Return the change of brokers that waits for approval, None if there is none."""
    waiting = plan_log.proposed
    return waiting if waiting is not None and waiting.is_membership else None


def _failed_attempts(plan_log: PlanLog) -> int:
    """Return how many of the newest plans, in a row, were to change the overlay's brokers and failed."""
    failed = 0
    for plan in reversed(plan_log.plans):
        if plan.phase is not PlanPhase.ABORTED or not plan.is_membership:
            break
        failed += 1
    return failed
