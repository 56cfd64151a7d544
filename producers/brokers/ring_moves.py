"""Users of a Chord ring that a plan moves: notified at the old home, served at both, handed over, or cut off.

In: requests of local users, and messages between homes about them. Out: effects. A moving user is notified at its old
home, which continues to serve it in epoch k. It also attaches to its next home, which serves it in k+1 but holds that
back until the old home has handed over all of k. Until the next home takes it over, the user sends new requests to both
homes, and a subscription is confirmed once both have confirmed it. The plan itself belongs to
:mod:`producers.brokers.ring_change`.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.producers.brokers.broker_messages import CancelRequest, ClientDropped, Effect, SubscribeRequest
from regraft.producers.brokers.epoch_change import pop_late, release_held
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_endings import TopicEndings
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    NotComing,
    UserDrained,
    UserMoves,
    UserTaken,
)
from regraft.producers.brokers.ring_tables import RingTables, TopicSubscription
from regraft.producers.brokers.ring_trees import TopicTrees
from regraft.schemas.command import Command


class MovingUsers:
    """The users that the plan under way brings here or moves elsewhere."""

    def __init__(self, state: RingState) -> None:
        self._state = state
        self._endings = TopicEndings(state)
        self._trees = TopicTrees(state)
        self.broker = state.broker

    def plan_of(self, command: Command) -> RingPlanUnderWay:
        """Return the plan that a prepare begins, with the users that it moves from and to this broker."""
        # Users of a lost broker connect to their next homes like any others when the plan is executed.
        moves = {
            move.client: move
            for move in command.moves
            if self.broker in (move.home_from, move.home_to) and move.home_from not in command.lost_brokers
        }
        here = {local.user: local.connection for local in self._state.locals.values() if not local.has_ended}
        going = {name for name, move in moves.items() if move.home_from == self.broker}
        coming = {name for name, move in moves.items() if move.home_to == self.broker}
        return RingPlanUnderWay(
            command.plan,
            command.epoch_from,
            command.epoch_to,
            moves,
            is_ring_kept=not command.id_moves and not command.lost_brokers,
            leaving={user: here[user] for user in sorted(going) if user in here},
            awaited_users=coming - going,
        )

    # --- users to be moved ----------------------------------------------------------------------------

    def notify_late(self, request: SubscribeRequest) -> list[Effect]:
        """Notify a user to be moved if its request comes too late to be handed over from here."""
        under_way = self._state.under_way
        if under_way is None or not under_way.is_active:
            return []
        if under_way.leaving.get(request.client) != request.connection:
            return []
        return [UserDrained(request.client, request.subscription, under_way.moves[request.client].home_to)]

    def notify_leaving(self, tables: RingTables, users: Iterable[str]) -> list[Effect]:
        """Notify users to be moved; for those that are not here, notify their next homes not to wait."""
        under_way = self._state.under_way
        assert under_way is not None
        effects: list[Effect] = []
        for user in users:
            home_to, connection = under_way.moves[user].home_to, under_way.leaving.get(user)
            if connection is not None:
                under_way.unacknowledged[user] = self._state.now_ms
                effects.append(UserMoves(user, connection, home_to, tables.epoch))
            else:  # It has left, or is elsewhere and stays there.
                effects += self._notify_next_home(tables, NotComing(tables.epoch, home_to, user))
        return effects

    def _notify_next_home(self, tables: RingTables, message: NotComing) -> list[Effect]:
        if message.target == self.broker:
            return self.stop_awaiting(message.user)
        return self._state.send_onward(tables, message)

    def confirm_move(self, request: MoveAckRequest) -> list[Effect]:
        """Note that a user has acknowledged its move, at its old or its next home."""
        under_way = self._state.under_way
        if under_way is not None and self._stay_of(under_way, request.user) == request.connection:
            under_way.unacknowledged.pop(request.user, None)
        return []

    def note_gone(self, request: GoneRequest) -> list[Effect]:
        """Forget a user of the plan that has disconnected; if it returns here, it is a user like any other."""
        under_way = self._state.under_way
        if under_way is not None and self._stay_of(under_way, request.user) == request.connection:
            under_way.leaving.pop(request.user, None)
            under_way.arrived_users.pop(request.user, None)
            under_way.unacknowledged.pop(request.user, None)
        return []

    def users_of_plan(self) -> dict[str, int]:
        """Return the users of the plan under way at home here in the epoch that is stamped, with their stays."""
        plan = self._state.under_way
        if plan is None:
            return {}
        return plan.arrived_users if plan.is_active else plan.leaving

    def take_from_the_dead(self, under_way: RingPlanUnderWay, gone: RingTables) -> list[Effect]:
        """Notify users taken from a dead home again, once the old epoch is retired: that home confirms nothing more."""
        return [
            UserTaken(user) for user in sorted(under_way.arrived_users) if gone.is_gone(under_way.moves[user].home_from)
        ]

    def drop_stranded(self, under_way: RingPlanUnderWay, tables: RingTables) -> list[Effect]:
        """End the stays of users whose next home has died: nobody has them once the old epoch is retired."""
        return [
            ClientDropped(user, connection, is_over=True)
            for user, connection in sorted(under_way.leaving.items())
            if tables.is_gone(under_way.moves[user].home_to)
        ]

    def is_of_plan(self, user: str, connection: int) -> bool:
        """Return True if the plan under way moves this user away or has brought it here."""
        under_way = self._state.under_way
        return under_way is not None and self._stay_of(under_way, user) == connection

    def _stay_of(self, under_way: RingPlanUnderWay, user: str) -> int | None:
        """Return the connection of a user that is to leave or has arrived, None for others."""
        return under_way.leaving.get(user, under_way.arrived_users.get(user))

    # --- users that come ----------------------------------------------------------------------------------------------

    def attach(self, request: AttachRequest) -> list[Effect]:
        """Accept, in the new epoch only, a user that the plan under way brings here, and its later subscriptions.

        The subscriptions it arrives with are in place before anything is published in that epoch; later ones must be
        confirmed.
        """
        under_way = self._state.under_way
        if request.epoch not in self._state.tables:
            return self._state.keep_early(request.epoch, None, request)
        if under_way is None or request.epoch != under_way.epoch_to:
            return []
        is_first = request.user in under_way.awaited_users
        if not is_first and under_way.arrived_users.get(request.user) != request.connection:
            return []
        under_way.awaited_users.discard(request.user)
        under_way.arrived_users[request.user] = request.connection
        tables, old = self._state.tables[under_way.epoch_to], self._state.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for moved in request.subscriptions:
            local = TopicSubscription(
                moved.subscription,
                request.user,
                request.connection,
                moved.topic,
                {tables.epoch},
                is_confirmed=is_first,
                has_arrived=True,
                epoch_min=tables.epoch,
            )
            self._state.locals[moved.subscription] = local
            old.awaited[moved.subscription] = request.user
            effects += self._trees.issue(tables, local)
        return effects

    def take_over(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """Notify the users that have arrived that this is their home; this broker has just switched.

        From now on each must acknowledge that, and later that it has all of the old epoch; this broker waits for both.
        """
        under_way.unacknowledged = dict.fromkeys(under_way.arrived_users, self._state.now_ms)
        under_way.handed_over = dict.fromkeys(under_way.handed_over, self._state.now_ms)
        effects: list[Effect] = [UserTaken(name) for name in sorted(under_way.arrived_users)]
        for user in sorted(under_way.unflushed):
            effects += self._endings.hand_over(under_way, user)
        return effects

    def stop_awaiting(self, user: str) -> list[Effect]:
        """Stop waiting for a user that does not come, or whose old home has ended its stay after it arrived."""
        if self._state.under_way is not None:
            self._state.under_way.awaited_users.discard(user)
            self._state.under_way.arrived_users.pop(user, None)
        return self._end_user(user, only_arrived=True)

    def stop_awaiting_dead(self) -> list[Effect]:
        """Stop waiting for what dead brokers were to hand over to users that came from them."""
        under_way = self._state.under_way
        if under_way is not None:
            old, live = self._state.tables[under_way.epoch_from], self._state.epochs()
            gone = {user for user, move in under_way.moves.items() if any(one.is_gone(move.home_from) for one in live)}
            old.awaited = {name: user for name, user in old.awaited.items() if user not in gone}
        return release_held(self._state, self._state.must_hold)

    def note_drained(self, request: DrainedRequest) -> list[Effect]:
        """Stop holding for an arrived subscription: its old home has handed over everything."""
        for tables in self._state.tables.values():
            tables.awaited.pop(request.subscription, None)
        return release_held(self._state, self._state.must_hold)

    # --- users that do not answer -------------------------------------------------------------------------------------

    def drop_unresponsive(self, under_way: RingPlanUnderWay) -> list[Effect]:
        """End the stay of users that did not acknowledge their move, or the end of the old epoch, in time."""
        effects: list[Effect] = []
        late = pop_late(under_way.unacknowledged, self._state.now_ms)
        if not under_way.is_active:
            for user in late:
                connection = under_way.leaving.pop(user)
                tables = self._state.tables[under_way.epoch_to]
                effects += [
                    ClientDropped(user, connection, is_over=True),
                    *self._end_user(user, only_arrived=False),
                ]
                effects += self._notify_next_home(tables, NotComing(tables.epoch, under_way.moves[user].home_to, user))
            return effects
        awaited = self._state.tables[under_way.epoch_from].awaited
        drained_late = [
            user for user in pop_late(under_way.handed_over, self._state.now_ms) if user in awaited.values()
        ]
        for user in dict.fromkeys([*late, *drained_late]):
            stay = under_way.arrived_users.pop(user, None)
            effects += [] if stay is None else [ClientDropped(user, stay, is_over=True)]
            effects += self._end_user(user, only_arrived=True)
        return effects

    def _end_user(self, user: str, *, only_arrived: bool) -> list[Effect]:
        """End all subscriptions of a user here at once; with ``only_arrived`` only those that arrived by the plan."""
        effects: list[Effect] = []
        for local in list(self._state.locals.values()):
            if local.user == user and not local.has_ended and (local.has_arrived or not only_arrived):
                effects += self._trees.cancel(CancelRequest(local.subscription))
        for tables in self._state.tables.values():
            tables.awaited = {name: owner for name, owner in tables.awaited.items() if owner != user}
        return effects + release_held(self._state, self._state.must_hold)
