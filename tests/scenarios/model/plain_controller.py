"""A controller as a value: the plans of a scenario one after the other, each phase once all brokers answered the last.

In: answers of brokers. Out: the commands that may reach their brokers now, in any order. Delays of answers need no
state: the commands that follow from them may be delayed instead. Repeated commands and deaths of the
controller are left to the random tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from regraft.overlay.overlay_configuration import BETWEEN, OverlayConfiguration, link
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.plan import ClientMove
from regraft.schemas.plan_life import answers_to
from tests.scenarios.model.kept_account import Violation

_ANSWERS = {phase: frozenset(answers_to(phase)) for phase in CommandPhase}


@dataclass(frozen=True)
class PlannedChange:
    """What one plan leads to: all links of a tree or all IDs of a ring (None: unchanged), and the moves.

    On a structured cyclic overlay only publishers move.

    The brokers are those that the links or IDs name: others leave, and some may join. A repair waits until all brokers
    that are no longer in it are declared dead. A plan that a declared death makes impossible is left out.
    """

    links: tuple[tuple[str, str], ...] | None = None
    ids: tuple[tuple[str, int], ...] | None = None
    moves: tuple[ClientMove, ...] = ()
    may_abort: bool = False
    is_repair: bool = False

    def target(self, before: OverlayConfiguration, epoch: int) -> OverlayConfiguration:
        """Return the configuration that the plan leads to."""
        if isinstance(before, ScotConfiguration):
            return before.at_epoch(epoch)
        if isinstance(before, RingConfiguration):
            ids: Mapping[str, int] = before.id_of if self.ids is None else dict(self.ids)
            return RingConfiguration.of(epoch, before.bits, ids)
        if self.links is None:
            return TreeConfiguration.of(epoch, before.brokers, before.links)
        brokers = {broker for pair in self.links for broker in pair}
        return TreeConfiguration.of(epoch, brokers, [link(a, b) for a, b in self.links])

    def brokers(self) -> frozenset[str]:
        """Return the brokers that the plan names, if it changes the overlay."""
        ends = (broker for pair in self.links or () for broker in pair)
        return frozenset((*ends, *(broker for broker, _ in self.ids or ())))


def plan(
    *,
    links: tuple[tuple[str, str], ...] | None = None,
    ids: Mapping[str, int] | None = None,
    moves: tuple[tuple[str, str, str], ...] = (),
    may_abort: bool = False,
    is_repair: bool = False,
) -> PlannedChange:
    """Return a plan; ``moves`` are (client, home before, home after)."""
    placed = None if ids is None else tuple(sorted(ids.items()))
    return PlannedChange(links, placed, tuple(ClientMove(*move) for move in moves), may_abort, is_repair)


@dataclass(frozen=True)
class Control:
    """The state of the controller; ``ended`` gives the ends of plans. A step returns the commands that follow from it.

    ``instance`` is part of the digests of its plans; it ignores answers with other digests. ``declared`` are the
    brokers that it knows to be dead.
    """

    plans: tuple[PlannedChange, ...]
    configuration: OverlayConfiguration
    epoch_max: int
    phase: CommandPhase | None = None
    answered: frozenset[tuple[str, Outcome]] = frozenset()
    ended: tuple[str, ...] = ()
    instance: str = ""
    declared: frozenset[str] = frozenset()

    @property
    def live_overlays(self) -> list[OverlayConfiguration]:
        """The overlay in force and the one that the plan under way leads to."""
        return [self.configuration] if self.phase is None else [self.configuration, self._target]

    @property
    def under_way(self) -> PlannedChange | None:
        """The plan under way, or None if all have ended."""
        return self.plans[len(self.ended)] if len(self.ended) < len(self.plans) else None

    @property
    def can_abort(self) -> bool:
        """Return True if the plan may be aborted now."""
        under_way = self.under_way
        return under_way is not None and under_way.may_abort and self.phase is CommandPhase.PREPARE

    def begin(self) -> tuple[Control, list[Command]]:
        """Begin the next plan, if there is one and it need not wait."""
        change, idle = self.under_way, replace(self, phase=None, answered=frozenset())
        if change is None:
            return idle, []
        gone = set(self.configuration.brokers) - set(self._target.brokers)
        if self.declared.intersection(self._target.brokers):
            return replace(idle, ended=(*self.ended, "left out")).begin()
        if change.is_repair and not gone <= self.declared:
            return idle, []
        return replace(self, epoch_max=self.epoch_max + 1)._enter(CommandPhase.PREPARE)

    def has_answered(self, broker: str) -> bool:
        """Return True if a broker has given all answers of the present phase."""
        return self.phase is not None and all((broker, outcome) in self.answered for outcome in _ANSWERS[self.phase])

    def after(self, event: CommandResult | str | tuple[str, str]) -> tuple[Control, list[Command]]:
        """Take an answer, "abort", or ("declare", broker); raise Violation if a broker refuses what it must not.

        After an abort, prepares that have not reached their brokers may still do so.
        """
        if isinstance(event, str):
            return self._enter(CommandPhase.ABORT)
        if isinstance(event, tuple):
            return replace(self, declared=self.declared | {event[1]})._note_death()
        if self.phase is None or event.epoch_to != self.epoch_max or event.digest != self._digest:
            return self, []
        if self.phase is event.phase is CommandPhase.ABORT and event.refusal is Refusal.PLAN:
            event = msgspec.structs.replace(event, outcome=Outcome.ABORTED)  # The broker is in another plan.
        if event.outcome is Outcome.REFUSED:
            if event.phase is CommandPhase.PREPARE:
                return self._enter(CommandPhase.ABORT) if self.phase is CommandPhase.PREPARE else (self, [])
            raise Violation(f"{event.broker} refused to {event.phase}: {event.reason}")
        if self.phase is CommandPhase.PREPARE and set(event.lost_peers).intersection(self.asked):
            return self._enter(CommandPhase.ABORT)
        taken = replace(self, answered=self.answered | {(event.broker, event.outcome)})
        return taken._go_on() if all(taken.has_answered(one) for one in self.asked) else (taken, [])

    def fault(self) -> str:
        """Describe what is wrong when nothing is under way any more, empty if nothing is."""
        if self.phase is None:
            return "" if self.under_way is None else f"plan {len(self.ended) + 1} does not begin"
        missing = [broker for broker in self.asked if not self.has_answered(broker)]
        return f"plan {len(self.ended) + 1} waits in {self.phase} for {', '.join(missing)}"

    def _note_death(self) -> tuple[Control, list[Command]]:
        """Abort what is being prepared, or continue without the dead and notify all of them; or begin a repair."""
        if self.phase is None:
            return self.begin()
        if self.phase is CommandPhase.PREPARE:
            return self._enter(CommandPhase.ABORT)
        if all(self.has_answered(broker) for broker in self.asked):
            return self._go_on()
        return self, [self._command(self.phase, broker) for broker in self.asked]

    def _go_on(self) -> tuple[Control, list[Command]]:
        if self.phase is CommandPhase.PREPARE:
            return self._enter(CommandPhase.ACTIVATE)
        if self.phase is CommandPhase.ACTIVATE:
            return self._enter(CommandPhase.RETIRE)
        if self.phase is CommandPhase.ABORT:
            return replace(self, ended=(*self.ended, "aborted")).begin()
        change = self.plans[len(self.ended)]
        reached = change.target(self.configuration, self.epoch_max)
        return replace(self, ended=(*self.ended, "completed"), configuration=reached).begin()

    def _enter(self, phase: CommandPhase) -> tuple[Control, list[Command]]:
        commands = [self._command(phase, broker) for broker in self.asked]
        return replace(self, phase=phase, answered=frozenset()), commands

    @property
    def _target(self) -> OverlayConfiguration:
        return self.plans[len(self.ended)].target(self.configuration, self.epoch_max)

    @property
    def asked(self) -> list[str]:
        """The brokers that take part in the plan under way: those of both overlays, except the dead."""
        return sorted({*self.configuration.brokers, *self._target.brokers} - self.declared)

    @property
    def _digest(self) -> str:
        """The digest of the plan under way; just that of its overlay unless there is another controller."""
        target = self._target
        return target.digest + (BETWEEN + self.instance if self.instance else "")

    def _command(self, phase: CommandPhase, broker: str) -> Command:
        change, before = self.plans[len(self.ended)], self.configuration
        name, epoch, digest = f"plan-{self.epoch_max}", self.epoch_max, self._digest
        target = change.target(before, epoch)
        if phase is not CommandPhase.PREPARE:
            lost = tuple(sorted(self.declared.intersection((*before.brokers, *target.brokers))))
            return Command(name, phase, broker, before.epoch, epoch, digest=digest, lost_brokers=lost)
        lost = tuple(sorted(self.declared.intersection(before.brokers)))
        joined = tuple(sorted(set(target.brokers) - set(before.brokers)))
        left = tuple(sorted(set(before.brokers) - set(target.brokers) - self.declared))
        bare = Command(
            name, phase, broker, before.epoch, epoch, digest=digest,
            brokers_joined=joined, brokers_left=left, lost_brokers=lost,
        )  # fmt: skip
        if isinstance(before, ScotConfiguration):
            return msgspec.structs.replace(bare, moves=before.moves_known_to(broker, change.moves))
        if isinstance(before, RingConfiguration):
            assert isinstance(target, RingConfiguration)
            moves = tuple(move for move in change.moves if broker in (move.home_from, move.home_to))
            return msgspec.structs.replace(bare, moves=moves, id_moves=id_moves_between(before, target))
        removed = tuple(sorted(set(before.links) - set(target.links)))
        added = tuple(sorted(set(target.links) - set(before.links)))
        return msgspec.structs.replace(bare, links_removed=removed, links_added=added, moves=change.moves)
