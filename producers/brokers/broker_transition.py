"""The two-epoch transition of one broker of a tree: prepare, activate, drain, retire, or abort.

In: commands of the controller, END markers, publishers that leave, neighbours that die. Out: effects. What is the same
on any overlay stands in :mod:`producers.brokers.two_epochs`; which messages there are and where they go besides belongs
to :mod:`producers.brokers.broker_core`, the tables to :mod:`producers.brokers.broker_routing`.

Tables of epoch k+1 are derived from those of k where the way to a subscription's home is the same in both trees, and
built by subscriptions that travel over the new tree where not. A publisher that moves is told to leave when its old
home is to activate; that home stays in epoch k until the publisher has said that it has handed over all, so that
nothing of it is stamped k+1 there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from overlay.configuration import Configuration, link
from overlay.overlay_configuration import OverlayConfiguration
from producers.brokers.broker_messages import (
    ClientDropped,
    Deliver,
    Effect,
    End,
    LeaveRequest,
    Message,
    Notification,
    PublisherLeaves,
    PublisherTaken,
    Send,
    UnadvertiseRequest,
    bundled,
)
from producers.brokers.broker_routing import BrokerRouting
from producers.brokers.routing_tables import LOCAL, RoutingTables
from producers.brokers.two_epochs import PlanUnderWay
from schemas.command import Command


@dataclass(slots=True)
class TreePlanUnderWay(PlanUnderWay):
    """The plan under way at a broker of a tree; ``moves`` are of publishers.

    ``waiting_for``: subscriptions and publishers that keep it from being prepared. ``leaving``: publishers that must
    still leave before it is active, with when they were told, None until then.
    """

    waiting_for: set[str] = field(default_factory=set)
    leaving: dict[str, float] | None = None


class BrokerTransition(BrokerRouting):
    """Routing tables of one broker and the plan under way there; at most two epochs are live."""

    under_way: TreePlanUnderWay | None

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Take note that a neighbour is gone for good, after all that it had sent; return what is to be done.

        Its flows have ended and its answers are not waited for, so that those who are left can go on in both epochs.
        What it held, and what had to cross it, is lost with it.
        """
        self.lost_peers.add(peer)
        for tables in self.tables.values():
            tables.lose_peer(peer)
        for known in self.advertisements.values():
            known.unanswered.discard(peer)
        names = {name for tables in self.tables.values() for name in tables.entries}
        settled = self._settle(sorted(names | set(self.locals)), now_ms)
        return bundled(settled + self._release_held() + self._drain(now_ms))

    # --- what is held back -------------------------------------------------------------------------------------------

    def _must_hold(self, delivery: Deliver) -> bool:
        notification = delivery.notification
        return any(
            not self._flow_has_ended(tables, notification)
            for epoch, tables in self.tables.items()
            if epoch < notification.epoch
        )

    def _flow_has_ended(self, tables: RoutingTables, notification: Notification) -> bool:
        under_way = self.under_way
        move = None if under_way is None else under_way.moves.get(notification.publisher)
        if under_way is not None and move is None and notification.home in self.tables[under_way.epoch_to].same_way:
            return True  # Both epochs come over the same links, which keep order.
        home = notification.home if move is None else move.home_from
        # At its home then, a broker has stamped all of an epoch that it has left behind.
        return self.epoch > tables.epoch if home == self.broker else tables.flow_has_ended(home)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def _open_tables(self, command: Command, target: OverlayConfiguration, now_ms: float) -> list[Effect]:
        assert isinstance(target, Configuration)
        moves = {move.client: move for move in command.moves}
        moved = {name: move.home_to for name, move in moves.items()}
        self.tables[command.epoch_to] = RoutingTables(self.broker, target, self.tables[self.epoch].configuration, moved)
        self.under_way = TreePlanUnderWay(command.plan, command.epoch_from, command.epoch_to, moves)
        older = self.tables[self.epoch]
        effects = self._derive_later(older.entries.values())
        self.under_way.waiting_for = {
            name
            for name in {*self.tables[command.epoch_to].entries, *self._own_unconfirmed()}
            if not self._is_ready(name)
        }
        return effects

    def _reason_against(self, command: Command) -> str:
        for move in command.moves:
            # A publisher that has left meanwhile does no harm; one at another home would be cut off.
            known = self.advertisements.get(move.client)
            if known is not None and known.home != move.home_from:
                return f"publisher {move.client} is at {known.home}, not at {move.home_from}"
            if move.home_to not in self.tables[self.epoch].configuration.neighbours:
                return f"publisher {move.client} cannot move to {move.home_to}: it is not in the overlay"
        return ""

    def _target_of(self, command: Command) -> OverlayConfiguration:
        return self.tables[self.epoch].configuration.replaced(
            command.epoch_to,
            [link(a, b) for a, b in command.links_removed],
            [link(a, b) for a, b in command.links_added],
        )

    def _own_unconfirmed(self) -> set[str]:
        return {name for name, known in self._unconfirmed_advertisements.items() if known.told_by == LOCAL}

    def _is_ready(self, name: str) -> bool:
        """Tell whether a subscription or publisher no longer keeps this broker from being prepared."""
        if name in self._unconfirmed_advertisements:
            return False
        local = self.locals.get(name)
        if local is not None and not local.is_confirmed and not local.has_ended:
            return False
        return self._is_settled(name, max(self.tables))

    def _is_ready_to_switch(self) -> bool:
        under_way = self.under_way
        assert under_way is not None
        under_way.waiting_for = {name for name in under_way.waiting_for if not self._is_ready(name)}
        return not under_way.waiting_for

    # --- switching and draining --------------------------------------------------------------------------------------

    def _begin_switch(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        assert isinstance(under_way, TreePlanUnderWay)
        if under_way.leaving is not None:
            return []  # The answer follows when the publishers have left.
        here = [self.advertisements[name] for name in sorted(under_way.moves) if self._is_at_home(name)]
        under_way.leaving = {known.publisher: now_ms for known in here}
        if not under_way.leaving:
            return self._switch(under_way, now_ms)
        return [PublisherLeaves(one.publisher, under_way.moves[one.publisher].home_to, one.connection) for one in here]

    def _is_at_home(self, publisher: str) -> bool:
        known = self.advertisements.get(publisher)
        return known is not None and known.home == self.broker

    def _see_leave(self, request: LeaveRequest | UnadvertiseRequest, now_ms: float) -> list[Effect]:
        """Take note that a publisher hands over nothing more here; the last one that had to leave lets us switch."""
        under_way, known = self.under_way, self.advertisements.get(request.publisher)
        if under_way is None or not under_way.leaving or known is None or known.connection != request.connection:
            return []
        if under_way.leaving.pop(request.publisher, None) is None or under_way.leaving:
            return []
        return self._switch(under_way, now_ms)

    def _drop_silent(self, under_way: PlanUnderWay, now_ms: float) -> list[Effect]:
        """End the stay of publishers that have not left in time: what they hand over from now on is not taken."""
        assert isinstance(under_way, TreePlanUnderWay)
        if not under_way.leaving:
            return []
        effects: list[Effect] = []
        for publisher in self._late(dict(under_way.leaving), now_ms):
            connection = self.advertisements[publisher].connection
            effects.append(ClientDropped(publisher, connection))
            effects += self._unadvertise(UnadvertiseRequest(publisher, connection), now_ms)
        return effects

    def _unadvertise(self, request: UnadvertiseRequest, now_ms: float) -> list[Effect]:
        """End a publisher's stay."""
        raise NotImplementedError

    def _is_drained(self, under_way: PlanUnderWay) -> bool:
        return self.tables[under_way.epoch_from].is_drained

    def _taken_over(self, under_way: PlanUnderWay) -> list[Effect]:
        coming = [name for name, move in sorted(under_way.moves.items()) if move.home_to == self.broker]
        known = [self.advertisements[name] for name in coming if name in self.advertisements]
        return [PublisherTaken(one.publisher, one.connection) for one in known]

    def _drain_on(self) -> list[Effect]:
        """Send END over each old link whose other old links have all ended."""
        assert self.under_way is not None
        old = self.tables[self.under_way.epoch_from]
        effects: list[Effect] = []
        for peer in old.neighbours:
            if peer not in old.ends_sent and set(old.neighbours) - {peer} <= old.ends_received:
                old.ends_sent.add(peer)
                effects.append(Send(peer, End(old.epoch)))
        return effects

    def _finish_moves(self, under_way: PlanUnderWay) -> None:
        tables = self.tables[under_way.epoch_to]
        for publisher, known in self.advertisements.items():
            known.home = self._home_in(tables, publisher)
        tables.moved.clear()

    def _forget_epoch(self, gone: RoutingTables, under_way: PlanUnderWay | None, now_ms: float) -> list[Effect]:
        names = sorted(gone.entries)
        effects = self._settle([*names, *sorted(set(self.locals) - set(names))], now_ms)
        return effects + self._take_postponed(now_ms)

    def _is_of_plan(self, message: Message, under_way: PlanUnderWay) -> bool:
        return isinstance(message, End) or getattr(message, "epoch", None) == under_way.epoch_to
