"""The core of a broker of any overlay: what it does with each message and command, whatever the kind of overlay.

In: one message at a time and the time. Out: effects. The core and the kind of overlay work on one
:class:`producers.brokers.broker_state.BrokerState`. The kinds (:mod:`producers.brokers.tree_routing`,
:mod:`producers.brokers.ring_routing`, :mod:`producers.brokers.scot_routing`) differ in their tables, their messages and
how they prepare, switch and drain; :mod:`producers.brokers.epoch_change` specifies their interface.

What it does on each phase of a plan is in :mod:`producers.brokers.execute_commands`. The protocol is in
docs/protocol.md.
"""

from __future__ import annotations

from regraft.producers.brokers.answer_commands import count_control, refuse
from regraft.producers.brokers.broker_messages import (
    Bundle,
    ClientRequest,
    Effect,
    Message,
    Notification,
)
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.broker_state import Plan, Tables
from regraft.producers.brokers.bundle_messages import bundled
from regraft.producers.brokers.execute_commands import CommandedCore
from regraft.schemas.command import Command, Refusal


class TwoEpochBroker(CommandedCore[Tables, Plan]):
    """One broker's protocol core: it obeys commands, and passes all other messages to its kind of overlay.

    What its driver has to do is in :mod:`producers.brokers.broker_protocol`. ``routing`` makes the part that depends on
    the kind of overlay, over the same ``state``: at the start, and again after an INSTALL. That part does not know the
    core.

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

    def begin_at(self, plan: str, digest: str, term: int) -> None:
        """Accept the initial configuration as the one that a plan led to, in this or an earlier term.

        From then on the core answers for that plan as if it had executed it, and obeys no leader of a lower term.
        """
        self.state.fence.begin_at(self.epoch, plan, digest, term)

    def leave_clients(self) -> None:
        """Let plans take this broker out of the overlay although clients stay here, as those of real brokers do.

        Publishers then end when the broker switches, subscriptions once everything of the old epoch has come. Without
        this call, and on a ring, a broker refuses a plan that would leave clients behind.
        """
        self.state.leaves_clients = True

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
        """Number of messages sent to neighbours since boot, except notifications."""
        return self.state.control_messages_sent

    @property
    def held_count_max(self) -> int:
        """The most deliveries held back at one time since boot."""
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

    # --- what comes in -----------------------------------------------------------------------------------------------

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Process one message and return the effects, in order. ``source`` is a neighbour, or None for a local sender.

        Raises ProtocolError if the message is impossible.
        """
        self.state.now_ms = now_ms
        if isinstance(message, Notification):
            return self.routing.route(source, message)
        if isinstance(message, Command):
            effects = self._obey(message)
        else:
            messages = message.messages if isinstance(message, Bundle) else (message,)
            effects = [effect for one in messages for effect in self.dispatch(source, one)]
        effects += self.continue_plan() + self.routing.release_ended()
        count_control(self.state, self._change.is_of_plan, effects)
        return bundled(effects)

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Note that a neighbour is gone for good, after everything it had sent; return the effects.

        Its answers are not awaited, so that the remaining brokers can continue in both epochs. What it held, and what
        had to cross it, is lost with it. A later incarnation of it is not concerned.
        """
        self.state.now_ms = now_ms
        epoch_end = self.state.incarnations.end(peer)
        if epoch_end > max(self.state.tables):
            self.state.lost_peers.add(peer)
        return bundled(self._change.lose_peer(peer, epoch_end) + self.continue_plan())

    # --- commands ----------------------------------------------------------------------------------------------------

    def _obey(self, command: Command) -> list[Effect]:
        state = self.state
        refusal, reason = state.fence.refusal_of(command, state.epoch)
        if refusal is not Refusal.NONE:
            return [refuse(state, command, refusal, reason)]
        return self.execute(command)
