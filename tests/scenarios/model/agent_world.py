"""A client beside an agent that a plan moves between two brokers, small enough that all orders of events can be tried.

In: moves, one event each. Out: the world after it, or a Violation. The agent is that of the product
(:class:`ClientMoves`, :class:`MovingSubscription`, :class:`ClientHomes`), and so is what a node keeps of it
(:class:`AgentClients`), with its notes. Around them, the fewest steps that the rest of the product takes:

- ``PlanNode.obey``: the phases of a core, as ``TreeChange`` and ``ContentMoves`` go through them, without tables;
- ``PlanNode.take_message``: ``BrokerNode._note_message`` and ``_deliver``, a link in ``PlanNode.cross``;
- ``AgentEnd``: what ``NatsSession`` or ``MqttBrokerSide`` do with a broker's frames, a connection that opens included;
- ``Broker``: one connection of the agent, one of the node, each of which keeps its order.

No time passes: an ending that only a limit of time would reach is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from regraft.producers.agents.client_homes import ClientHomes
from regraft.producers.agents.client_moves import ClientMoves, Delivered
from regraft.producers.brokers.broker_messages import (
    ReadyRequest,
    SubscriberAwaited,
    SubscriberMoves,
    SubscriberTaken,
)
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.nodes.agent_clients import AgentClients
from regraft.producers.nodes.connectors.subject_filters import filter_of
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.schemas.agent_names import group_for
from regraft.schemas.agent_note import AgentNote, mark_of
from tests.scenarios.model.kept_account import Violation

CLIENT, OLD, NEW = "web1.r-1", "b1", "b2"
BROKERS = (OLD, NEW)
PREPARE, ACTIVATE, RETIRE, ABORT = "prepare", "activate", "retire", "abort"
END = "end of the old epoch"
SUBJECT = "a"


@dataclass(frozen=True)
class Message:
    """What a client at ``home`` has published, in the ``epoch`` that its node had when it saw it, -1 before."""

    home: str
    number: int
    epoch: int = -1

    @property
    def payload(self) -> bytes:
        """What distinguishes it."""
        return f"{self.home}/{self.number}".encode()


def name_of(number: int) -> str:
    """Return the overlay's name of a subscription of the client."""
    return f"{CLIENT}.{number}~s-{number}"


# --- the agent --------------------------------------------------------------------------------------------------------


@dataclass
class Subscription:
    """The client's only subscription."""

    home: str
    number: int = 1
    words: tuple[str, ...] = (SUBJECT,)


class Client:
    """What the agent knows of the client."""

    name, stays_because, has_published = CLIENT, None, False

    def __init__(self) -> None:
        self.subscriptions = {1: Subscription(OLD)}
        self._numbers = 1

    def numbered(self, number: int) -> Subscription | None:
        """Return the subscription with a number."""
        return next((each for each in self.subscriptions.values() if each.number == number), None)

    def has_ended(self, number: int) -> bool:
        """Return True for a number that was given before."""
        return 0 < number <= self._numbers and self.numbered(number) is None

    def renumber(self, subscription: Subscription) -> None:
        """Give the subscription a new number."""
        self._numbers += 1
        subscription.number = self._numbers


class Upstream:
    """A connection of the agent to a broker."""

    transport = None

    def __init__(self, world: AgentWorld, broker: str) -> None:
        self.broker, self.is_ready, self.is_closing = broker, True, False
        self._world = world

    def close(self) -> None:
        """Leave the broker."""
        if not self.is_closing:
            self.is_closing = True
            self._world.brokers[self.broker].leave()


class AgentEnd:
    """The session; ``opening`` are the connections that it waits for, one at a time."""

    is_over = False

    def __init__(self, world: AgentWorld, *, hands_over_to_all: bool) -> None:
        self.counts, self.hands_over_to_all = Counter[str](), hands_over_to_all
        self.world, self.client = world, Client()
        addresses = {name: BrokerAddress(name, name, 1) for name in BROKERS}
        session: Any = self
        self.homes: ClientHomes[Any] = ClientHomes(session, addresses, OLD)
        self.moves, self.publishing = ClientMoves(session, self.homes), self
        self.opening: list[tuple[Any, ...]] = []
        self.last: dict[str, int] = dict.fromkeys(BROKERS, 0)
        self.came: list[tuple[str, int]] = []

    # --- what its parts ask ------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Publish where the subscription is: the client has published nothing."""
        self.homes.home = self.homes.subscribing

    def lose(self, broker: str) -> None:
        """Do nothing about what the client publishes."""

    def hold(self, reason: str) -> None:
        """Do nothing."""

    def release(self, reason: str) -> None:
        """Do nothing."""

    def note_connected(self, upstream: Upstream) -> None:
        """Do nothing."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin what waits for a connection once that is open, in another move; no time passes for a watch."""
        what, given = work.__name__, dict(work.cr_frame.f_locals)  # type: ignore[attr-defined]
        work.close()
        if what != "_watch":
            self.opening.append((what, given.get("number"), given.get("note")))

    def new_upstream(self, address: BrokerAddress) -> Upstream:
        """Return a connection."""
        return Upstream(self.world, address.broker)

    async def log_in(self, upstream: Upstream) -> None:
        """Connect, if the broker lives and is willing."""
        if not self.world.brokers[upstream.broker].join(is_refused=self.world.is_refused):
            upstream.is_ready = False
            raise UpstreamError("refused")

    def subscribe(self, upstream: Upstream, subscription: Subscription, name: str = "", epoch: int = -1) -> None:
        """Subscribe at a broker."""
        self.world.brokers[upstream.broker].subscribe(subscription.number, epoch)

    def unsubscribe(self, upstream: Upstream, subscription: Subscription) -> None:
        """End the subscription at a broker."""
        self.world.brokers[upstream.broker].unsubscribe(subscription.number)

    def write_note(self, broker: str, note: AgentNote) -> None:
        """Send a note through a broker, of which the client gets a copy."""
        if broker in self.homes.upstreams:
            self.world.brokers[broker].pass_note(note)

    def deliver(self, subscription: Subscription, raw: Message) -> None:
        """Hand a message to the client: each once, those of a publisher in order.

        One may come again if its broker has died before its node, which is slower, has read it.
        """
        key = raw.home, raw.number
        if self.world.is_struck:
            self.came = sorted({*self.came, key})
            self.last[raw.home] = max(raw.number, self.last[raw.home])
            return
        if key in self.came and self.world.brokers[raw.home].is_dead:
            return
        if key in self.came:
            raise Violation(f"{key} came twice")
        if raw.number < self.last[raw.home]:
            raise Violation(f"{key} came behind {self.last[raw.home]}")
        self.last[raw.home] = raw.number
        self.came = sorted([*self.came, key])

    def deliver_now(self) -> None:
        """Do nothing: all is written at once."""

    def end(self, reason: str) -> None:
        """End the client, which nothing here may do."""
        raise Violation(f"the client is ended: {reason}")

    # --- moves -------------------------------------------------------------------------------------------------------

    def open_next(self) -> None:
        """Let the next connection be opened, or refused."""
        what, number, note = self.opening.pop(0)
        work: Any = self.moves._bring(number, note) if what == "_bring" else self.homes._reconnect()
        try:
            work.send(None)
        except StopIteration:
            return
        work.close()
        raise Violation(f"{what} finds no broker")

    def take(self, broker: str, item: Any) -> None:
        """Take what a broker delivers."""
        upstream = self.homes.upstreams.get(broker)
        if upstream is None:
            return
        if isinstance(item, AgentNote):
            self.moves.take_note(upstream, item)
            return
        number, message, home, epoch = item
        subscription = self.client.numbered(number)
        if subscription is None:
            return
        if number in self.moves.moving:
            mark = mark_of(SUBJECT.encode(), message.payload)
            self.moves.take(broker, subscription, Delivered(message, 1, home, mark, epoch))
        elif subscription.home == broker:
            self.deliver(subscription, message)


# --- a broker and its node --------------------------------------------------------------------------------------------


class Broker:
    """One real broker: ``to_agent`` and ``to_node`` are what it has sent and they have not read."""

    def __init__(self, world: AgentWorld, name: str) -> None:
        self.name, self._world = name, world
        self.is_connected, self.is_dead = name == OLD, False
        self.subscribed: list[int] = [1] if name == OLD else []
        self.to_agent: list[Any] = []
        self.to_node: list[Any] = []
        self.has_node = True

    def _report(self, item: Any) -> None:
        if self.has_node:
            self.to_node.append(item)

    def join(self, *, is_refused: bool) -> bool:
        """Let the agent in; return False if it is refused."""
        self.is_connected = not (self.is_dead or is_refused)
        return self.is_connected

    def leave(self) -> None:
        """Note that the agent has left."""
        self.is_connected = False
        self.to_agent.clear()
        for number in list(self.subscribed):
            self.unsubscribe(number)

    def subscribe(self, number: int, epoch: int) -> None:
        """Note a subscription of the agent."""
        if number not in self.subscribed:
            self.subscribed.append(number)
            self._report(("begin", number, epoch))

    def unsubscribe(self, number: int) -> None:
        """Note the end of one."""
        if number in self.subscribed:
            self.subscribed.remove(number)
            self._report(("end", number))

    def pass_note(self, note: AgentNote) -> None:
        """Deliver a note of the agent to the node, and to the agent itself."""
        self.to_agent.append(note)
        self._report(note)

    def publish(self, message: Message) -> None:
        """Deliver what a client has published here."""
        self.hand_over(message, self.subscribed, "", -1)
        self._report(message)

    def hand_over(self, message: Message, numbers: list[int], home: str, epoch: int) -> None:
        """Deliver a message to some subscriptions."""
        self.to_agent += [(number, message, home, epoch) for number in numbers if number in self.subscribed]

    def die(self) -> None:
        """End all connections; the node lives."""
        self.is_dead, self.is_connected = True, False
        self.subscribed, self.to_agent = [], []


class NoteLine:
    """The line of a node to the agent through its broker."""

    overlay = "regraft"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.on_note: Any = None
        self.on_open: Any = None

    def write(self, subscription: str, note: AgentNote) -> None:
        """Send a note."""
        if self._broker.is_connected:
            self._broker.to_agent.append(note)


class PlanNode:
    """A node in a plan that moves the subscription: its phase and epoch, and what it knows of clients beside agents."""

    is_dead = False

    def __init__(self, world: AgentWorld, broker: Broker) -> None:
        self.name, self.epoch, self.phase = broker.name, 0, BrokerPhase.STEADY
        self._world, self._broker = world, broker
        self._has_end = self._has_arrived = False
        self.agents = AgentClients(broker.name, self._ask, self._note_home)
        self.line = NoteLine(broker)
        self.agents.on_publishes = self._note_publishing
        self.agents.connect(self.line, self._refuse)
        self.from_peer: list[Any] = []

    def _note_home(self, name: str, filter_: object) -> None:
        """Do nothing: nobody registers clients."""

    def _note_publishing(self, client: str) -> None:
        """Do nothing: the client publishes nothing."""

    def _ask(self, request: ReadyRequest) -> None:
        if self.phase is BrokerPhase.PREPARING:
            self._set_prepared()

    def _refuse(self, _reason: str) -> None:
        if self.phase in (BrokerPhase.PREPARING, BrokerPhase.PREPARED):
            self._world.plan.refuse()

    def _set_prepared(self) -> None:
        self.phase = BrokerPhase.PREPARED
        self._world.plan.note(PREPARE, self.name)

    def obey(self, phase: str) -> None:
        """Take a step of the plan."""
        if phase == PREPARE:
            self.phase = BrokerPhase.PREPARING
            if self.name == OLD:
                self.agents.take_effect(SubscriberMoves(name_of(1), NEW, 1))
            self._note_arrived()
        elif phase == ACTIVATE:
            self._activate()
        elif phase == ABORT or self.phase is BrokerPhase.DRAINED:
            self.phase = BrokerPhase.STEADY
            if phase == RETIRE and self.name == OLD:
                self._drop_stranded()
        self.agents.follow(self)  # type: ignore[arg-type]

    def _drop_stranded(self) -> None:
        """Begin again what the plan has moved to a node that has died."""
        if self._world.nodes[NEW].is_dead and name_of(1) in self.agents._subscriptions:
            self.agents.end(name_of(1))
            self.begin_again(1)

    # --- deaths ------------------------------------------------------------------------------------------------------

    def begin_again(self, number: int) -> None:
        """Begin a subscription that the broker has, as one that no plan brings."""
        self._begin(number, -1)
        self._world.again[number, self.name] = None

    def return_at(self, epoch: int) -> None:
        """Take part again, as a node that has begun again and has been admitted."""
        self.epoch, self.is_dead, self._broker.has_node = epoch, False, True
        for number in self._broker.subscribed:
            self.begin_again(number)

    def lose_peer(self) -> None:
        """Note that the other node is dead: nothing more of it comes."""
        self._has_end = True
        self._note_drained()
        self.agents.follow(self)  # type: ignore[arg-type]

    # --- what comes --------------------------------------------------------------------------------------------------

    def _note_arrived(self) -> None:
        if self.name == NEW and self._has_arrived and self.phase is BrokerPhase.PREPARING:
            self._set_prepared()
            self.agents.take_effect(SubscriberAwaited(name_of(1), 1))

    def _activate(self) -> None:
        if self.epoch == 1:
            return
        self.epoch, self.phase = 1, BrokerPhase.DRAINING
        self._send(END)
        if self.name == NEW:
            self.agents.take_effect(SubscriberTaken(name_of(1), 1))
        self._note_drained()

    def _send(self, item: Any) -> None:
        peer = self._world.peer(self.name)
        if not peer.is_dead:
            peer.from_peer.append(item)

    def _note_drained(self) -> None:
        if self._has_end and self.phase is BrokerPhase.DRAINING:
            self.phase = BrokerPhase.DRAINED
            self._world.plan.note(ACTIVATE, self.name)

    def take_local(self, item: Any) -> None:
        """Take what the broker sends: a note, a change of interest, or what a client has published."""
        if isinstance(item, AgentNote):
            self.line.on_note(CLIENT, item)
        elif isinstance(item, Message):
            self.take_message(Message(item.home, item.number, self.epoch), is_local=True)
        elif item[0] == "begin":
            self._begin(item[1], item[2])
        else:
            is_ended, _ = self.agents.end(name_of(item[1]))
            if (item[1], self.name) in self._world.again:
                del self._world.again[item[1], self.name]
            elif is_ended and self._world.home_of(item[1], self.epoch) == self.name:
                self._world.homes.pop(item[1], None)
            self._has_arrived = self._has_arrived and item[1] != 1
        self.agents.follow(self)  # type: ignore[arg-type]

    def _begin(self, number: int, epoch: int) -> None:
        self.agents.begin(name_of(number), group_for(name_of(number), epoch), filter_of(SUBJECT), epoch)
        if epoch < 0:
            self._world.homes.setdefault(number, self.name)
        else:
            self._has_arrived = True
            self._note_arrived()

    def cross(self) -> None:
        """Take the next message of the other node; the first one of the new epoch activates it here, too."""
        item = self.from_peer.pop(0)
        if item == END:
            self._activate()
            self._has_end = True
            self._note_drained()
        else:
            if item.epoch > self.epoch:
                self._activate()
            self.take_message(item)
        self.agents.follow(self)  # type: ignore[arg-type]

    def take_message(self, message: Message, *, is_local: bool = False) -> None:
        """Hand a message over here, or send it to the other node."""
        if is_local:
            carried = CarriedNotification(
                "p", message.number, 0.0, self.name, message.epoch, {"t1": SUBJECT, "n": 1.0}, 1,
                subject=SUBJECT, payload=message.payload,
            )  # fmt: skip
            self.agents.note_published(carried)
            self._send(message)
        world = self._world
        numbers = [
            number for number in (1, 2, 3)
            if world.home_of(number, message.epoch) == self.name or (number, self.name) in world.again
        ]  # fmt: skip
        if message.home != self.name:
            self._hand_over(message, numbers)

    def _hand_over(self, message: Message, numbers: list[int]) -> None:
        """Hand over as a connector does: to those that get it from here, or besides to all who want it."""
        broker, to_all = self._broker, self._world.agent.hands_over_to_all
        names = [*map(name_of, numbers), *(["another"] if to_all else [])]
        arriving, is_private = self.agents.arriving_among(names)
        if to_all and not is_private:
            broker.hand_over(message, broker.subscribed, message.home, message.epoch)
        elif not to_all:
            broker.hand_over(message, numbers, message.home, -1)
        if to_all:
            broker.hand_over(message, [1] if arriving else [], message.home, -1)


@dataclass
class Plan:
    """The controller's view of the plan; ``waiting`` are the commands that have not reached a node.

    ``lost`` is the node that has died: a plan that is committed waits for nothing of it.
    """

    phase: str = ""
    done: list[str] = field(default_factory=list)
    is_refused: bool = False
    lost: str = ""
    waiting: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in BROKERS})

    def begin(self, phase: str) -> None:
        """Give the next command to both nodes."""
        self.phase, self.done = phase, []
        for name, commands in self.waiting.items():
            if name != self.lost:
                commands.append(phase)

    def note(self, phase: str, broker: str) -> None:
        """Note that a node has taken the step of a phase."""
        if phase == self.phase and broker not in self.done:
            self.done = sorted([*self.done, broker])

    def refuse(self) -> None:
        """Note that a node refuses the plan."""
        self.is_refused = True

    @property
    def is_done(self) -> bool:
        """Return True if both nodes have."""
        lost = {self.lost} - {""} if self.phase == ACTIVATE else set()
        return {*self.done} | lost == {*BROKERS}


class AgentWorld:
    """All of it; ``homes`` is where subscriptions are that no plan has moved, ``again`` what nodes have begun again.

    Once a node has died, ``is_struck`` excuses what is lost, repeated or late until all is at rest.
    """

    def __init__(self, *, hands_over_to_all: bool, publishes: tuple[str, ...]) -> None:
        self.is_refused = False
        self.homes: dict[int, str] = {}
        self.agent = AgentEnd(self, hands_over_to_all=hands_over_to_all)
        self.plan = Plan()
        self.brokers = {name: Broker(self, name) for name in BROKERS}
        self.again: dict[tuple[int, str], None] = {}
        self.nodes = {name: PlanNode(self, broker) for name, broker in self.brokers.items()}
        self.nodes[OLD]._begin(1, -1)
        self.brokers[OLD].to_agent.clear()
        self.agent.homes.upstreams[OLD] = Upstream(self, OLD)
        self.left = {name: publishes.count(name) for name in BROKERS}
        self.published: list[tuple[str, int]] = []
        self.may_repeat: list[str] = []
        self.may_die = self.may_kill = ""
        self.is_struck = self.is_noticed = False

    def peer(self, name: str) -> PlanNode:
        """Return the other node."""
        return self.nodes[NEW if name == OLD else OLD]

    def kill(self, name: str) -> None:
        """Let a node die; its broker and the agent's connection to that live."""
        self.may_kill, self.is_struck, self.plan.lost = "", True, name
        broker = self.brokers[name]
        broker.has_node = False
        broker.to_node.clear()
        self.plan.waiting[name].clear()
        self.nodes[name] = PlanNode(self, broker)
        self.nodes[name].is_dead = True

    def home_of(self, number: int, epoch: int) -> str:
        """Return where messages of an epoch go for a subscription: the plan moves the first one."""
        home = self.homes.get(number, "")
        return NEW if home == OLD and number == 1 and epoch == 1 else home

    def key(self) -> bytes:
        """Return what distinguishes this world from others."""
        moves, homes, client = self.agent.moves, self.agent.homes, self.agent.client
        agent = (
            moves.moving, moves._kept, moves._arrived, moves._before, moves._names, moves._stayed, client.subscriptions,
            homes.home, homes.subscribing, sorted(homes.upstreams), homes._lost, self.agent.opening, self.agent.came,
        )  # fmt: skip
        brokers = [
            (each.is_connected, each.is_dead, each.subscribed, each.to_agent, each.to_node)
            for each in self.brokers.values()
        ]
        nodes = [
            (
                each.epoch, each.phase, each.is_dead, each._has_end, each._has_arrived, each.from_peer,
                each.agents._subscriptions, sorted(each.agents._moving), each.agents._left,
                sorted(each.agents._staying),
            )
            for each in self.nodes.values()
        ]  # fmt: skip
        rest = (self.plan, self.is_refused, sorted(self.homes.items()), self.left, self.may_repeat, self.may_die)
        deaths = (self.may_kill, self.is_noticed, sorted(self.again))
        return blake2b(repr((agent, brokers, nodes, rest, deaths)).encode(), digest_size=16).digest()
