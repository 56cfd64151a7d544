"""The two-epoch transition of one broker of a tree: prepare, activate, drain, retire, or abort.

In: commands of the controller, END markers, publishers that leave, neighbours that die. Out: effects. What all overlays
have in common is in :mod:`producers.brokers.two_epochs`; :mod:`producers.brokers.tree_routing` dispatches messages,
:mod:`producers.brokers.tree_interests` holds the tables.

Tables of epoch k+1 are derived from those of k if the path to a subscription's home is the same in both trees;
otherwise subscriptions that travel over the new tree build them. When its old home is to activate, a publisher to be
moved is asked to leave; that home stays in epoch k until the publisher has confirmed that it has handed over
everything, so that none of its notifications is stamped k+1 there.
"""

from __future__ import annotations

from collections.abc import Collection

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Deliver,
    Effect,
    End,
    Notification,
    PublisherTaken,
    Send,
    Unadvertise,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_state import PublisherRequest
from regraft.producers.brokers.content_change import ContentChange
from regraft.producers.brokers.epoch_change import rejected, release_held
from regraft.producers.brokers.tree_interests import TreeInterests
from regraft.producers.brokers.tree_tables import LOCAL, RoutingTables, TreePlanUnderWay, TreeState
from regraft.schemas.command import Command


class TreeChange(ContentChange[RoutingTables, TreePlanUnderWay]):
    """How the tables of one broker of a tree change. A :class:`producers.brokers.epoch_change.EpochChange`."""

    def __init__(self, state: TreeState, interests: TreeInterests) -> None:
        super().__init__(state, interests)
        self._interests = interests

    def _note_deaths(self, deaths: Collection[tuple[int, str]]) -> list[Effect]:
        """Treat the flows of the dead as ended, and wait for none of their answers; ``deaths``: epoch and broker."""
        under_way = self._state.under_way
        for epoch, peer in deaths:
            self._state.tables[epoch].lose_peer(peer)
            for known in self._interests.advertisements.values():
                known.unanswered.discard(peer)
            if under_way is not None and epoch == under_way.epoch_to:
                under_way.unacknowledged = {one for one in under_way.unacknowledged if one[0] != peer}
        effects = self.drop_stranded()
        effects += self._interests.forget_dead_homes() + self.serve_postponed()
        names = {name for tables in self._state.tables.values() for name in tables.entries}
        effects += self._interests.settle(sorted(names | set(self._interests.locals)))
        return effects + release_held(self._state, self.must_hold)

    # --- what is held back -------------------------------------------------------------------------------------------

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if earlier notifications may still come in an older epoch, here or at an old home."""
        notification = delivery.notification
        return self.movers.must_hold(delivery) or any(
            not self.flow_has_ended(tables, notification)
            for epoch, tables in self._state.tables.items()
            if epoch < notification.epoch
        )

    def flow_has_ended(self, tables: RoutingTables, notification: Notification) -> bool:
        """Return True if everything that an older epoch may bring before a notification has arrived."""
        under_way = self._state.under_way
        move = None if under_way is None else under_way.moves.get(notification.publisher)
        newest = self._state.tables[max(self._state.tables)]
        if (
            under_way is not None
            and under_way.lost
            and (move is not None or notification.home not in newest.same_path_to)
        ):
            # An earlier stay of its publisher, at any home, may have ended unnoticed behind the lost brokers.
            return tables.is_drained and self._state.epoch > tables.epoch
        if under_way is not None and move is None and notification.home in newest.same_path_to:
            return True  # Both epochs take the same links, which keep order.
        home = notification.home if move is None else move.home_from
        # The home itself has stamped everything of an epoch that it has left.
        return self._state.epoch > tables.epoch if home == self.broker else tables.flow_has_ended(home)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def prepare(self, command: Command) -> str | list[Effect]:
        """Begin the plan, or return why it is impossible or this broker cannot take part."""
        target = self._state.tables[self._state.epoch].configuration.agreed_target(command)
        if isinstance(target, str):
            return target
        return self._reason_against(command, target) or self._open_tables(command, target)

    def _reason_against(self, command: Command, target: TreeConfiguration) -> str:
        """Return which move is impossible, or which clients a leaving broker still has; empty if there is none."""
        for move in command.moves:
            # A publisher that has left meanwhile does not matter; one at another home would be cut off.
            advertisement = self._interests.advertisements.get(move.client)
            is_sure = advertisement is not None and (not command.lost_brokers or advertisement.home == self.broker)
            if advertisement is not None and is_sure and advertisement.home != move.home_from:
                return f"publisher {move.client} is at {advertisement.home}, not at {move.home_from}"
            if move.home_to not in target.brokers:
                return f"{move.client} cannot move to {move.home_to}: it is not in the overlay"
        return self._reason_to_stay(command, target)

    def _open_tables(self, command: Command, target: TreeConfiguration) -> list[Effect]:
        """Begin the plan, with tables that hold whatever can be derived from the present ones."""
        under_way, older = TreePlanUnderWay.of(command), self._state.tables[self._state.epoch]
        moved = {name: move.home_to for name, move in under_way.moves.items()}
        left = {name: move.home_from for name, move in under_way.moves.items()}
        homes, lost = under_way.homes, older.configuration.change_of(command).lost
        tables = RoutingTables(self.broker, target, older.configuration, moved, left, emptied=homes, lost=lost)
        self._begin_plan(command, under_way, tables)
        under_way.lost, under_way.announces = lost, bool(lost or command.brokers_joined or command.brokers_left)
        if under_way.announces:
            under_way.near = older.reached_without(lost)
        else:
            tables.unsure = tables.fresh
        if lost:
            under_way.doubtful = older.unsure & tables.shared
        effects = self._interests.derive_later(older.entries.values()) + self._interests.begin_repair()
        effects += self.movers.notify_leaving(under_way)
        under_way.waiting_for = {
            name for name in {*tables.entries, *self._interests.own_unconfirmed()} if not self._interests.is_ready(name)
        }
        return effects

    def tables_outside(self, command: Command) -> RoutingTables:
        """Return an outsider's tables of the tree that an install names."""
        tree = TreeConfiguration.of(command.epoch_to, command.brokers_joined, command.links_added)
        return RoutingTables(self.broker, tree, is_outside=True)

    # --- publishers that come and end --------------------------------------------------------------------------------

    def _advertise(self, request: AdvertiseRequest) -> list[Effect]:
        """Advertise a local publisher, or postpone that until the transition and its earlier stay here are over.

        A broker that learns of a publisher must still hold the tables it derived the next ones from.
        """
        if self._state.under_way is not None or request.publisher in self._interests.advertisements:
            return self._state.postpone(request)
        message = Advertise(self._state.epoch, request.publisher, request.connection, self.broker, request.filter_)
        return self._interests.learn_advertisement(LOCAL, message) + self._interests.settle(())

    def unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        """Report that a local publisher has ended; after the transition if this broker already stamps the new epoch.

        The end must follow the publisher's last notifications over the same tree, and reach all brokers before that
        epoch is retired: END of this broker must follow it. A stay that ends before it was advertised leaves no trace.
        """
        if request in self._state.postponed:
            return []  # It has already been dropped.
        if self._state.drop_postponed(request):
            return []
        if self._state.under_way is not None and self._state.under_way.is_active:
            return self._state.postpone(request)
        end = Unadvertise(self._state.epoch, request.publisher, request.connection)
        switched = self.note_leave(request)
        effects = self._interests.forget_advertisement(LOCAL, end) + switched + self.serve_postponed()
        return effects + self._interests.settle(())

    def serve_postponed(self) -> list[Effect]:
        """Serve the postponed requests; those that must wait longer are kept again, in order."""
        waiting = self._state.take_postponed()
        return [effect for request in waiting for effect in self.serve_publisher(request)]

    def serve_publisher(self, request: PublisherRequest) -> list[Effect]:
        """Handle a request of a local publisher."""
        if isinstance(request, UnadvertiseRequest):
            return self.unadvertise(request)
        return self._advertise(request) if self._state.takes_clients else rejected(request)

    # --- switching and draining --------------------------------------------------------------------------------------

    def stays_to_move(self, under_way: TreePlanUnderWay) -> dict[str, int]:
        """Return the stays, at home here, of the publishers that the plan moves elsewhere."""
        going = sorted(name for name, move in under_way.moves.items() if move.home_from == self.broker)
        advertisements = self._interests.advertisements
        return {
            name: advertisements[name].connection
            for name in going
            if name in advertisements and advertisements[name].home == self.broker
        }

    def take_over_clients(self, under_way: TreePlanUnderWay) -> list[Effect]:
        """Notify the clients that have moved here that this is their home: publishers may publish here."""
        taken: list[Effect] = [PublisherTaken(*stay) for stay in self._stays_brought(under_way)]
        return taken + self.movers.take_over(under_way)

    def _stays_brought(self, under_way: TreePlanUnderWay) -> list[tuple[str, int]]:
        """Return the stays of the publishers that have moved here."""
        coming = [name for name, move in sorted(under_way.moves.items()) if move.home_to == self.broker]
        advertisements, tables = self._interests.advertisements, self._state.tables[under_way.epoch_to]
        here = [
            name for name in coming if name in advertisements and self._interests.home_in(tables, name) == self.broker
        ]
        return [(name, advertisements[name].connection) for name in here]

    def _ask_again(self, under_way: TreePlanUnderWay) -> list[Effect]:
        """Notify the clients that have moved here again, and allow the publishers to publish: a broker has died.

        The end of a stay may be lost with it, or the confirmation of its beginning. Every broker was prepared, so all
        know the publishers; a second confirmation does no harm.
        """
        confirmed = [AdvertiseConfirmed(*stay) for stay in self._stays_brought(under_way)]
        return [*self.take_over_clients(under_way), *confirmed]

    def continue_drain(self, under_way: TreePlanUnderWay) -> list[Effect]:
        """Send END over each old link for which END has come over all others."""
        old = self._state.tables[under_way.epoch_from]
        awaited = set(old.neighbours) - old.ends_received
        due = [peer for peer in old.neighbours if peer not in old.ends_sent and awaited <= {peer}]
        old.ends_sent.update(due)
        return [Send(peer, End(old.epoch)) for peer in due]

    def note_end(self, tables: RoutingTables, source: str) -> list[Effect]:
        """Note END of a neighbour: nothing more of this epoch comes from it."""
        tables.ends_received.add(source)
        return release_held(self._state, self.must_hold)

    def finish_moves(self, under_way: TreePlanUnderWay) -> None:
        """Record the new homes of moved publishers; stop holding back notifications for moved subscriptions."""
        tables = self._state.tables[under_way.epoch_to]
        self._interests.repairs.find_ended()
        for publisher, known in self._interests.advertisements.items():
            known.home = self._interests.home_in(tables, publisher)
        tables.moved.clear()
        tables.left.clear()
        self.movers.finish(under_way)

    def forget_epoch(self, gone: RoutingTables, under_way: TreePlanUnderWay | None) -> list[Effect]:
        """Settle what waited for the epoch, and serve postponed requests."""
        names = sorted(gone.entries)
        sent: list[Effect] = []
        if under_way is not None and gone.epoch > self._state.epoch:
            sent = self._interests.abort_repair(gone, under_way) + self.movers.release(under_way.arrived)
        elif under_way is not None and gone.dead:
            sent = self._ask_again(under_way)
        if under_way is not None and gone.epoch < self._state.epoch:
            sent += self.movers.drop_stranded(under_way, self._state.tables[self._state.epoch].dead)
            sent += self.movers.release(under_way.going)
        sent += self._end_subscriptions()
        effects = sent + self._interests.forget_ended() + self._interests.forget_dead_homes()
        effects += self._interests.settle([*names, *sorted(set(self._interests.locals) - set(names))])
        if not self._state.takes_clients:
            self._interests.forget_publishers()
        return effects + self.serve_postponed()
