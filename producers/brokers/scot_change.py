"""The two-epoch transition of one broker of a structured cyclic overlay: prepare, activate, drain, retire, or abort.

In: commands of the controller, markers, publishers that leave, neighbours that die. Out: effects. What all overlays
have in common is in :mod:`producers.brokers.two_epochs`.

Tables of the new epoch start empty: each home issues its subscriptions and advertises its publishers in it. But if the
plan moves publishers alone, both epochs have the same subscriptions, and only publishers are advertised. A publisher
that moves is announced to its next home by the old one. Deliveries of the new epoch wait until the old one is drained
here, and those to a subscriber that has moved here until it is drained everywhere, so that none overtakes one of the
old epoch. A detour may lead a notification over any links of the old epoch, but to no cluster twice; so the end of that
epoch goes round in rounds, by how often notifications have crossed between clusters.
"""

from __future__ import annotations

from collections.abc import Collection

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Cancelled,
    Deliver,
    Effect,
    FlowEnd,
    PublisherComes,
    PublisherTaken,
    Send,
    UnadvertiseRequest,
)
from regraft.producers.brokers.content_change import ContentChange
from regraft.producers.brokers.epoch_change import release_held
from regraft.producers.brokers.scot_interests import ScotInterests
from regraft.producers.brokers.scot_tables import ScotPlanUnderWay, ScotState, ScotTables
from regraft.schemas.command import Command


class ScotChange(ContentChange[ScotTables, ScotPlanUnderWay]):
    """How the tables of one broker change. A :class:`producers.brokers.epoch_change.EpochChange`."""

    def __init__(self, state: ScotState, interests: ScotInterests) -> None:
        super().__init__(state, interests)
        self._interests = interests

    # --- deaths ------------------------------------------------------------------------------------------------------

    def _note_deaths(self, deaths: Collection[tuple[int, str]]) -> list[Effect]:
        effects: list[Effect] = []
        under_way = self._state.under_way
        for epoch, peer in sorted(deaths):
            effects += self._interests.note_death(self._state.tables[epoch], peer)
            if under_way is not None:
                under_way.expected = {name: home for name, home in under_way.expected.items() if home != peer}
        effects += self.drop_stranded()
        if under_way is not None and self._state.epoch == under_way.epoch_to:
            effects += self._allow_orphans(under_way)
        return effects + release_held(self._state, self.must_hold)

    # --- what is held back -------------------------------------------------------------------------------------------

    def must_hold(self, delivery: Deliver) -> bool:
        """Return True if an older epoch may still bring earlier notifications, here or at an old home."""
        epoch_stamped = delivery.notification.epoch
        return self.movers.must_hold(delivery) or any(
            self._state.epoch <= epoch or not tables.is_drained
            for epoch, tables in self._state.tables.items()
            if epoch < epoch_stamped
        )

    # --- preparing ---------------------------------------------------------------------------------------------------

    def prepare(self, command: Command) -> str | list[Effect]:
        """Begin the plan, or return why it is impossible or this broker cannot take part."""
        target = self._state.tables[self._state.epoch].configuration.agreed_target(command)
        if isinstance(target, str):
            return target
        return self._reason_against(command, target) or self._open_tables(command, target)

    def _reason_against(self, command: Command, target: ScotConfiguration) -> str:
        """Return which move is impossible, or which clients a leaving broker still has; empty if there is none."""
        older = self._state.tables[self._state.epoch]
        present, keeps = older.configuration, self._keeps_interest(command, older, target)
        for move in command.moves:
            if move.home_to not in target.brokers:
                return f"{move.client} cannot move to {move.home_to}: it is not in the overlay"
            if keeps and move.home_from == self.broker and self._interests.only_subscribes(move.client):
                why = "the plan changes no slot and no link, so that all subscriptions stay"
                return f"subscriber {move.client} cannot move to {move.home_to}: {why}"
            both = {move.home_from, move.home_to}
            if not (both <= set(target.brokers) or both <= set(present.brokers) or move.home_from != self.broker):
                return f"{move.client} cannot move to {move.home_to}: no overlay contains both this and {self.broker}"
        return self._reason_to_stay(command, target)

    def _open_tables(self, command: Command, target: ScotConfiguration) -> list[Effect]:
        """Begin the plan, with tables that all homes fill at once."""
        older = self._state.tables[self._state.epoch]
        lost, keeps = older.configuration.change_of(command).lost, self._keeps_interest(command, older, target)
        under_way = ScotPlanUnderWay.of(command)
        under_way.keeps_interest = keeps
        tables = ScotTables(self.broker, target, lost=lost, continued=older if keeps else None)
        self._begin_plan(command, under_way, tables)
        coming = {name: move.home_from for name, move in under_way.moves.items() if move.home_to == self.broker}
        under_way.expected = {name: home for name, home in coming.items() if home != self.broker}
        effects = [] if keeps else self.movers.notify_leaving(under_way) + self._issue_again(under_way, older, tables)
        return effects + self._move_publishers(under_way, older, tables)

    def tables_outside(self, command: Command) -> ScotTables:
        """Return an outsider's tables of the overlay that an install names."""
        overlay = ScotConfiguration.of_install(command.epoch_to, command.id_moves, command.links_added)
        return ScotTables(self.broker, overlay, is_outside=True)

    @staticmethod
    def _keeps_interest(command: Command, older: ScotTables, target: ScotConfiguration) -> bool:
        """Return True if a plan moves publishers alone.

        All brokers must come to the same conclusion, so it depends only on what all have agreed on. A broker gets only
        the moves from and to it.
        """
        is_same = older.configuration.at_epoch(target.epoch).digest == target.digest
        return is_same and not command.subscribers_moved and not command.brokers_joined

    def _issue_again(self, under_way: ScotPlanUnderWay, older: ScotTables, tables: ScotTables) -> list[Effect]:
        """Issue the subscriptions that stay here in the new epoch."""
        effects: list[Effect] = []
        for name, local in sorted(self._interests.locals.items()):
            # What an ended subscription is owed is already in the homes' queues, so it belongs to the old epoch.
            if local.has_ended or name in under_way.going or tables.is_outside:
                continue
            if not local.is_confirmed:
                local.unconfirmed_epochs.add(tables.epoch)
            under_way.waiting_for.add(name)
            effects += self._interests.issue(tables, name, older.entries[name].filter_)
        return effects

    def _move_publishers(self, under_way: ScotPlanUnderWay, older: ScotTables, tables: ScotTables) -> list[Effect]:
        """Advertise publishers that stay in the new epoch, and announce those that move to their next homes."""
        effects: list[Effect] = []
        going = {
            name
            for name, move in under_way.moves.items()
            if move.home_from == self.broker and move.home_to != self.broker
        }
        staying = [(name, one) for name, one in sorted(older.hosted.items()) if name not in going]
        for name, one in [*sorted(older.earlier.items()), *staying]:
            if not tables.is_outside:
                stay = name, one.filter_, one.connection
                effects += self._interests.host(tables, *stay, is_brought=name in older.earlier)
                under_way.waiting_for.add(name)
        for name in sorted(going):
            entry = older.hosted.get(name)
            filter_, connection = (None, -1) if entry is None else (entry.filter_, entry.connection)
            under_way.announced[name] = connection
            effects += self._announce(under_way, name, connection, filter_)
        return effects

    def _announce(self, under_way: ScotPlanUnderWay, name: str, connection: int, filter_: object) -> list[Effect]:
        """Announce a publisher to its next home, over an overlay that contains both homes."""
        home = under_way.moves[name].home_to
        both = [one for one in (under_way.epoch_to, under_way.epoch_from) if self._is_in(one, home)]
        message = PublisherComes(under_way.epoch_to, name, connection, home, filter_, both[0])  # type: ignore[arg-type]
        return self.pass_on(message)

    def _is_in(self, epoch: int, home: str) -> bool:
        overlay = self._state.tables[epoch].configuration.neighbours
        return self.broker in overlay and home in overlay

    def pass_on(self, message: PublisherComes) -> list[Effect]:
        """Send an announcement one hop further."""
        path = self._state.tables[message.epoch_of_path].configuration.static_route(self.broker, message.home)
        return [Send(path[1], message)]

    def note_arrival(self, message: PublisherComes) -> list[Effect]:
        """Become the home of an announced publisher, or note that it will not come; pass other announcements on."""
        if message.home != self.broker:
            epoch = message.epoch_of_path
            # A rival's plan for the same epoch may fit no overlay here; both plans will be aborted.
            return self.pass_on(message) if epoch in self._state.tables and self._is_in(epoch, message.home) else []
        under_way, tables, effects = self._state.under_way, self._state.tables[message.epoch], list[Effect]()
        if message.filter_ is not None:
            stay = message.publisher, message.filter_, message.connection
            effects += self._interests.host(tables, *stay, is_brought=True)
        elif message.connection >= 0:
            effects += self._interests.unhost(tables, message.publisher, message.connection)
        if under_way is not None and message.publisher in under_way.expected:
            del under_way.expected[message.publisher]
            if message.filter_ is not None:
                under_way.waiting_for.add(message.publisher)
        return effects

    # --- publishers that come and end --------------------------------------------------------------------------------

    def advertise(self, request: AdvertiseRequest) -> list[Effect]:
        """Become the home of a publisher in all live epochs."""
        effects: list[Effect] = []
        for tables in self._state.epochs():
            effects += self._interests.host(tables, request.publisher, request.filter_, request.connection)
        return effects + self._interests.allow(request.publisher)

    def unadvertise(self, request: UnadvertiseRequest) -> list[Effect]:
        """Forget a publisher that has ended; if it is moving to another home, notify that."""
        under_way, effects = self._state.under_way, self.note_leave(request)
        self._interests.may_publish.discard((request.publisher, request.connection))
        if under_way is not None and under_way.announced.get(request.publisher) == request.connection:
            effects += self._announce(under_way, request.publisher, request.connection, None)
        for tables in self._state.epochs():
            effects += self._interests.unhost(tables, request.publisher, request.connection)
        return effects

    # --- switching and draining --------------------------------------------------------------------------------------

    def stays_to_move(self, under_way: ScotPlanUnderWay) -> dict[str, int]:
        """Return the stays, at home here, of the publishers that this broker has announced to their next homes."""
        older, announced = self._state.tables[under_way.epoch_from], under_way.announced
        here = {name: one.connection for name, one in sorted(older.hosted.items())}
        return {name: connection for name, connection in here.items() if announced.get(name) == connection}

    def take_over_clients(self, under_way: ScotPlanUnderWay) -> list[Effect]:
        """Notify the clients that have moved here that this is their home."""
        coming = [name for name, move in sorted(under_way.moves.items()) if move.home_to == self.broker]
        stays = [stay for name in coming if (stay := self._interests.stay_brought(name)) is not None]
        self._interests.may_publish.update(stays)
        taken: list[Effect] = [PublisherTaken(*stay) for stay in stays]
        return taken + self._allow_orphans(under_way) + self.movers.take_over(under_way)

    def _allow_orphans(self, under_way: ScotPlanUnderWay) -> list[Effect]:
        """Allow publishers that moved here from a dead home to publish: that home may have died before doing so.

        All brokers were prepared, so their region knows them in the new epoch. A second confirmation does no harm.
        """
        dead, moves = self._state.tables[under_way.epoch_from].dead, sorted(under_way.moves.items())
        orphans = [name for name, move in moves if move.home_to == self.broker and move.home_from in dead]
        stays = [stay for name in orphans if (stay := self._interests.stay_brought(name)) is not None]
        return [AdvertiseConfirmed(*stay) for stay in stays]

    def continue_drain(self, under_way: ScotPlanUnderWay) -> list[Effect]:
        """Send the markers that are due."""
        old = self._state.tables[under_way.epoch_from]
        return [Send(peer, FlowEnd(old.epoch, crossings)) for peer, crossings in old.ends_due()]

    def note_flow_end(self, tables: ScotTables, source: str, message: FlowEnd) -> list[Effect]:
        """Note that a neighbour sends nothing more with this many crossings or fewer."""
        tables.ended[source] = max(tables.ended.get(source, 0), message.crossings + 1)
        return release_held(self._state, self.must_hold)

    def finish_moves(self, under_way: ScotPlanUnderWay) -> None:
        """Stop holding back notifications for subscriptions that have moved here."""
        self.movers.finish(under_way)

    def forget_epoch(self, gone: ScotTables, under_way: ScotPlanUnderWay | None) -> list[Effect]:
        """Stop waiting for confirmations of the epoch; forget subscriptions whose home is elsewhere."""
        effects: list[Effect] = []
        if under_way is not None:
            is_retired = gone.epoch < self._state.epoch
            dead = self._state.tables[self._state.epoch].dead
            effects += self.movers.drop_stranded(under_way, dead) if is_retired else []
            effects += self.movers.release(under_way.going if is_retired else under_way.arrived)
        effects += self._end_subscriptions()
        for name, local in list(self._interests.locals.items()):
            if local.has_ended and not any(name in tables.entries for tables in self._state.epochs()):
                del self._interests.locals[name]
                effects.append(Cancelled(name))
        effects += self._interests.leave_epoch(gone)
        for publisher in list(gone.hosted):
            effects += self._interests.allow(publisher)
        self._interests.forget_departed()
        return effects
