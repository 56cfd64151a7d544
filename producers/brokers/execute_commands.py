"""What a broker's core does on each phase of a plan that reaches it as a command, whatever the kind of overlay.

In: commands that the fence has let pass. Out: effects, with the answer. :mod:`producers.brokers.two_epochs` decides
which commands get here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, cast

from regraft.overlay.overlay_configuration import digest_mismatch
from regraft.producers.brokers.answer_commands import answer, answer_late, refuse, report
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientDropped,
    ClientRequest,
    ControlMessage,
    Dropped,
    Effect,
    Notification,
)
from regraft.producers.brokers.broker_reports import OUTSIDE, ProtocolError
from regraft.producers.brokers.broker_state import EARLY_MESSAGES_MAX, BrokerState, Plan, Tables
from regraft.producers.brokers.epoch_change import EpochChange, Routing, release_held
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal


class CommandedCore(Generic[Tables, Plan]):
    """The part of a core that commands lead from epoch to epoch; ``routing`` is as for the whole core."""

    def __init__(
        self, state: BrokerState[Tables, Plan], boot_ms: int, routing: Callable[[], Routing[Tables, Plan]]
    ) -> None:
        self.state = state
        self.boot_ms = boot_ms
        self._routing_of = routing
        self._begin()

    def _begin(self) -> None:
        self.routing = self._routing_of()
        self._change: EpochChange[Tables, Plan] = self.routing.change

    @property
    def held_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back for the plan under way."""
        return [delivery.notification for delivery in self.state.held] + self._change.kept_notifications()

    def dispatch(self, source: str | None, message: ControlMessage | ClientRequest) -> list[Effect]:
        """Pass a message other than a notification or command to the kind of overlay; return the effects."""
        if source is None:
            return self.routing.serve(cast(ClientRequest, message))
        control = cast(ControlMessage, message)
        self.state.incarnations.note_sent(source, control.epoch)
        return self.routing.converse(source, control)

    def execute(self, command: Command) -> list[Effect]:
        """Accept the deaths that a command reports and do what it asks for; return the effects, in order."""
        effects: list[Effect] = []
        if command.lost_brokers:  # Nothing but them may have been awaited before what the command asks for.
            effects = self._change.note_deaths(command) + self.continue_plan()
        match command.phase:
            case CommandPhase.PREPARE:
                return effects + self._prepare(command)
            case CommandPhase.ACTIVATE:
                return effects + self._activate(command)
            case CommandPhase.RETIRE:
                return effects + self._retire(command)
            case CommandPhase.ABORT:
                return effects + self._abort(command)
            case CommandPhase.INSTALL:
                return effects + self._install(command)
            case CommandPhase.REPORT:
                return [*effects, report(self.state, command)]

    def _prepare(self, command: Command) -> list[Effect]:
        state = self.state
        if command.epoch_to in state.tables:
            under_way = state.under_way
            if under_way is not None and not under_way.is_prepared:
                return self._change.drop_unresponsive(under_way)  # Answered once the new tables are ready.
            return [answer(state, command, Outcome.PREPARED)]
        refusal, reason = self._reason_to_refuse(command)
        effects = reason or self._change.prepare(command)
        if isinstance(effects, str):
            return [refuse(state, command, refusal, effects)]
        state.fence.claim(command, state.tables)
        # Messages that came before the prepare may add to what it waits for.
        for source, kept in state.early.take(command.epoch_to):
            effects += self.dispatch(source, kept)
        return effects

    def continue_plan(self) -> list[Effect]:
        """Answer the prepare or report drained, each once, as soon as this broker awaits nothing more for it.

        Any message or death may be the last that a plan waited for, so this follows each of them.
        """
        state, under_way = self.state, self.state.under_way
        if under_way is None:
            return []
        if not under_way.is_prepared and self._change.is_ready_to_switch(under_way):
            under_way.is_prepared = True
            return [answer_late(state, under_way, CommandPhase.PREPARE, Outcome.PREPARED)]
        if not under_way.is_active:
            return []
        effects = self._change.continue_drain(under_way)
        if self._change.is_drained(under_way) and not under_way.is_drained_reported:
            under_way.is_drained_reported = True
            effects.append(answer_late(state, under_way, CommandPhase.ACTIVATE, Outcome.DRAINED))
        return effects

    def _reason_to_refuse(self, command: Command) -> tuple[Refusal, str]:
        state = self.state
        if command.epoch_to <= state.epoch_aborted_max:
            return Refusal.PHASE, f"epoch {command.epoch_to} is over: epoch {state.epoch_aborted_max} was aborted"
        is_outside = len(state.tables) == 1 and state.tables[state.epoch].is_outside
        if is_outside and state.broker not in command.brokers_joined:  # In any epoch: it restarted.
            return Refusal.OUTSIDE, f"is outside epoch {state.epoch}, and the plan does not let it join"
        if command.epoch_from != state.epoch or len(state.tables) > 1:
            reason = f"holds epoch {state.epoch}, not {command.epoch_from}, with tables of {sorted(state.tables)}"
            return Refusal.PLAN if command.epoch_from == state.epoch else Refusal.EPOCH, reason
        if state.has_overflowed:
            state.has_overflowed = False
            return Refusal.PHASE, f"more than {EARLY_MESSAGES_MAX} messages arrived before the prepare"
        return Refusal.PHASE, ""

    def _activate(self, command: Command) -> list[Effect]:
        state, under_way = self.state, self.state.under_way
        if state.epoch >= command.epoch_to:
            answers: list[Effect] = [answer(state, command, Outcome.ACTIVATED)]
            if under_way is None or under_way.is_drained_reported:
                return [*answers, answer(state, command, Outcome.DRAINED)]
            return answers + self._change.drop_unresponsive(under_way)
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            return [refuse(state, command, Refusal.PHASE, f"not prepared for epoch {command.epoch_to}")]
        return self._change.begin_switch(under_way) + self._change.drop_unresponsive(under_way)

    def _retire(self, command: Command) -> list[Effect]:
        state, under_way = self.state, self.state.under_way
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if state.epoch >= command.epoch_to and not is_its_plan:
            return [answer(state, command, Outcome.RETIRED)]
        if under_way is None or not is_its_plan or not (under_way.is_drained_reported or self._may_give_up(command)):
            return [refuse(state, command, Refusal.PHASE, f"not drained for epoch {command.epoch_to}")]
        released: list[Effect] = []
        if not under_way.is_drained_reported:
            released = [*self._change.release_waiting(under_way), *state.held]
            state.held.clear()
        self._change.finish_moves(under_way)
        released += release_held(state, self._change.must_hold)
        if state.held:
            raise ProtocolError(f"{state.broker} is drained but holds {len(state.held)} deliveries")
        retired = answer(state, command, Outcome.RETIRED)
        return [*released, *self._drop_tables(under_way.epoch_from), retired]

    def _may_give_up(self, command: Command) -> bool:
        """Return True if what this broker still waits for may have been lost with a dead broker."""
        return self.state.epoch == command.epoch_to and bool(command.lost_brokers)

    def _abort(self, command: Command) -> list[Effect]:
        state = self.state
        if state.fence.is_aborted(command.epoch_to):
            return [answer(state, command, Outcome.ABORTED)]
        if state.epoch >= command.epoch_to:
            return [refuse(state, command, Refusal.PHASE, f"epoch {command.epoch_to} is already active")]
        state.fence.claim(command, state.tables)
        state.epoch_aborted_max = max(state.epoch_aborted_max, command.epoch_to)
        state.early.forget(state.epoch_aborted_max)
        aborted = answer(state, command, Outcome.ABORTED)
        dropped = self._drop_tables(command.epoch_to) if command.epoch_to in state.tables else []
        return [*dropped, aborted]

    def _install(self, command: Command) -> list[Effect]:
        """Start over outside the epoch in force, discarding all state; a repeated command changes nothing."""
        state = self.state
        held = state.tables.get(command.epoch_to)
        if held is not None and held.is_outside and command.epoch_to == min(state.tables):  # Else it is yet to leave.
            return [answer(state, command, Outcome.INSTALLED)]
        if command.epoch_to < min(state.tables):
            reason = f"holds epoch {state.epoch}, past {command.epoch_to}"
            return [refuse(state, command, Refusal.EPOCH, reason)]
        try:
            tables = self._change.tables_outside(command)
            reason = digest_mismatch(command, tables.configuration) if command.digest else ""
        except ValueError as error:
            reason = str(error)
        if reason:
            return [refuse(state, command, Refusal.PHASE, reason)]
        coming = {one.publisher: one.connection for one in state.postponed if isinstance(one, AdvertiseRequest)}
        stays = sorted((self.routing.clients_here() | coming).items())
        effects: list[Effect] = [ClientDropped(*stay) for stay in stays]
        effects += [Dropped(notification, OUTSIDE) for notification in self.held_notifications]
        state.early.forget(command.epoch_to)
        state.fence.install(command, state.epoch)
        state.begin_with(tables)
        self._begin()
        return [*effects, answer(state, command, Outcome.INSTALLED)]

    def _drop_tables(self, epoch: int) -> list[Effect]:
        state = self.state
        gone, under_way = state.tables.pop(epoch), state.under_way
        state.under_way = None
        return self._change.forget_epoch(gone, under_way)
