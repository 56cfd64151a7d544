"""The controller's side of one transition as a pure state machine: plan and answers in, commands and records out.

Nothing here sends or stores: every step returns effects that the control loop executes in order. A plan and its phase
are persisted before any command of that phase is sent, so that a restarted controller resumes from the persisted phase
by asking again; brokers answer a repeated command as they answered the first. :mod:`schemas.plan_life` defines the
command, answer, limit and next phases of each phase.

Persisting ACTIVATING is the point of no return: before it a plan can be aborted without trace, after it only a new plan
can undo it.

Only answers of the own term count. So a new leader continues once each broker has heard of the new term and no longer
obeys its predecessor.

A plan does not wait for brokers that are dead, according to :meth:`Transition.lose`, to two independent neighbours, or
to one if they answer nothing.
Before the point of no return the word of one ends the plan, as its refusal would; after it the plan continues without
the dead, which the commands name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from regraft.controller.execute.weigh_claims import WITNESSES_MIN, PeerClaims, parties
from regraft.controller.settings.controller_settings import TERM_FIRST, TransitionLimits
from regraft.controller.state.describe_changes import changes_text
from regraft.overlay.overlay_configuration import NO_CHANGE, BrokerChange, OverlayConfiguration, plan_digest
from regraft.schemas.bounds import SUM_MAX
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.member import Member
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, PhaseFacts, entered
from regraft.schemas.texts import name_some
from regraft.schemas.topics import NO_AGENT

FREE = 100  # Messages that one party may report whatever the others do: too few to make a plan expensive.
SUM_FACTOR = 2  # How often as much as all lower parties together one may report,
MEAN_FACTOR = 8  # and this many times the mean of their brokers for each of its brokers: a hub sends more than a leaf.


def believed_total(sent_by: Mapping[str, int], agent_of: Mapping[str, str]) -> int:
    """Return the sum of the counts, each party's cut to what the others make plausible.

    A party is an agent with all its brokers, or a broker without one; within a single agent, each broker is one. The
    party whose brokers report least on average is believed. So one party multiplies an honest total by a small factor
    at most.
    """
    parties: dict[tuple[str, str], list[int]] = defaultdict(list)
    is_one_agent = len({agent_of.get(broker, NO_AGENT) for broker in sent_by}) < 2
    for broker, sent in sent_by.items():
        agent = NO_AGENT if is_one_agent else agent_of.get(broker, NO_AGENT)
        parties[agent, "" if agent else broker].append(sent)
    total = brokers = 0
    for counts in sorted(parties.values(), key=lambda counts: sum(counts) / len(counts)):
        limit = FREE + SUM_FACTOR * total + MEAN_FACTOR * len(counts) * total // brokers if brokers else sum(counts)
        total += min(sum(counts), limit)
        brokers += len(counts)
    return min(total, SUM_MAX)


UNANSWERED_LIMITS = 2  # Phase limits for which a broker may answer nothing, though commands are repeated,
UNANSWERED_MS_MIN = 20_000  # and no less than this: a publisher that has to leave may delay an answer by 10 s.
CLAIMED_UNANSWERED_MS = 12_000  # The same for a broker that one neighbour reports dead.
NAMED_MAX = 5  # Brokers named in a message; the others are only counted.
ELSEWHERE = (Refusal.PLAN, Refusal.EPOCH)  # The broker does not hold our plan in that epoch, and never will.


@dataclass(frozen=True)
class PersistPlan:
    """Store the plan in the plans topic and wait for the acknowledgement before continuing."""

    plan: Plan


@dataclass(frozen=True)
class SendCommand:
    """Send a command to its broker."""

    command: Command


@dataclass(frozen=True)
class EmitEvent:
    """Report an event."""

    event: AdaptationEvent


@dataclass(frozen=True)
class PersistMember:
    """Store a member's present record."""

    member: Member


TransitionEffect = PersistPlan | PersistMember | SendCommand | EmitEvent


class Transition:
    """One plan on its way from PREPARING to VERIFYING or ABORTED; ``target`` is the overlay that it leads to.

    ``term`` is that of the leader who executes it. ``change`` holds the brokers that the plan adds and removes: all
    living brokers of the earlier overlay and all that join take part. ``claims`` knows which agent represents each.
    """

    def __init__(
        self,
        plan: Plan,
        target: OverlayConfiguration,
        limits: TransitionLimits,
        term: int = TERM_FIRST,
        change: BrokerChange = NO_CHANGE,
        claims: PeerClaims | None = None,
    ) -> None:
        self.plan = plan
        self.limits = limits
        self._term = term
        self._target = target
        self._digest = plan_digest(plan, target)
        self._change = change
        # Until they prepare this plan, neighbours report incarnations that are over: here only the controller's word
        # counts.
        self._changed_before = change.joined | change.lost
        self._participants = frozenset((*target.brokers, *change.left))
        self._brokers = tuple(sorted(self._participants))
        self._answered: dict[Outcome, set[str]] = {outcome: set() for outcome in Outcome}
        self._claims = claims or PeerClaims()
        self._claimed: dict[str, set[str]] = {}  # Brokers that neighbours found dead since the plan began, and which.
        self._claimed_ms: dict[str, int] = {}  # When the first of them was heard.
        self._lost: set[str] = set()  # Brokers found dead since the plan began, by witnesses or the controller.
        self._declared: set[str] = set()  # Those among them that the controller has declared dead: they are not asked.
        self._control_messages: dict[str, int] = {}
        self._unanswered_ms: dict[str, int] = {}  # When brokers were asked that have answered nothing since.
        self._asked_ms = 0
        self._asked_all_ms = 0
        self._phase_since_ms = 0
        self._is_stall_reported = False

    @property
    def is_done(self) -> bool:
        """Return True if no command of this plan is under way or will follow."""
        return not self._facts.is_moving

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The brokers whose answer the present phase still needs, sorted; dead ones are not needed."""
        answer = self._facts.answer
        if answer is None:
            return ()
        answered = self._answered[answer] | self._not_needed
        return tuple(broker for broker in self._brokers if broker not in answered)

    @property
    def _not_needed(self) -> set[str]:
        # An aborted plan holds nothing back: a broker that did not answer is asked again by the next plan.
        return self._lost | self._claimed.keys() if self.plan.phase is PlanPhase.ABORTING else self._lost

    @property
    def _is_answered(self) -> bool:
        """Return True if the present phase waits for nobody; counted, as each answer asks that."""
        answer = self._facts.answer
        answered = set() if answer is None else self._answered[answer]
        return answer is None or len(answered) + len(self._not_needed - answered) == len(self._brokers)

    @property
    def _facts(self) -> PhaseFacts:
        return LIFE[self.plan.phase]

    def start(self, now_ms: int, reason: str = "chosen") -> list[TransitionEffect]:
        """Begin a plan that has not been sent to any broker."""
        changes = changes_text(self.plan, has_places=self._target.HAS_SLOTS)
        text = f"{self.plan.plan}: epoch {self.plan.epoch_from} -> {self.plan.epoch_to}, {changes}"
        effects = self._enter(PlanPhase.PREPARING, now_ms, reason)
        # The event follows the record, so that nothing is reported that might not have happened.
        return [effects[0], self._event(EventKind.PLAN_STARTED, Severity.INFO, now_ms, text), *effects[1:]]

    def resume(self, now_ms: int) -> list[TransitionEffect]:
        """Resume after a restart of the controller: repeat the commands of the persisted phase."""
        self._unanswered_ms.clear()
        self._phase_since_ms = now_ms
        return self._ask(now_ms)

    def cancel(self, reason: str, now_ms: int) -> list[TransitionEffect]:
        """Abort a plan that is being prepared; return no effects in later phases, when it is too late."""
        return self._enter(PlanPhase.ABORTING, now_ms, reason) if PlanPhase.ABORTING in self._facts.next else []

    def lose(self, brokers: Collection[str], now_ms: int) -> list[TransitionEffect]:
        """Continue without brokers that are declared dead, or abort while that is possible; idempotent.

        Participants are notified at once, because they wait for what the dead would have sent.
        """
        lost = set(brokers).intersection(self._brokers) - self._declared
        if self.is_done or not lost:
            return []
        self._declared |= lost
        self._lost |= lost
        if self.plan.phase is PlanPhase.PREPARING:
            reason = f"{name_some(sorted(lost), NAMED_MAX)} declared dead: a plan needs every broker that takes part"
            return self._enter(PlanPhase.ABORTING, now_ms, reason) + self._enter_answered(now_ms)
        return self._enter_answered(now_ms) or self._ask(now_ms, self._living)

    def unanswering(self, now_ms: int) -> dict[str, int]:
        """Return the awaited brokers that have answered nothing for too long, refusals included, with that time in ms.

        One that only waits for others answers each repeated command, so it is not one of them.
        """
        if self.is_done:
            return {}
        limit_ms = max(UNANSWERED_LIMITS * self.limits.of(self.plan.phase), UNANSWERED_MS_MIN)
        silent_ms = {broker: now_ms - self._unanswered_ms.get(broker, now_ms) for broker in self.waiting_for}
        return {broker: since_ms for broker, since_ms in silent_ms.items() if since_ms > limit_ms}

    @property
    def _living(self) -> tuple[str, ...]:
        return tuple(broker for broker in self._brokers if broker not in self._declared)

    def on_result(self, result: CommandResult, now_ms: int) -> list[TransitionEffect]:
        """Process a broker's answer; late, repeated and foreign answers change nothing."""
        if self.is_done or self.foreign_part(result):
            return []
        self._unanswered_ms.pop(result.broker, None)
        sent = self._control_messages.get(result.broker, 0)
        self._control_messages[result.broker] = max(sent, result.control_messages)
        self._note_claims(result, now_ms)
        is_elsewhere = result.refusal in ELSEWHERE and result.phase is CommandPhase.ABORT
        if result.outcome is Outcome.REFUSED and not is_elsewhere:
            return self._on_refusal(result, now_ms)
        self._answered[Outcome.ABORTED if is_elsewhere else result.outcome].add(result.broker)
        effects: list[TransitionEffect] = []
        if self._claimed and self.plan.phase is PlanPhase.PREPARING:
            claimed = name_some(sorted(self._claimed), NAMED_MAX)
            reason = f"{claimed} dead, according to their neighbours: a plan needs every broker"
            effects += self._enter(PlanPhase.ABORTING, now_ms, reason)
        return effects + self._enter_answered(now_ms)

    def _note_claims(self, result: CommandResult, now_ms: int) -> None:
        """Note whom a participant found dead; it is lost once independent witnesses agree."""
        if result.broker in self._declared:
            return
        for peer in self._participants.intersection(result.lost_peers) - self._changed_before:
            speakers = self._claimed.setdefault(peer, set())
            speakers.add(result.broker)
            self._claimed_ms.setdefault(peer, now_ms)
            if parties(speakers, peer, self._claims.agent_of) >= WITNESSES_MIN:
                self._lost.add(peer)

    def _confirm_claims(self, now_ms: int) -> list[TransitionEffect]:
        """Continue without brokers that a neighbour reports dead and that answer nothing: silence is a witness, too."""
        for peer in self._claimed.keys() & set(self.waiting_for):
            since_ms = max(self._unanswered_ms.get(peer, now_ms), self._claimed_ms[peer])
            if now_ms - since_ms > CLAIMED_UNANSWERED_MS:
                self._lost.add(peer)
        return self._enter_answered(now_ms)

    def _enter_answered(self, now_ms: int) -> list[TransitionEffect]:
        """Enter all phases for which no answer is missing."""
        effects: list[TransitionEffect] = []
        while not self.is_done and self._is_answered:
            effects += self._enter(self._facts.next[0], now_ms, "all brokers answered")
        return effects

    def foreign_part(self, result: CommandResult) -> str:
        """Describe what in an answer does not belong to this plan and leader; empty if nothing."""
        if result.plan != self.plan.plan:
            return "plan"
        if result.digest != self._digest:
            return "digest"
        if result.term != self._term:
            return "term"
        return "" if result.broker in self._participants else "broker"

    def on_tick(self, now_ms: int) -> list[TransitionEffect]:
        """Process time-outs: repeat unanswered commands, abort a prepare that takes too long, report a stall once."""
        if self.is_done:
            return []
        if effects := self._confirm_claims(now_ms):
            return effects
        late_ms = now_ms - self._phase_since_ms
        if late_ms > self.limits.of(self.plan.phase):
            if self.plan.phase is PlanPhase.PREPARING:
                reason = f"prepare took longer than {self.limits.prepare_ms} ms: waiting for {self._waiting_text}"
                return self._enter(PlanPhase.ABORTING, now_ms, reason)
            if self.plan.phase is PlanPhase.DRAINING and self._lost:
                dead = name_some(sorted(self._lost), NAMED_MAX)
                return self._enter(
                    PlanPhase.RETIRING, now_ms, f"{dead} dead: the messages they still had to send are lost"
                )
            effects = [] if self._is_stall_reported else [self._stalled(late_ms, now_ms)]
            if now_ms - self._asked_all_ms >= self.limits.of(self.plan.phase):
                effects += self._ask(now_ms, self._living)  # Any may have found a neighbour dead since.
            if effects:
                return effects
        if now_ms - self._asked_ms >= self.limits.resend_ms:
            return self._ask(now_ms)
        return []

    def _on_refusal(self, result: CommandResult, now_ms: int) -> list[TransitionEffect]:
        if self.plan.phase is PlanPhase.PREPARING and result.phase is CommandPhase.PREPARE:
            return self._enter(PlanPhase.ABORTING, now_ms, f"{result.broker} refused to prepare: {result.reason}")
        if result.phase is not self._facts.command:
            return []  # The answer to an earlier phase's command.
        if self._is_stall_reported:
            return []
        self._is_stall_reported = True
        text = f"{result.broker} refused {result.phase} of {self.plan.plan}: {result.reason}"
        return [self._event(EventKind.PLAN_STALLED, Severity.CRITICAL, now_ms, text)]

    @property
    def _waiting_text(self) -> str:
        return name_some(self.waiting_for, NAMED_MAX)

    def _stalled(self, late_ms: int, now_ms: int) -> EmitEvent:
        self._is_stall_reported = True
        text = f"{self.plan.plan} {self.plan.phase} for {late_ms} ms: waiting for {self._waiting_text}"
        return self._event(EventKind.PLAN_STALLED, Severity.CRITICAL, now_ms, text)

    def _enter(self, phase: PlanPhase, now_ms: int, reason: str) -> list[TransitionEffect]:
        """Persist the phase first; only then send its commands."""
        plan = entered(self.plan, phase, reason, now_ms)
        sent = believed_total(self._control_messages, self._claims.agent_of)
        self.plan = msgspec.structs.replace(plan, control_messages=sent)
        self._phase_since_ms = self._asked_all_ms = now_ms
        self._is_stall_reported = False
        effects: list[TransitionEffect] = [PersistPlan(self.plan)]
        if phase is PlanPhase.ABORTED:
            text = f"{self.plan.plan} aborted, nothing changed: {self._abort_reason()}"
            return [*effects, self._event(EventKind.PLAN_ABORTED, Severity.WARNING, now_ms, text)]
        if phase is PlanPhase.VERIFYING:
            text = f"{self.plan.plan} executed: epoch {self.plan.epoch_to} everywhere"
            return [*effects, self._event(EventKind.PLAN_PHASE, Severity.INFO, now_ms, text)]
        if phase is PlanPhase.DRAINING:
            self._asked_ms = now_ms  # Active brokers report by themselves when they are drained.
            return effects
        # A broker that only neighbours report dead may live, and hold what is given up.
        return effects + self._ask(now_ms, self._living if phase is PlanPhase.ABORTING else None)

    def _abort_reason(self) -> str:
        reasons = [change.reason for change in self.plan.history if change.phase is PlanPhase.ABORTING]
        return reasons[0] if reasons else "unknown"

    def _ask(self, now_ms: int, brokers: Sequence[str] | None = None) -> list[TransitionEffect]:
        """Send the phase's command to ``brokers``, by default to those that have not answered."""
        self._asked_ms = now_ms
        if brokers is not None:
            self._asked_all_ms = now_ms
        phase = self._facts.command
        if phase is None:
            return []
        asked = self.waiting_for if brokers is None else brokers
        for broker in asked:
            self._unanswered_ms.setdefault(broker, now_ms)
        return [SendCommand(self.command_of(phase, broker)) for broker in asked]

    def command_of(self, phase: CommandPhase, broker: str) -> Command:
        """Return the command of a phase to one broker."""
        plan, change = self.plan, self._change
        bare = Command(
            plan.plan,
            phase,
            broker,
            plan.epoch_from,
            plan.epoch_to,
            digest=self._digest,
            lost_brokers=self._lost_in(phase),
            term=self._term,
        )
        if phase is not CommandPhase.PREPARE:
            return bare
        return msgspec.structs.replace(
            bare,
            links_removed=plan.links_removed,
            links_added=plan.links_added,
            moves=self._target.moves_known_to(broker, plan.moves),
            id_moves=plan.id_moves,
            brokers_joined=tuple(sorted(change.joined)),
            brokers_left=tuple(sorted(change.left)),
            subscribers_moved=plan.subscribers_moved,
        )

    def _lost_in(self, phase: CommandPhase) -> tuple[str, ...]:
        """Return the brokers that a command names as lost.

        A broker that comes back by the plan is named in later phases only if its new incarnation is over, too. The word
        of neighbours counts only in RETIRE, when all else has drained.
        """
        before = self.plan.brokers_lost
        if phase in (CommandPhase.ACTIVATE, CommandPhase.RETIRE):
            before = tuple(broker for broker in before if broker not in self._change.joined)
        since = self._lost if phase is CommandPhase.RETIRE else self._declared
        return tuple(sorted({*before, *since}))

    def _event(self, kind: EventKind, severity: Severity, now_ms: int, text: str) -> EmitEvent:
        return EmitEvent(AdaptationEvent(self.plan.plan, kind, severity, now_ms, text, self.plan.plan))
