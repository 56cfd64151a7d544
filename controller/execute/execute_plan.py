"""Execute plans: run a transition's effects against the ports, in order, a plan's phase together with its commands.

In: plans to begin, answers of brokers, time. Out: commands, events, stored plans. What a transition does next is
decided by :mod:`controller.execute.transition`, which plan to begin by :mod:`controller.loop`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from itertools import takewhile

import msgspec

from regraft.controller.control_ports import ControlPorts
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.execute.transition import (
    EmitEvent,
    PersistMember,
    PersistPlan,
    SendCommand,
    Transition,
    TransitionEffect,
)
from regraft.controller.execute.weigh_claims import WITNESSES_MIN, PeerClaims, parties
from regraft.controller.settings.controller_settings import TERM_FIRST, TERM_LEAP_MAX, TransitionLimits
from regraft.controller.state.overlays_in_window import elsewhere_text
from regraft.controller.state.plan_log import PlanLog
from regraft.infra.process.handle_each import handle_each
from regraft.infra.process.stack_error import StackError
from regraft.schemas.command import Command, CommandPhase, CommandResult, Refusal
from regraft.schemas.plan import Plan, PlanPhase


class PlanLogBehindError(StackError):
    """The stored plans are behind the brokers; the message names both epochs and the way out."""


def check_plan_log(state: LoopState, now_ms: int, window_age_ms_max: int) -> None:
    """Raise PlanLogBehindError if plans are missing."""
    if missing := plans_missing(state, now_ms, window_age_ms_max):
        raise PlanLogBehindError(missing)


def plans_missing(state: LoopState, now_ms: int, window_age_ms_max: int) -> str:
    """Return what shows that plans are missing, and the way out; "" if nothing does.

    Most brokers are at a later epoch than the one in force, by no plan under way.

    An aborted plan leads nowhere, so its epoch counts as no more than any other: the plans before it may be lost. Only
    a current window counts: older ones may describe an earlier incarnation. Half of the brokers or fewer stop nothing:
    they may be faulty, and are reported as an epoch mismatch.
    """
    window = state.newest
    if window is None or not state.has_plans or abs(now_ms - window.end_ms) > window_age_ms_max:
        return ""
    plan_log = state.plan_log
    epoch_max, present, moving = plan_log.epoch_next - 1, plan_log.present.epoch, plan_log.moving
    to = present if moving is None else moving.epoch_to
    beyond = {broker: epoch for broker, epoch in window.epochs.items() if epoch > present and epoch != to}
    if 2 * len(beyond) <= len(window.epochs):
        return ""
    count, in_force = len(plan_log.plans), "" if epoch_max == present else f", with {present} in force"
    return (
        f"The stored plans lag behind the brokers: there are {count}, up to epoch {epoch_max}{in_force}, but "
        f"{elsewhere_text(beyond)}. Plans have been lost, so nothing starts. Restore the topic of plans if there is a "
        "copy; else stop all controllers, check what `regraft recover` would write, and run it with --yes."
    )


RESENT_ABORTS_MAX = 10  # Aborted plans, the newest from an epoch, that are sent to a joining broker once more.
INSTALLS_MAX = 10_000  # Answers of brokers that were made outsiders, until they are collected.


class PlanRunner:
    """Executes one plan at a time; ``on_command`` is called with each command sent, and when.

    ``term`` is that of this leader and part of every command and every stored plan; ``instance`` names this controller
    in the plans that it begins. ``on_foreign`` is called with what was foreign about each ignored answer. ``claims``
    judges what brokers claim about their neighbours. A leader that hears of a higher term is deposed:
    ``deposed_by_term`` is that term, and nothing is stored or sent any more. A term more than TERM_LEAP_MAX ahead is
    not a leader's: an answer that names it is foreign. So is one of a single broker, or of one agent's brokers alone,
    unless the runner ``believes_one``.

    While a plan cannot be stored nothing further happens: the effects behind it and the answers read so far wait, and
    the next :meth:`advance` tries to store it again. So both queues are bounded by one step, plus one record for each
    change of a member in the meantime.
    """

    def __init__(
        self,
        ports: ControlPorts,
        log: PlanLog,
        limits: TransitionLimits,
        on_command: Callable[[Command, int], None] = lambda command, now_ms: None,
        on_foreign: Callable[[str], None] = lambda part: None,
        term: int = TERM_FIRST,
        instance: str = "",
        claims: PeerClaims | None = None,
    ) -> None:
        self._ports = ports
        self._log = log
        self._limits = limits
        self._on_command = on_command
        self._on_foreign = on_foreign
        self._term = term
        self._instance = instance
        self.deposed_by_term = 0
        self.believes_one = True
        self.is_deposed_by_one = False
        self._transition: Transition | None = None
        self._effects: deque[TransitionEffect] = deque()
        self._results: deque[CommandResult] = deque()
        self._is_blocked = False
        self._dead: frozenset[str] = frozenset()
        self._installs: deque[CommandResult] = deque(maxlen=INSTALLS_MAX)
        self.claims = claims or PeerClaims()
        self._outside: dict[str, int] = {}

    @property
    def is_busy(self) -> bool:
        """Return True if a plan is under way or something waits to be stored, sent or reported."""
        return self._transition is not None or bool(self._effects)

    @property
    def is_storing(self) -> bool:
        """Return True if something waits to be stored, sent or reported."""
        return bool(self._effects)

    @property
    def queue_lengths(self) -> dict[str, int]:
        """The number of waiting effects and answers of brokers, by kind."""
        return {"effects": len(self._effects), "results": len(self._results)}

    def begin(self, plan: Plan, now_ms: int, reason: str = "chosen") -> None:
        """Begin a new plan; nothing is stored or sent before the next :meth:`advance`. Raises RuntimeError if busy."""
        if self.is_busy:
            raise RuntimeError(f"{plan.plan} cannot start: another plan is running, and only one may run at a time")
        self._transition = self._transition_of(msgspec.structs.replace(plan, begun_by=self._instance))
        self._effects.extend(self._resent_aborts(plan))
        self._effects.extend(self._transition.start(now_ms, reason))

    def cancel(self, reason: str, now_ms: int) -> None:
        """Abort the plan under way if it is still being prepared; executed by the next :meth:`advance`."""
        if self._transition is not None and not self._effects:
            self._effects.extend(self._transition.cancel(reason, now_ms))

    def lose(self, dead: Collection[str]) -> None:
        """Set the dead brokers: from the next :meth:`advance` on, the plan under way continues without them."""
        self._dead = frozenset(dead)

    def unanswering(self, now_ms: int) -> dict[str, int]:
        """Return the brokers that answer no command of the plan under way, with for how long; none while it waits."""
        return {} if self._transition is None or self._effects else self._transition.unanswering(now_ms)

    def take_installs(self) -> list[CommandResult]:
        """Return, once, the answers of brokers that were to become outsiders of the overlay in force."""
        installs = list(self._installs)
        self._installs.clear()
        return installs

    def take_outside(self) -> dict[str, int]:
        """Return, once, the brokers that report being outside the overlay, with the epoch that they refused."""
        outside, self._outside = self._outside, {}
        return outside

    def add(self, effects: Iterable[TransitionEffect]) -> None:
        """Queue effects that belong to no transition, to be run in order by the next :meth:`advance`."""
        self._effects.extend(effects)

    def advance(self, now_ms: int) -> None:
        """Run waiting effects, process answers and time-outs; resume an unfinished plan if there is one."""
        was_blocked = self._is_blocked
        if self._is_deposed(now_ms) or not self._run_effects(now_ms):
            return
        if was_blocked and self._transition is not None:
            # The brokers could not be asked while the store was unavailable, so the phase gets its full time from now.
            self._effects.extend(self._transition.resume(now_ms))
        if self._transition is None:
            unfinished = self._log.moving
            if unfinished is None:
                self._results.clear()  # Late answers to plans that are over.
                return
            self._transition = self._transition_of(unfinished)
            self._effects.extend(self._transition.resume(now_ms))
        if self._take_results(self._transition, now_ms):
            self._effects.extend(self._transition.lose(self._dead, now_ms))
            self._effects.extend(self._transition.on_tick(now_ms))
            if self._run_effects(now_ms) and self._transition.is_done:
                self._transition = None

    def _transition_of(self, plan: Plan) -> Transition:
        target, change = self._log.target_of(plan), self._log.change_of(plan)
        return Transition(plan, target, self._limits, self._term, change, self.claims)

    def _resent_aborts(self, plan: Plan) -> list[TransitionEffect]:
        """Notify joining brokers that earlier plans for their join are aborted.

        A broker considered dead at the time was not waited for, but may have prepared one; it holds that until it is
        notified.
        """
        joined = self._log.change_of(plan).joined
        earlier = [
            one for one in self._log.plans if one.phase is PlanPhase.ABORTED and one.epoch_from == plan.epoch_from
        ]
        return [
            SendCommand(self._transition_of(one).command_of(CommandPhase.ABORT, broker))
            for one in earlier[-RESENT_ABORTS_MAX:]
            for broker in sorted(joined & self._log.change_of(one).joined)
        ]

    def _is_deposed(self, now_ms: int) -> bool:
        """Process the brokers' answers; return True if one of them has heard of a higher term."""
        if not self._results and not self.deposed_by_term:
            for answer in self._ports.results.poll():
                if answer.term > self._term + TERM_LEAP_MAX:
                    self._on_foreign("term")
                    continue
                result = self._with_counted_claims(answer, now_ms)
                if result.phase is CommandPhase.REPORT:
                    continue  # Sent unasked by a broker that has lost a neighbour.
                if result.refusal is Refusal.OUTSIDE and result.term == self._term:
                    self._outside[result.broker] = result.epoch_to
                if result.phase is CommandPhase.INSTALL and result.term == self._term:
                    self._installs.append(result)
                else:
                    self._results.append(result)
        higher = [result for result in self._results if result.term > self._term]
        self.is_deposed_by_one = parties((one.broker for one in higher), "", self.claims.agent_of) < WITNESSES_MIN
        if higher and (self.believes_one or not self.is_deposed_by_one):
            self.deposed_by_term = max(result.term for result in higher)
        elif higher:
            self._results = deque(result for result in self._results if result.term <= self._term)
            for _ in higher:
                self._on_foreign("term")
        return self.deposed_by_term > 0

    def _with_counted_claims(self, result: CommandResult, now_ms: int) -> CommandResult:
        """Return the answer with only those lost peers that count: neighbours in force, or by the plan under way."""
        if not result.lost_peers:
            return result
        moving = self._log.moving
        overlays = [self._log.present] + ([] if moving is None else [self._log.target_of(moving)])
        neighbours = {peer for overlay in overlays for peer in overlay.neighbours.get(result.broker, ())}
        return msgspec.structs.replace(result, lost_peers=self.claims.counted(result, neighbours, now_ms))

    def _take_results(self, transition: Transition, now_ms: int) -> bool:
        """Process the answers one by one; return False if one of them led to a plan that could not be stored."""
        while self._run_effects(now_ms):
            if not self._results:
                return True
            result, failed = self._results.popleft(), Counter[str]()
            if foreign := transition.foreign_part(result):
                self._on_foreign(foreign)
            handle_each([result], lambda one: self._effects.extend(transition.on_result(one, now_ms)), failed, "answer")
            if failed:
                self._on_foreign("failed")
        return False

    def _run_effects(self, now_ms: int) -> bool:
        """Run effects in order; return False if some could not be stored, and so stay first in the queue."""
        while self._effects:
            together = self._stored_together()
            plans = [effect.plan for effect in together if isinstance(effect, PersistPlan)]
            plan = msgspec.structs.replace(plans[0], term=self._term) if plans else None
            commands = tuple(effect.command for effect in together if isinstance(effect, SendCommand))
            changed = [effect.member for effect in together if isinstance(effect, PersistMember)]
            members = tuple(msgspec.structs.replace(member, term=self._term) for member in changed)
            if plan is not None or commands or members:
                self._is_blocked = not self._ports.plans.commit(plan, commands, members)
                if self._is_blocked:
                    return False
            if plan is not None:
                self._log.record(plan)
            for _ in together:
                self._effects.popleft()
            for command in commands:
                self._on_command(command, now_ms)
            for effect in together:
                if isinstance(effect, EmitEvent):  # Only after storing, so that no event reports what did not happen.
                    self._ports.events.emit(effect.event)
        return True

    def _stored_together(self) -> list[TransitionEffect]:
        """Return the effects at the front that are stored atomically: a plan's phase with its commands."""
        effects = iter(self._effects)
        return [next(effects), *takewhile(lambda effect: not isinstance(effect, PersistPlan), effects)]
