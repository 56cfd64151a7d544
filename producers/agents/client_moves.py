"""The subscriptions of one client that a plan is moving: orders of nodes, connections to the next home, the switch.

In: notes of nodes, messages of both homes. Out: notes, subscriptions at the next home, messages for the client. Which
messages count belongs to :mod:`producers.agents.move_subscription`.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import structlog

from regraft.producers.agents.agent_session import Session, Subscription, Upstream
from regraft.producers.agents.broker_address import UpstreamError
from regraft.producers.agents.client_homes import ClientHomes
from regraft.producers.agents.move_subscription import MovingSubscription
from regraft.producers.nodes.connectors.stamps import Stamps
from regraft.schemas.agent_names import client_of, number_in
from regraft.schemas.agent_note import AgentNote, NoteKind

log = structlog.get_logger(__name__)

KEPT_BYTES_MAX = 64 << 20  # Of one client, from its next home; further messages are lost, and counted.
ANSWER_S_MAX = 90.0  # Without a word about the plan for this long, its end here is unknown.
DRAIN_S_MAX = 75.0  # A node gives up draining after 60 s.
REPEATS_S_MAX = 30.0  # Since the next home has last said that its plan is, or was, under way.
ECHOES = (NoteKind.STAYS, NoteKind.REFUSED, NoteKind.BESIDE)  # Of what the agent itself has said.


@dataclass(slots=True)
class Delivered:
    """A message that a broker delivers to a moving subscription, ``raw`` as the session hands it to the client.

    ``home`` is where it was published, if the overlay has handed it over, else "". With ``epoch`` it was handed over to
    all of the broker's clients, -1 if only to those that get it from there.
    """

    raw: Any
    size: int
    home: str
    mark: int
    epoch: int = -1


Arrived = tuple[MovingSubscription, tuple[str, int]]  # With what the overlay calls it, and the epoch.


class ClientMoves:
    """``moving`` holds, by number, the subscriptions on their way and those of which copies may still come."""

    def __init__(self, session: Session, homes: ClientHomes[Any]) -> None:
        self.moving: dict[int, MovingSubscription] = {}
        self._session, self._homes = session, homes
        self._kept: list[tuple[int, Delivered, int]] = []  # Number, message, the place of one of the next home's own.
        self._kept_bytes = 0
        self._arrived: dict[int, float] = {}  # Those that have moved, and when their next home was last heard of.
        self._before: dict[int, Arrived] = {}  # Those that move on, of which copies may still come.
        self._names: dict[int, tuple[str, int]] = {}  # Number -> the overlay's subscription, epoch.
        self._stayed: dict[int, tuple[str, int]] = {}  # As names, of the last move that was over here.
        self._since_s: dict[int, float] = {}
        self.stamps: Stamps | None = None  # By which messages of the overlay are known.
        self._watching = False
        self._opening = asyncio.Lock()

    @property
    def brokers(self) -> set[str]:
        """The brokers that moving subscriptions leave or go to."""
        return {broker for move in self.moving.values() for broker in (move.home_from, move.home_to)}

    # --- notes -------------------------------------------------------------------------------------------------------

    def take_note(self, upstream: Upstream, note: AgentNote) -> None:
        """Handle what a node says, or the echo of what this agent has said to one."""
        session, number = self._session, number_in(note.subscription)
        if note.kind in ECHOES or client_of(note.subscription) != session.client.name:
            return
        if note.kind is NoteKind.MOVE:
            self._begin(upstream, number, note)
            return
        move = self.moving.get(number)
        if note.kind is NoteKind.HOME and move is not None:
            self._note_home(upstream.broker, number, move)
            return
        if note.kind is NoteKind.SWITCHED and self._stayed.get(number) == (note.subscription, note.epoch):
            self._note_overtaken(upstream.broker, number)
            return
        if move is None or self._names.get(number) != (note.subscription, note.epoch):
            return
        is_old = upstream.broker == move.home_from
        if number in self._arrived:
            if not is_old:
                self._note_arrived(number, move, is_over=note.kind is NoteKind.DRAINED)
            return
        if note.kind is NoteKind.SWITCHED and not is_old and move.switched_to:
            return  # The next home repeats it while the plan is under way; only the old home's word brings this on.
        self._take_step(number, move, note, is_old=is_old)
        if number in self.moving:
            self._since_s[number] = time.monotonic()
        self._finish_if_complete()

    def _take_step(self, number: int, move: MovingSubscription, note: AgentNote, *, is_old: bool) -> None:
        """Take the next step of a move, of which one of its homes has reported."""
        session = self._session
        match note.kind:
            case NoteKind.AWAITED if not is_old and not move.is_counting:
                session.write_note(move.home_to, AgentNote(NoteKind.READY, note.subscription, note.epoch))
            case NoteKind.COUNTING if not is_old and not move.is_counting:
                move.is_counting = True
                session.write_note(move.home_from, AgentNote(NoteKind.READY, note.subscription, note.epoch))
            case NoteKind.READY if is_old:
                move.note_counted_from()
            case NoteKind.READY:
                move.note_counted_to()
            case NoteKind.SWITCHED if is_old:
                move.note_switched_from(note.count, note.marks)
            case NoteKind.SWITCHED:
                move.note_switched_to(note.count, note.marks)
            case NoteKind.DRAINED if is_old:
                move.is_drained = True
            case NoteKind.DRAINED:
                move.is_joined = True
            case NoteKind.ABORTED:
                self._stop(number)

    def _note_arrived(self, number: int, move: MovingSubscription, *, is_over: bool) -> None:
        """Note that the plan is under way at the next home, which may hold back messages until it is over there."""
        self._arrived[number] = time.monotonic()
        move.is_joined = move.is_joined or is_over
        if move.is_over:
            self._forget_arrived(number)
            self._homes.leave_unused()

    def _note_home(self, broker: str, number: int, move: MovingSubscription) -> None:
        """Note that the node of a home has restarted: it knows nothing of the plan, and has begun the subscription."""
        if number in self._arrived:
            if broker == move.home_to:  # What it has held back is lost.
                self._forget_arrived(number)
                self._homes.leave_unused()
        elif broker == move.home_from and move.switched_to:
            move.is_drained = True
            self._finish_if_complete()
        elif broker == move.home_from:
            self._stop(number)
        elif broker == move.home_to and not move.switched_from:
            self._stop_refused(number)
        elif broker == move.home_to:
            self._homes.subscribing = broker
            self._restart(number, broker)

    def _note_overtaken(self, broker: str, number: int) -> None:
        """Restart a subscription that has stayed although its plan was executed: it had switched, or not heard of that.

        Its old home has handed it over, and its next one does not have it.
        """
        subscription = self._session.client.numbered(number)
        if subscription is not None and broker == subscription.home:
            self._session.counts["moves_refused_late"] += 1
            self._restart(number, broker)

    def _restart(self, number: int, broker: str) -> None:
        subscription = self._session.client.numbered(number)
        self._drop(number)
        self._stayed.pop(number, None)
        if subscription is not None:
            self._homes.restart([subscription], broker)
        self._finish_if_complete()
        self._homes.leave_unused()

    def _begin(self, upstream: Upstream, number: int, note: AgentNote) -> None:
        session, subscription = self._session, self._session.client.numbered(number)
        if reason := session.client.stays_because:
            session.write_note(upstream.broker, AgentNote(NoteKind.STAYS, reason=reason.label))
            self._refuse(upstream.broker, note.subscription, note.epoch)
            return
        if session.client.has_ended(number):
            return  # Its node is about to learn that.
        is_here = subscription is not None and subscription.home == upstream.broker
        if not is_here or note.broker not in self._homes.brokers or note.broker == upstream.broker:
            log.warning("order_refused", client=session.client.name, subscription=note.subscription, to=note.broker)
            self._refuse(upstream.broker, note.subscription, note.epoch)
            return
        if (note.subscription, note.epoch) in (self._names.get(number), self._stayed.get(number)):
            if number in self.moving and self.moving[number].is_counting:
                session.write_note(upstream.broker, AgentNote(NoteKind.READY, note.subscription, note.epoch))
            return  # The order is repeated: the answer may have been lost.
        if number in self.moving and number not in self._arrived:
            self._stop(number)  # The end of the plan before has not been heard of.
        before = (self.moving[number], self._names[number]) if number in self._arrived else None
        self._forget_arrived(number)
        if before is not None:
            before[0].is_joined = True  # The plan before is over where the next one begins.
            self._before[number] = before
        self.stamps = Stamps(note.overlay, "")
        self.moving[number] = MovingSubscription(upstream.broker, note.broker)
        self._names[number], self._since_s[number] = (note.subscription, note.epoch), time.monotonic()
        session.run(self._bring(number, note))
        if not self._watching:
            self._watching = True
            session.run(self._watch())

    async def _bring(self, number: int, note: AgentNote) -> None:
        """Subscribe at the next home, too, with the client's own login; if that is refused, the subscription stays."""
        session = self._session
        try:
            upstream = await self._connection_to(note.broker)
        except UpstreamError as error:
            log.warning("move_refused", client=session.client.name, to=note.broker, reason=str(error))
            self._stop_refused(number)
            return
        subscription = session.client.numbered(number)
        if subscription is not None and self._names.get(number) == (note.subscription, note.epoch):
            session.subscribe(upstream, subscription, note.subscription, note.epoch)
        else:
            self._homes.leave_unused()

    async def _connection_to(self, broker: str) -> Any:
        """Return the connection to a broker; all subscriptions that go there share it."""
        async with self._opening:
            return await self._homes.connect_to(broker)

    def refuse(self, broker: str, numbers: set[int]) -> bool:
        """Let those of these subscriptions stay that are on their way to a broker, as it does not take them."""
        here = [number for number in numbers if number in self.moving and self.moving[number].home_to == broker]
        for number in here:
            self._stop_refused(number)
        return bool(here)

    def _stop_refused(self, number: int) -> None:
        """Let a subscription stay, and the plan with it: the next home does not take it."""
        move = self.moving.get(number)
        if move is not None:
            self._refuse(move.home_from, *self._names[number])
        self._stop(number)

    def _refuse(self, broker: str, name: str, epoch: int) -> None:
        self._session.counts["moves_refused"] += 1
        self._session.write_note(broker, AgentNote(NoteKind.REFUSED, name, epoch))

    # --- messages ----------------------------------------------------------------------------------------------------

    def take(self, broker: str, subscription: Subscription, message: Delivered) -> None:
        """Hand a message of a moving subscription to the client, keep it, or leave it out."""
        move, session, number = self.moving[subscription.number], self._session, subscription.number
        home, mark = message.home, message.mark
        if message.epoch >= 0 and not self._is_owed(broker, number, message.epoch):
            return
        before, _ = self._before.get(number, (None, None))
        if before is not None and broker == before.home_to and home and not before.takes_from_next(home, mark):
            return
        if number in self._arrived:
            if broker == move.home_to and (not home or move.takes_from_next(home, mark)):
                session.deliver(subscription, message.raw)
            if move.is_over:
                self._forget_arrived(number)
        elif broker == move.home_from:
            if move.takes_from_old(home, mark):
                session.deliver(subscription, message.raw)
        elif self._kept_bytes + message.size > KEPT_BYTES_MAX:
            session.counts["kept_overflow"] += 1
        else:
            self._kept.append((number, message, -1 if home else move.keep_own(mark)))
            self._kept_bytes += message.size

    def _is_owed(self, broker: str, number: int, epoch: int) -> bool:
        """Return True if a message that a node has handed over to all is for this subscription, too."""
        move = self.moving[number]
        return epoch < self._names[number][1] if broker == move.home_from else move.is_joined

    # --- the end of a move -------------------------------------------------------------------------------------------

    def _finish_if_complete(self) -> None:
        """Take all from the next home once every moving subscription may: a client's messages keep their order."""
        going = {number: move for number, move in self.moving.items() if number not in self._arrived}
        if not going or not all(move.is_complete for move in going.values()):
            return
        session, now_s = self._session, time.monotonic()
        new = {number: move.finish() for number, move in going.items()}
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        for number, move in going.items():
            self._arrived[number] = now_s
            self._before.pop(number, None)
            subscription = session.client.numbered(number)
            if subscription is not None:
                subscription.home = self._homes.subscribing = move.home_to
                if move.home_from in self._homes.upstreams:
                    session.unsubscribe(self._homes.upstreams[move.home_from], subscription)
        for number, message, place in kept:
            subscription = session.client.numbered(number)
            if subscription is None or number not in going:
                continue
            home = message.home
            if going[number].takes_from_next(home, message.mark) if home else place in new[number]:
                session.deliver(subscription, message.raw)
        session.deliver_now()
        session.counts["subscriptions_moved"] += len(going)
        for number in [each for each, move in going.items() if move.is_over]:
            self._forget_arrived(number)
        self._homes.leave_unused()

    def _forget_arrived(self, number: int) -> None:
        if self._arrived.pop(number, None) is not None:
            self._drop(number)

    def _drop(self, number: int) -> None:
        self.moving.pop(number, None)
        self._before.pop(number, None)
        self._names.pop(number, None)
        self._since_s.pop(number, None)
        self._kept = [each for each in self._kept if each[0] != number]
        self._kept_bytes = sum(message.size for _, message, _ in self._kept)

    def _stop(self, number: int) -> None:
        """Let a subscription stay where it is: the plan is over, or the next home refuses it."""
        move, session = self.moving.get(number), self._session
        subscription = session.client.numbered(number)
        if number in self._names:
            self._stayed[number] = self._names[number]
        before = self._before.get(number)
        self._drop(number)
        if before is not None and before[0].awaits_repeats:
            self.moving[number], self._names[number] = before
            self._arrived[number] = time.monotonic()
        if move is not None and subscription is not None and move.home_to in self._homes.upstreams:
            session.unsubscribe(self._homes.upstreams[move.home_to], subscription)
        self._finish_if_complete()
        self._homes.leave_unused()

    def forget(self, subscription: Subscription) -> None:
        """Forget a subscription that the client has ended."""
        self._arrived.pop(subscription.number, None)
        self._stayed.pop(subscription.number, None)
        if subscription.number in self.moving:
            self._drop(subscription.number)
            self._finish_if_complete()  # The others need not wait for it.
            self._homes.leave_unused()

    def lose(self, broker: str) -> None:
        """Note that a broker is gone: what was to go there stays, what was to leave it has left, or restarts."""
        session = self._session
        for number, move in list(self.moving.items()):
            if number in self._arrived:
                if broker == move.home_to:  # It restarts elsewhere, and nothing more of its last move comes.
                    self._forget_arrived(number)
                continue
            if broker not in (move.home_from, move.home_to):
                continue
            subscription = session.client.numbered(number)
            if broker == move.home_from and move.switched_to:
                move.is_drained = True
            elif broker == move.home_to and not move.switched_from:
                self._stop_refused(number)
            elif subscription is not None:
                self._drop(number)
                self._homes.restart([subscription], move.home_to if broker == move.home_from else move.home_from)
        self._finish_if_complete()

    async def _watch(self) -> None:
        """Give up what takes longer than any plan: a node has been restarted, or a note was lost."""
        while self.moving:
            await asyncio.sleep(1.0)
            now_s = time.monotonic()
            if self._session.reads_nothing:  # What nodes have said waits in the connections.
                self._since_s = dict.fromkeys(self._since_s, now_s)
                self._arrived = dict.fromkeys(self._arrived, now_s)
            for number in [each for each, at_s in self._arrived.items() if now_s - at_s > self._wait_s_max(each)]:
                self._session.counts["repeats_missing"] += 1
                self._forget_arrived(number)
            for number, move in list(self.moving.items()):
                if number not in self._arrived:
                    self._give_up_late(number, move, now_s - self._since_s[number])
        self._watching = False
        self._homes.leave_unused()

    def _wait_s_max(self, number: int) -> float:
        return REPEATS_S_MAX if self.moving[number].is_joined else ANSWER_S_MAX

    def _give_up_late(self, number: int, move: MovingSubscription, quiet_s: float) -> None:
        if move.switched_to and not move.is_drained and quiet_s > DRAIN_S_MAX:
            move.is_drained = True
            self._session.counts["drains_given_up"] += 1
            self._finish_if_complete()
        elif quiet_s > ANSWER_S_MAX:
            subscription = self._session.client.numbered(number)
            self._session.counts["moves_given_up"] += 1
            if subscription is not None:
                self._restart(number, subscription.home)
