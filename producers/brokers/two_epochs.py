"""The core of a broker of any overlay: what it does with each message and command, whatever the kind of overlay.

In: one message at a time and the time. Out: effects. The core and the kind of overlay work on one
:class:`producers.brokers.broker_state.BrokerState`. The kinds (:mod:`producers.brokers.tree_routing`,
:mod:`producers.brokers.ring_routing`, :mod:`producers.brokers.scot_routing`) differ in their tables, their messages and
how they prepare, switch and drain; :mod:`producers.brokers.epoch_change` specifies their interface.

The protocol is in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, cast

from regraft.producers.brokers.answer_commands import answer, count_control, refuse, report
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    Bundle,
    ClientDropped,
    ClientRequest,
    ControlMessage,
    Dropped,
    Effect,
    Message,
    Notification,
)
from regraft.producers.brokers.broker_reports import OUTSIDE, BrokerPhase, ProtocolError
from regraft.producers.brokers.broker_state import EARLY_MESSAGES_MAX, BrokerState, Plan, Tables
from regraft.producers.brokers.bundle_messages import bundled
from regraft.producers.brokers.epoch_change import EpochChange, Routing, digest_mismatch
from regraft.producers.brokers.switch_epochs import answer_prepare, release_held
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal


class TwoEpochBroker(Generic[Tables, Plan]):
    """One broker's protocol core: it obeys commands, and passes all other messages to its kind of overlay.

    A :class:`producers.brokers.broker_protocol.BrokerProtocol`. ``routing`` makes the part that depends on the kind of
    overlay, over the same ``state``: at the start, and again after an INSTALL. That part does not know the core.

    *Why two epochs.* Brokers cannot change the overlay at one instant: a command reaches them at different times. If
    each changed its tables in place, a notification would cross brokers with old tables and brokers with new ones, and
    be lost or come twice. So the new tables are filled next to the old ones (prepare), and the home of its publisher
    stamps each notification with the epoch that it is routed in, by all brokers and to its end. A broker stamps the new
    epoch (activate) only once every broker has the tables for it, so a stamp is never unknown. Two are enough, because
    no plan begins before the one before is over; then tables, memory and the cases to consider stay bounded.

    *Why END.* From the switch on, two streams of one publisher are on their way: what was stamped before, over old
    paths, and what is stamped now, over new ones. The new one may be faster. No clock shows when the old one has
    ended, for there is no bound on the delay of a message. Links do: they keep order. A broker that sends nothing more
    of the old epoch over a link says so on that link, with END, behind everything that it had sent; and it can only say
    so once its own input of the old epoch has ended. So END goes over the overlay like a wave behind the last
    notifications of the old epoch, and until it has come, deliveries of the new one that an earlier one may still
    precede are held back. Where both epochs take the same links, order holds anyway and nothing waits. What END means
    differs: on a tree each link has one; on a ring, whose links form circles, each topic has; on a structured cyclic
    overlay it goes in rounds.

    *Why drain, and retire after that.* A broker that has every END (drained) needs its old tables no more, but others
    may: it may still be on the path of an END, of a client's hand-over, of the end of a stay. If it dropped the tables
    now, these would find no way. So it only reports, and drops them once all have reported (retire). Until the switch,
    the plan can be aborted, as nothing bears the new epoch; after that it can only be completed. A death does not stop
    it: what would have come through the dead broker counts as ended once a link has reported its end.
    """

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

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Accept this broker's epoch as the one that a plan led to."""
        self.state.fence.begin_at(self.epoch, plan, digest, term)

    # --- what a driver reads -----------------------------------------------------------------------------------------

    @property
    def broker(self) -> str:
        """The broker's name."""
        return self.state.broker

    @property
    def epoch(self) -> int:
        """The epoch that it stamps."""
        return self.state.epoch

    @property
    def phase(self) -> BrokerPhase:
        """The phase of this broker in a transition."""
        return self.state.phase

    @property
    def takes_clients(self) -> bool:
        """Whether clients may connect: the broker is in the overlay of every live epoch."""
        return self.state.takes_clients

    @property
    def control_messages_sent(self) -> int:
        """Number of messages sent to neighbours, except notifications."""
        return self.state.control_messages_sent

    @property
    def held_count_max(self) -> int:
        """The most deliveries held back at one time."""
        return self.state.held_count_max

    @property
    def covered_forwards(self) -> int:
        """Number of subscriptions sent to a neighbour that already had a wider one from here."""
        return self.routing.covered_forwards

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended but may still be owed something."""
        return self.routing.ended_count

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        return tuple(sorted({peer for tables in self.state.tables.values() for peer in tables.neighbours}))

    @property
    def held_notifications(self) -> list[Notification]:
        """Return the notifications that this broker holds back for the plan under way."""
        return [delivery.notification for delivery in self.state.held] + self._change.kept_notifications()

    # --- what comes in -----------------------------------------------------------------------------------------------

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Process one message and return the effects, in order; ``source`` is None for a local sender."""
        self.state.now_ms = now_ms
        if isinstance(message, Notification):
            return self.routing.route(source, message)
        if isinstance(message, Command):
            effects = self._obey(message, now_ms)
        else:
            messages = message.messages if isinstance(message, Bundle) else (message,)
            effects = [effect for one in messages for effect in self._dispatch(source, one, now_ms)]
        effects += self.routing.check_progress(now_ms)
        count_control(self.state, self._change.is_of_plan, effects)
        return bundled(effects)

    def _dispatch(self, source: str | None, message: ControlMessage | ClientRequest, now_ms: float) -> list[Effect]:
        if source is None:
            return self.routing.serve(cast(ClientRequest, message), now_ms)
        control = cast(ControlMessage, message)
        self.state.lives.note_sent(source, control.epoch)
        return self.routing.converse(source, control, now_ms)

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Note that a neighbour is gone for good, after everything it had sent; return the effects.

        Its answers are not awaited, so that the remaining brokers can continue in both epochs. What it held, and what
        had to cross it, is lost with it. A later life of it is not concerned.
        """
        epoch_end = self.state.lives.end(peer)
        if epoch_end > max(self.state.tables):
            self.state.lost_peers.add(peer)
        return bundled(self._change.lose_peer(peer, epoch_end, now_ms))

    # --- commands ----------------------------------------------------------------------------------------------------

    def _obey(self, command: Command, now_ms: float) -> list[Effect]:
        state = self.state
        refusal, reason = state.fence.refusal_of(command, state.epoch)
        if refusal is not Refusal.NONE:
            return [refuse(state, command, refusal, reason, now_ms)]
        return self._change.note_deaths(command, now_ms) + self._execute(command, now_ms)

    def _execute(self, command: Command, now_ms: float) -> list[Effect]:
        match command.phase:
            case CommandPhase.PREPARE:
                return self._prepare(command, now_ms)
            case CommandPhase.ACTIVATE:
                return self._activate(command, now_ms)
            case CommandPhase.RETIRE:
                return self._retire(command, now_ms)
            case CommandPhase.ABORT:
                return self._abort(command, now_ms)
            case CommandPhase.INSTALL:
                return self._install(command, now_ms)
            case CommandPhase.REPORT:
                return [report(self.state, command, now_ms)]

    def _prepare(self, command: Command, now_ms: float) -> list[Effect]:
        state = self.state
        if command.epoch_to in state.tables:
            under_way = state.under_way
            if under_way is not None and not under_way.is_prepared:
                return self._change.drop_unresponsive(under_way, now_ms)  # Answered once the new tables are ready.
            return [answer(state, command, Outcome.PREPARED, now_ms)]
        refusal, reason = self._reason_to_refuse(command)
        effects = reason or self._change.prepare(command, now_ms)
        if isinstance(effects, str):
            return [refuse(state, command, refusal, effects, now_ms)]
        state.fence.claim(command, state.tables)
        # Messages that came before the prepare may add to what it waits for.
        for source, kept in state.take_early(command.epoch_to):
            effects += self._dispatch(source, kept, now_ms)
        return effects + answer_prepare(state, self._change.is_ready_to_switch, now_ms)

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

    def _activate(self, command: Command, now_ms: float) -> list[Effect]:
        state, under_way = self.state, self.state.under_way
        if state.epoch >= command.epoch_to:
            answers: list[Effect] = [answer(state, command, Outcome.ACTIVATED, now_ms)]
            if under_way is None or under_way.is_drained_reported:
                return [*answers, answer(state, command, Outcome.DRAINED, now_ms)]
            return answers + self._change.drop_unresponsive(under_way, now_ms)
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            return [refuse(state, command, Refusal.PHASE, f"not prepared for epoch {command.epoch_to}", now_ms)]
        return self._change.begin_switch(under_way, now_ms) + self._change.drop_unresponsive(under_way, now_ms)

    def _retire(self, command: Command, now_ms: float) -> list[Effect]:
        state, under_way = self.state, self.state.under_way
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if state.epoch >= command.epoch_to and not is_its_plan:
            return [answer(state, command, Outcome.RETIRED, now_ms)]
        if under_way is None or not is_its_plan or not (under_way.is_drained_reported or self._may_give_up(command)):
            return [refuse(state, command, Refusal.PHASE, f"not drained for epoch {command.epoch_to}", now_ms)]
        released: list[Effect] = []
        if not under_way.is_drained_reported:
            released = [*self._change.release_waiting(under_way), *state.held]
            state.held.clear()
        self._change.finish_moves(under_way)
        released += release_held(state, self._change.must_hold)
        if state.held:
            raise ProtocolError(f"{state.broker} is drained but holds {len(state.held)} deliveries")
        retired = answer(state, command, Outcome.RETIRED, now_ms)
        return [*released, *self._drop_tables(under_way.epoch_from, now_ms), retired]

    def _may_give_up(self, command: Command) -> bool:
        """Return True if what this broker still waits for may have been lost with a dead broker."""
        return self.state.epoch == command.epoch_to and bool(command.lost_brokers)

    def _abort(self, command: Command, now_ms: float) -> list[Effect]:
        state = self.state
        if state.fence.is_aborted(command.epoch_to):
            return [answer(state, command, Outcome.ABORTED, now_ms)]
        if state.epoch >= command.epoch_to:
            return [refuse(state, command, Refusal.PHASE, f"epoch {command.epoch_to} is already active", now_ms)]
        state.fence.claim(command, state.tables)
        state.epoch_aborted_max = max(state.epoch_aborted_max, command.epoch_to)
        state.forget_early(state.epoch_aborted_max)
        aborted = answer(state, command, Outcome.ABORTED, now_ms)
        dropped = self._drop_tables(command.epoch_to, now_ms) if command.epoch_to in state.tables else []
        return [*dropped, aborted]

    def _install(self, command: Command, now_ms: float) -> list[Effect]:
        """Start over outside the epoch in force, discarding all state; a repeated command changes nothing."""
        state = self.state
        held = state.tables.get(command.epoch_to)
        if held is not None and held.is_outside and command.epoch_to == min(state.tables):  # Else it is yet to leave.
            return [answer(state, command, Outcome.INSTALLED, now_ms)]
        if command.epoch_to < min(state.tables):
            reason = f"holds epoch {state.epoch}, past {command.epoch_to}"
            return [refuse(state, command, Refusal.EPOCH, reason, now_ms)]
        try:
            tables = self._change.tables_outside(command)
            reason = digest_mismatch(command, tables.configuration) if command.digest else ""
        except ValueError as error:
            reason = str(error)
        if reason:
            return [refuse(state, command, Refusal.PHASE, reason, now_ms)]
        coming = {one.publisher: one.connection for one in state.postponed if isinstance(one, AdvertiseRequest)}
        stays = sorted((self.routing.clients_here() | coming).items())
        effects: list[Effect] = [ClientDropped(*stay) for stay in stays]
        effects += [Dropped(notification, OUTSIDE) for notification in self.held_notifications]
        state.forget_early(command.epoch_to)
        state.fence.install(command, state.epoch)
        state.begin_with(tables)
        self._begin()
        return [*effects, answer(state, command, Outcome.INSTALLED, now_ms)]

    def _drop_tables(self, epoch: int, now_ms: float) -> list[Effect]:
        state = self.state
        gone, under_way = state.tables.pop(epoch), state.under_way
        state.under_way = None
        return self._change.forget_epoch(gone, under_way, now_ms)
