"""The subscriptions of clients beside agents at one node, and what their agents learn when a plan moves them.

In: interest of their queue groups, effects of the core, notes of agents. Out: requests to the core, notes. A broker's
own clients get what is published there without the node. So the node counts what of that is of the old epoch, from
where the agent begins to count, too: the agent then knows which copies are the same message.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regraft.producers.brokers.broker_messages import (
    ReadyRequest,
    SubscriberAwaited,
    SubscriberEffect,
    SubscriberMoves,
    SubscriberTaken,
)
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.match_content import Filter, MatchIndex
from regraft.producers.nodes.connectors.connector import NoteLine
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.schemas.agent_names import FLUSH, client_beside, client_of
from regraft.schemas.agent_note import MARKS_MAX, AgentNote, NoteKind, mark_of
from regraft.schemas.command import Command
from regraft.schemas.stay_reasons import StayReason, reason_of

ARRIVAL_S_MAX = 120.0  # Agents give up a move before.
READY_S_MAX = 8.0  # Within a plan's limit, so that it is aborted with a reason.
SAY_AGAIN_S = 10.0  # Until the plan is over, agents learn this often that it is under way.
REST_S = 600.0  # For this long, a client that could not be moved holds up no other plan.
NOWHERE: tuple[str, tuple[str, ...]] = ("", ())
CANNOT = "the agent of {name} cannot take it to its next home: see the agent's log"
LATE = (
    "the agent of {name} has not had it ready at {home_to} within {seconds:g} s: the agent is gone or may not read "
    "what nodes write to it, or the broker or node of its old or next home is behind (broker_takes_few, broker_slow)"
)
STAYING_MAX = 10_000  # Clients that stay; of further ones plans may try to move some.


@dataclass(slots=True)
class _Beside:
    """A subscription here; ``epoch`` is that of the plan that brings it or moves it away, -1 if none does.

    ``count`` is how many local publications of before that epoch it matches, since the agent began to count.
    """

    client: str
    group: str
    filter_: Filter
    epoch: int = -1
    is_coming: bool = False
    is_going: bool = False
    home_to: str = ""
    is_awaited: bool = False
    is_counted: bool = False
    is_switched: bool = False
    was_under_way: bool = False
    count: int = 0
    marks: deque[int] = field(default_factory=lambda: deque(maxlen=MARKS_MAX))
    since_s: float = 0.0


class _Stay(NamedTuple):
    """Until when a client stays, and why, None if its agent gives no reason."""

    until_s: float
    reason: StayReason | None


class AgentClients:
    """``on_home`` is called with a subscription, and its filter, that has this broker as its home from now on;
    the filter is None if it has ended before.

    ``on_refused`` is called with why an agent does not bring one to where the plan under way wants it, and
    ``on_publishes`` with a client here that should be known as a publisher.
    """

    def __init__(
        self, broker: str, ask: Callable[[ReadyRequest], None], on_home: Callable[[str, Filter | None], None]
    ) -> None:
        self.on_refused: Callable[[str], None] = lambda _reason: None
        self.on_publishes: Callable[[str], None] = lambda _client: None
        self._broker, self._ask, self._on_home = broker, ask, on_home
        self._line: NoteLine | None = None
        self._subscriptions: dict[str, _Beside] = {}
        self._clients: Counter[str] = Counter()  # How many of these each has.
        self._near: dict[str, tuple[str, tuple[str, ...]]] = {}  # Clients -> their nearest broker, all they may go to.
        self._moving: dict[str, _Beside] = {}  # Those that the plan under way brings or moves away.
        self._counted = MatchIndex()  # The same, by what they match.
        self._followed: tuple[int, BrokerPhase] | None = None
        self._staying: dict[str, _Stay] = {}  # Clients that stay.
        self._left: dict[str, int] = {}  # Those that have ended since the plan under way, to an epoch, brought them.
        self._said_s = 0.0  # When agents last learned that the plan is not over.

    def connect(self, line: NoteLine | None, on_refused: Callable[[str], None]) -> None:
        """Reach agents by this line from now on; None if the broker has none."""
        self._line, self.on_refused = line, on_refused
        if line is not None:
            line.on_note, line.on_open = self._take_note, self._say_again

    # --- interest ----------------------------------------------------------------------------------------------------

    def begin(self, name: str, group: str, filter_: Filter, epoch: int = -1) -> None:
        """Note a subscription here; the plan to ``epoch`` brings it, unless that is -1."""
        is_coming = epoch >= 0
        self._forget(name)
        self._left.pop(name, None)
        beside = _Beside(client_of(name), group, filter_, epoch, is_coming, since_s=time.monotonic())
        self._subscriptions[name] = beside
        self._clients[beside.client] += 1
        if beside.is_coming:
            self._begin_move(name, beside)
        else:
            self._write(name, NoteKind.HOME, 0)

    def forgotten(self) -> list[str]:
        """Return subscriptions that no plan brings here any more although the broker reports them.

        So it is if this overlay began afresh while agents kept what an earlier one had moved.
        """
        now_s = time.monotonic()
        late = [name for name, each in self._moving.items() if now_s - each.since_s > ARRIVAL_S_MAX]
        return [name for name in late if self._moving[name].is_coming and not self._moving[name].was_under_way]

    def end(self, name: str) -> tuple[bool, bool]:
        """Forget a subscription; return whether the core has to end it, and whether it is registered as being here."""
        beside = self._forget(name)
        self._end_move(name)
        if beside is None:
            return False, False
        if beside.is_coming:
            self._left[name] = beside.epoch
        self._forget_staying(beside.client)
        has_gone = beside.is_going and beside.is_switched
        return not has_gone, not has_gone and (beside.is_switched or not beside.is_coming)

    def _forget_staying(self, client: str) -> None:
        """Forget after a while that a client stays if it has no subscription left; it may only have restarted."""
        if client in self._staying and not self.is_here(client):
            until_s, reason = self._staying[client]
            self._staying[client] = _Stay(min(until_s, time.monotonic() + REST_S), reason)

    def _forget(self, name: str) -> _Beside | None:
        beside = self._subscriptions.pop(name, None)
        if beside is not None:
            self._clients[beside.client] -= 1
            if not self._clients[beside.client]:
                del self._clients[beside.client]
                self._near.pop(beside.client, None)
        return beside

    def is_here(self, client: str) -> bool:
        """Return True if a client beside an agent has a subscription here."""
        return client in self._clients

    def near(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the broker that is nearest to a subscription's client, and all it may go to; empty if not known."""
        return self._near.get(client_of(name), NOWHERE) if name in self._subscriptions else NOWHERE

    def note_named(self, client: str) -> None:
        """Let a client's agent name it in its messages: all brokers know it as a publisher."""
        if self.is_here(client):
            self._write(f"{client}.0", NoteKind.NAMED, 0)

    def may_move(self, name: str) -> bool:
        """Return True if a plan may move a subscription from here."""
        return name in self._subscriptions and self._line is not None and client_of(name) not in self._staying

    def reason_to_stay(self, name: str) -> StayReason | None:
        """Return why no plan may move a subscription from here, None if that is not known, or one may."""
        stay = self._staying.get(client_of(name)) if name in self._subscriptions else None
        return stay.reason if stay is not None else None

    def may_obey(self, command: Command) -> bool:
        """Return True if all that a plan moves away from here is beside agents, and may move or has left."""
        moved = [move.client for move in command.moves if move.home_from == self._broker]
        is_emptied = any(move.home_from == self._broker for move in command.subscribers_moved)
        staying = [name for name in moved if not self.may_move(name)]
        return not is_emptied and all(client_beside(name) and name not in self._subscriptions for name in staying)

    def groups_of(self, subscriptions: Collection[str]) -> frozenset[str]:
        """Return the queue groups of those subscriptions that are beside agents."""
        here = self._subscriptions
        return frozenset(here[name].group for name in subscriptions if name in here) if here else frozenset()

    def clients_of(self, subscriptions: Sequence[str]) -> list[str]:
        """Return the client of each subscription that may move, "" for others; empty if there is no agent here."""
        here, staying = self._subscriptions, self._staying
        if not here:
            return []
        beside = (here.get(name) for name in subscriptions)
        return ["" if each is None or each.client in staying else each.client for each in beside]

    def arriving_among(self, subscriptions: Sequence[str]) -> tuple[tuple[str, ...], bool]:
        """Return those subscriptions that a plan is bringing here, and whether a delivery is for them alone.

        Others get their messages with other deliveries. Those that have ended since they came do not count, so that it
        may be for nobody.
        """
        moving, left = self._moving, self._left
        if not moving and not left:
            return (), False
        arriving = tuple(name for name in subscriptions if name in moving and moving[name].is_coming)
        return arriving, len(arriving) == len(subscriptions) - sum(name in left for name in subscriptions)

    def is_early(self, message: CarriedNotification, core: BrokerProtocol) -> bool:
        """Return True for what an agent sends behind its client's messages, if a plan may hold these back.

        Any node may hold what is of the plan's epoch; once that is over here, all are drained. Agents try again.
        """
        is_active = core.phase in (BrokerPhase.DRAINING, BrokerPhase.DRAINED)
        return message.subject.startswith(FLUSH) and (is_active or message.epoch > core.epoch)

    # --- plans -------------------------------------------------------------------------------------------------------

    def take_effect(self, effect: SubscriberEffect) -> None:
        """Pass on to its agent what the core says about a moving subscription."""
        beside = self._subscriptions.get(effect.subscription)
        if beside is None:
            return
        match effect:
            case SubscriberMoves(name, home_to, epoch):
                beside.epoch, beside.is_going, beside.is_counted, beside.count = epoch, True, False, 0
                beside.since_s, beside.home_to = time.monotonic(), home_to
                beside.marks.clear()
                self._begin_move(name, beside)
                self._write(name, NoteKind.MOVE, epoch, broker=home_to)
            case SubscriberAwaited(name, epoch):
                beside.is_awaited = True
                self._write(name, NoteKind.AWAITED, epoch)
            case SubscriberTaken(name, epoch):
                if not beside.is_switched:
                    beside.is_switched = True
                    self._write_switched(name, beside)
                    self._on_home(name, beside.filter_)

    def _say_again(self) -> None:
        """Say again how far each subscription is; agents ignore what they know."""
        for name, beside in self._subscriptions.items():
            is_moving = name in self._moving
            if beside.epoch < 0:
                self._write(name, NoteKind.HOME, 0)
            elif beside.is_switched or not is_moving:
                self._write_switched(name, beside)
            elif beside.is_going and not beside.is_counted:
                self._write(name, NoteKind.MOVE, beside.epoch, beside.home_to)
            elif beside.is_coming and beside.is_awaited:
                self._write(name, NoteKind.COUNTING if beside.is_counted else NoteKind.AWAITED, beside.epoch)
            if beside.epoch >= 0 and not is_moving:
                self._write(name, NoteKind.DRAINED, beside.epoch)

    def _take_note(self, client: str, note: AgentNote) -> None:
        name = note.subscription
        if self.is_here(client):
            self._take_of_client(client, note)
        beside = self._subscriptions.get(name)
        if beside is None or client_of(name) != client or note.epoch != beside.epoch or name not in self._moving:
            return
        if note.kind is NoteKind.REFUSED and beside.is_going:
            self._refuse(name, CANNOT.format(name=name))
        elif note.kind is NoteKind.READY and not beside.is_counted:
            beside.is_counted = True
            if beside.is_going:
                self._ask(ReadyRequest(note.epoch, name))
            else:
                self._write(name, NoteKind.COUNTING, note.epoch)

    def _take_of_client(self, client: str, note: AgentNote) -> None:
        """Take what is not about one subscription."""
        match note.kind:
            case NoteKind.STAYS:
                self._stay(client, _Stay(math.inf, reason_of(note.reason)))
            case NoteKind.NEAREST:
                self._note_near(client, (note.broker, note.brokers))
            case NoteKind.PUBLISHES:
                self.on_publishes(client)

    def _note_near(self, client: str, near: tuple[str, tuple[str, ...]]) -> None:
        if near != self._near.get(client, NOWHERE):
            self._near[client] = near
            self._register_again(client)

    def _refuse(self, name: str, reason: str) -> None:
        self.on_refused(reason)
        self._stay(client_of(name), _Stay(time.monotonic() + REST_S, StayReason.REFUSED))

    def _stay(self, client: str, stay: _Stay) -> None:
        """Note that a client stays; of two reasons, the one that lasts longer counts."""
        before = self._staying.get(client)
        if before is None and len(self._staying) >= STAYING_MAX:
            return
        if before is None or stay.until_s >= before.until_s:
            self._staying[client] = stay
            if before is None or stay.reason is not before.reason:
                self._register_again(client)

    def _register_again(self, client: str) -> None:
        """Register a client again, except what moves: whether it may move, or what is nearest, has changed."""
        for name, beside in self._subscriptions.items():
            if beside.client == client and not (beside.is_coming or beside.is_going):
                self._on_home(name, beside.filter_)

    def note_time(self) -> None:
        """Refuse a plan whose agents do not answer; clients that had to stay may move again after a while.

        Agents of what a plan brings here learn again that it is not over, however long its controller is away.
        """
        now_s = time.monotonic()
        if now_s - self._said_s > SAY_AGAIN_S:
            self._said_s = now_s
            for name, beside in self._moving.items():
                if beside.is_coming and beside.is_switched:
                    self._write_switched(name, beside)
                elif beside.is_coming and beside.is_counted:
                    self._write(name, NoteKind.COUNTING, beside.epoch)
        for client in [client for client, stay in self._staying.items() if stay.until_s < now_s]:
            del self._staying[client]
            self._register_again(client)
        for name, beside in list(self._moving.items()):
            if beside.is_going and not beside.is_counted and now_s - beside.since_s > READY_S_MAX:
                self._refuse(name, LATE.format(name=name, home_to=beside.home_to, seconds=READY_S_MAX))

    def note_published(self, notification: CarriedNotification) -> None:
        """Count what is published here, as long as it is of the old epoch."""
        names = self._counted.destinations(notification.content) if len(self._counted) else ()
        mark = mark_of(notification.subject.encode(errors="replace"), notification.payload) if names else 0
        for beside in map(self._moving.__getitem__, names):
            if notification.epoch < beside.epoch:
                beside.count += beside.is_counted
                beside.marks.append(mark)

    def _begin_move(self, name: str, beside: _Beside) -> None:
        self._end_move(name)
        self._moving[name], self._followed = beside, None
        self._counted.add(name, beside.filter_, name)

    def _end_move(self, name: str) -> None:
        if self._moving.pop(name, None) is not None:
            self._counted.remove(name)

    def follow(self, core: BrokerProtocol) -> None:
        """Report to agents how far the plan under way is here."""
        if self._left:
            self._follow_left(core)
        if not self._moving or self._followed == (core.epoch, core.phase):
            return
        epoch, phase = self._followed = core.epoch, core.phase
        for name, beside in list(self._moving.items()):
            beside.was_under_way = beside.was_under_way or phase is not BrokerPhase.STEADY
            if epoch == beside.epoch or beside.is_switched:
                self._follow_switched(name, beside, phase)
            elif epoch > beside.epoch or (beside.was_under_way and phase is BrokerPhase.STEADY):
                self._abort(name, beside)

    def _follow_left(self, core: BrokerProtocol) -> None:
        """Register the end of those that the plan has moved here nevertheless: their old home has handed them over."""
        for name in [name for name, epoch in self._left.items() if epoch == core.epoch]:  # No aborted plan's.
            self._left[name] = -1
            self._on_home(name, None)
        if core.phase is BrokerPhase.STEADY:
            self._left.clear()

    def _follow_switched(self, name: str, beside: _Beside, phase: BrokerPhase) -> None:
        if beside.is_going and not beside.is_switched:
            beside.is_switched = True
            self._write_switched(name, beside)
        if beside.is_going and phase in (BrokerPhase.DRAINED, BrokerPhase.STEADY):
            self._end_move(name)
            self._write(name, NoteKind.DRAINED, beside.epoch)
        elif phase is BrokerPhase.STEADY:
            self._end_move(name)
            beside.is_coming = beside.is_switched = False
            self._write(name, NoteKind.DRAINED, beside.epoch)

    def _abort(self, name: str, beside: _Beside) -> None:
        self._end_move(name)
        self._write(name, NoteKind.ABORTED, beside.epoch)
        if beside.is_coming:
            self._forget(name)  # It stays where it was: its end here is not its end.
        elif beside.client in self._staying:
            self._on_home(name, beside.filter_)
        beside.is_going, beside.epoch = False, -1

    def _write_switched(self, name: str, beside: _Beside) -> None:
        if self._line is not None:
            marks, overlay = tuple(beside.marks), self._line.overlay
            note = AgentNote(NoteKind.SWITCHED, name, beside.epoch, self._broker, beside.count, overlay, marks)
            self._line.write(name, note)

    def _write(self, name: str, kind: NoteKind, epoch: int, broker: str = "") -> None:
        if self._line is not None:
            self._line.write(name, AgentNote(kind, name, epoch, broker or self._broker, 0, self._line.overlay))
