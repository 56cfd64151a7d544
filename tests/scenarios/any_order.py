"""A scheduler that tries any order the protocol allows: only messages of one link keep their order.

It owns queues and a controller that can be killed after every single effect, drives real BrokerCores and a real
Transition, and keeps its own account of who is owed what.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.transition import PersistPlan, SendCommand, Transition, TransitionLimits
from overlay.configuration import Configuration, Link, link
from overlay.tree import cycle_links, random_tree
from producers.broker_core import BrokerCore
from producers.broker_messages import (
    UNSTAMPED_EPOCH,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Answer,
    Cancelled,
    CancelRequest,
    Confirmed,
    Deliver,
    LeaveRequest,
    Notification,
    Published,
    PublisherLeaves,
    PublisherTaken,
    Send,
    SubscribeRequest,
    UnadvertiseRequest,
)
from producers.match_content import Operator, Predicate, matches
from schemas.command import Command, CommandResult
from schemas.plan import ClientMove, Plan, PlanPhase

SYMBOLS = ("A", "B", "C")


@dataclass
class Subscription:
    """What one subscription is owed and what it got."""

    home: str
    filter_: tuple[Predicate, ...]
    confirmed_ms: float | None = None
    cancelled_ms: float | None = None
    is_gone: bool = False
    got: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Publisher:
    """A publisher, its home and the next sequence number."""

    home: str
    symbol: str
    sequence: int = 0
    may_publish: bool = False
    goes_to: str | None = None
    taken_by: str | None = None
    moves: int = 0

    def arrive(self) -> None:
        """Go on at the next home, when the old one is left and the next one has taken it."""
        if self.goes_to is not None and self.goes_to == self.taken_by:
            self.home, self.goes_to, self.taken_by = self.goes_to, None, None
            self.moves += 1


class AnyOrderOverlay:
    """Brokers, links, clients and one controller under a random but repeatable schedule."""

    def __init__(self, broker_count: int, rng: random.Random, limits: TransitionLimits) -> None:
        self.rng = rng
        self.limits = limits
        self.now_ms = 0
        self.brokers = [f"b{number:02d}" for number in range(broker_count)]
        self.configuration = random_tree(self.brokers, broker_count, rng)
        self.cores = {broker: BrokerCore(broker, self.configuration, 0) for broker in self.brokers}
        self.links: dict[tuple[str, str], deque[Any]] = {}
        self.inboxes: dict[str, deque[tuple[str | None, Any]]] = {broker: deque() for broker in self.brokers}
        self.commands: list[Command] = []
        self.results: list[CommandResult] = []
        self.subscriptions: dict[str, Subscription] = {}
        self.publishers: dict[str, Publisher] = {}
        self.publisher_count = 0
        self.published: dict[tuple[str, int], Notification] = {}
        self.stamped_epochs: set[int] = set()
        self.plans: dict[str, Plan] = {}
        self.controller: Transition | None = None
        self.effects: deque[Any] = deque()
        self.kills = 0
        self.epoch_max = 0
        self.deaf: set[str] = set()

    # --- clients -----------------------------------------------------------------------------------------------

    def advertise(self) -> None:
        """A new publisher comes to a random broker."""
        name = f"p{self.publisher_count}"
        self.publisher_count += 1
        home = self.rng.choice(self.brokers)
        symbol = self.rng.choice(SYMBOLS)
        self.publishers[name] = Publisher(home, symbol)
        self.inboxes[home].append((None, AdvertiseRequest(name, (Predicate("symbol", Operator("eq"), symbol),))))

    def subscribe(self) -> None:
        """A new subscription comes to a random broker."""
        name = f"s{len(self.subscriptions)}"
        home = self.rng.choice(self.brokers)
        filter_ = (Predicate("symbol", Operator("eq"), self.rng.choice(SYMBOLS)),)
        if self.rng.random() < 0.5:
            filter_ += (Predicate("price", Operator("<"), float(self.rng.randint(1, 9))),)
        self.subscriptions[name] = Subscription(home, filter_)
        self.inboxes[home].append((None, SubscribeRequest(name, name, filter_)))

    def cancel(self) -> None:
        """A random subscription ends; its time is when its client says so, however long its home's queue is."""
        open_ones = [name for name, subscription in self.subscriptions.items() if subscription.cancelled_ms is None]
        if open_ones:
            self.cancel_named(self.rng.choice(open_ones))

    def cancel_named(self, name: str) -> None:
        """This subscription ends now."""
        self.now_ms += 1  # No two things that clients do happen at the same time.
        subscription = self.subscriptions[name]
        subscription.cancelled_ms = self.now_ms
        self.inboxes[subscription.home].append((None, CancelRequest(name)))

    def publish(self) -> None:
        """A random publisher hands a notification to its home."""
        ready = [name for name, one in self.publishers.items() if one.may_publish and one.goes_to is None]
        if ready:
            self.now_ms += 1
            name = self.rng.choice(ready)
            publisher = self.publishers[name]
            content = {"symbol": publisher.symbol, "price": float(self.rng.randint(0, 9))}
            notification = Notification(
                name, publisher.sequence, self.now_ms, publisher.home, UNSTAMPED_EPOCH, content, 100
            )
            self.published[name, publisher.sequence] = notification
            publisher.sequence += 1
            self.inboxes[publisher.home].append((None, notification))

    # --- the controller ----------------------------------------------------------------------------------------

    def plan_changes(self, swap_count: int, move_count: int) -> None:
        """Start a plan of random swaps and moves of publishers, if none is under way."""
        if any(plan.phase not in (PlanPhase.VERIFYING, PlanPhase.ABORTED) for plan in self.plans.values()):
            return
        if self.controller is not None or self.effects:
            return
        target = self.configuration
        epoch = self.epoch_max + 1
        for _ in range(swap_count):
            target = random_swap(target, epoch, self.rng)
        removed, added = difference(self.configuration, target)
        moves = self._random_moves(move_count)
        if not added and not moves:
            return
        self.epoch_max = epoch
        plan = Plan(
            f"plan-{epoch}", self.configuration.epoch, epoch, 0, (), removed, added, target.links, 0.0, 0.0,
            PlanPhase.PREPARING, (), moves=moves,
        )  # fmt: skip
        self.controller = Transition(plan, self.brokers, self.limits)
        self.effects.extend(self.controller.start(self.now_ms))

    def _random_moves(self, move_count: int) -> tuple[ClientMove, ...]:
        """Choose publishers and where they go; now and then the controller is mistaken about where one is."""
        names = sorted(self.publishers)
        chosen = self.rng.sample(names, min(move_count, len(names)))
        moves = []
        for name in sorted(chosen):
            home = self.publishers[name].home if self.rng.random() < 0.95 else self.rng.choice(self.brokers)
            others = [broker for broker in self.brokers if broker != home]
            moves.append(ClientMove(name, home, self.rng.choice(others)))
        return tuple(moves)

    def withdraw(self) -> None:
        """A random publisher ends; what it has published is still owed."""
        names = [name for name, one in self.publishers.items() if one.may_publish and one.goes_to is None]
        if len(names) > 2:
            name = self.rng.choice(names)
            self.inboxes[self.publishers.pop(name).home].append((None, UnadvertiseRequest(name)))

    def kill_controller(self) -> None:
        """The controller dies; effects that were not carried out are lost, answers to nobody too."""
        if self.controller is not None:
            self.kills += 1
        self.controller = None
        self.effects.clear()

    def restart_controller(self) -> None:
        """A new controller resumes the unfinished plan from what was persisted."""
        if self.controller is not None:
            return
        for plan in self.plans.values():
            if plan.phase not in (PlanPhase.VERIFYING, PlanPhase.ABORTED):
                self.controller = Transition(plan, self.brokers, self.limits)
                self.effects.extend(self.controller.resume(self.now_ms))

    def carry_out_effect(self) -> None:
        """Carry out one effect of the controller."""
        if not self.effects:
            return
        match self.effects.popleft():
            case PersistPlan(plan):
                self.plans[plan.plan] = plan
                if plan.phase is PlanPhase.VERIFYING:
                    self.configuration = Configuration.of(plan.epoch_to, self.brokers, plan.links_target)
            case SendCommand(command):
                self.commands.append(command)
                if self.rng.random() < 0.2:
                    self.commands.append(command)
        if not self.effects and self.controller is not None and self.controller.is_done:
            self.controller = None

    def deafen(self, broker: str) -> None:
        """One broker stops hearing commands."""
        self.deaf = {broker}

    def undeafen(self) -> None:
        """All brokers hear commands again."""
        self.deaf = set()

    # --- the schedule ------------------------------------------------------------------------------------------

    def move(self) -> bool:
        """Do one thing that is possible, chosen at random; tell whether there was any."""
        self.now_ms += 1
        choices: list[Callable[[], None]] = []
        filled = [pair for pair, queue in self.links.items() if queue]
        busy = [broker for broker, queue in self.inboxes.items() if queue]
        if filled:
            choices += [lambda: self._cross(self.rng.choice(filled))] * 3
        if busy:
            choices += [lambda: self._process(self.rng.choice(busy))] * 4
        reachable = [command for command in self.commands if command.broker not in self.deaf]
        if reachable:
            choices.append(lambda: self._command(self.rng.choice(reachable)))
        if self.results:
            choices.append(lambda: self._result(self.rng.randrange(len(self.results))))
        if self.effects:
            choices += [self.carry_out_effect] * 2
        if not choices:
            return False
        self.rng.choice(choices)()
        return True

    def tick(self) -> None:
        """Let the controller look at the clock; it does so only when it has carried out what it decided before."""
        if self.controller is not None and not self.effects:
            self.effects.extend(self.controller.on_tick(self.now_ms))

    def run_randomly(self, deeds: dict[Callable[[], None], float], kill_share: float) -> None:
        """Do these deeds by weight, with a controller that dies and brokers that go deaf in between; then settle."""
        rng = self.rng
        weights = deeds | {
            self.kill_controller: kill_share,
            self.restart_controller: 1,
            self.tick: 1,
            lambda: self.deafen(rng.choice(self.brokers)): 0.15,
            self.undeafen: 0.3,
        }
        for _ in range(1500):
            if rng.random() < 0.25:
                rng.choices(list(weights), list(weights.values()))[0]()
            else:
                self.move()
        self.undeafen()
        self.run_quiet()

    def run_quiet(self, moves_max: int = 200_000) -> None:
        """Stop all clients, keep a controller alive and run until nothing is under way."""
        for _ in range(moves_max):
            self.restart_controller()
            if not self.move():
                if self.controller is None:
                    return
                self.now_ms += self.limits.resend_ms
                self.tick()
        raise AssertionError(f"not quiet after {moves_max} moves: {self.plans}")

    def _cross(self, pair: tuple[str, str]) -> None:
        self.inboxes[pair[1]].append((pair[0], self.links[pair].popleft()))

    def _command(self, command: Command) -> None:
        # Delivered in any order, and perhaps again: it stays in the pool now and then.
        if self.rng.random() < 0.85:
            self.commands.remove(command)
        self.inboxes[command.broker].append((None, command))

    def _result(self, position: int) -> None:
        result = self.results[position]
        if self.rng.random() < 0.85:
            self.results.pop(position)
        if self.controller is not None:
            # A controller takes answers only between steps; one that died never sees this answer.
            while self.effects:
                self.carry_out_effect()
            if self.controller is not None:
                self.effects.extend(self.controller.on_result(result, self.now_ms))

    def _process(self, broker: str) -> None:
        source, message = self.inboxes[broker].popleft()
        for effect in self.cores[broker].handle(source, message, self.now_ms):
            self._carry_out(broker, effect)

    def _carry_out(self, broker: str, effect: Any) -> None:
        match effect:
            case Send(peer, message):
                self.links.setdefault((broker, peer), deque()).append(message)
            case Published(notification):
                self.stamped_epochs.add(notification.epoch)
            case Deliver(notification, subscriptions):
                for name in set(subscriptions).intersection(self.subscriptions):  # Else ended before it was confirmed.
                    self.subscriptions[name].got.append((notification.publisher, notification.sequence))
            case Answer(result):
                self.results.append(result)
            case Confirmed(name):
                self.subscriptions[name].confirmed_ms = self.now_ms
            case Cancelled(name) if name in self.subscriptions:
                self.subscriptions[name].is_gone = True
            case AdvertiseConfirmed(name):
                self.publishers[name].may_publish = True
            case PublisherLeaves(name, home_to) if name in self.publishers:
                self.inboxes[broker].append((None, LeaveRequest(name)))
                self.publishers[name].goes_to = home_to
                self.publishers[name].arrive()
            case PublisherTaken(name) if name in self.publishers:
                self.publishers[name].taken_by = broker
                self.publishers[name].arrive()

    # --- the account -------------------------------------------------------------------------------------------

    def _is_concurrent(self, subscription: Subscription, key: tuple[str, int]) -> bool:
        """Return True if this was published while the confirmation or the end was on its way, and is no fault."""
        notification, confirmed_ms = self.published[key], subscription.confirmed_ms
        if confirmed_ms is None or not matches(subscription.filter_, notification.content):
            return False
        return notification.publish_ms <= confirmed_ms or not _is_owed(subscription, notification)

    def account(self) -> dict[str, int]:
        """Count owed, delivered, lost, repeated, unexpected and out-of-order hand-overs over the whole run."""
        counts = dict.fromkeys(("owed", "delivered", "lost", "repeated", "unexpected", "out_of_order"), 0)
        for subscription in self.subscriptions.values():
            owed = {key for key, notification in self.published.items() if _is_owed(subscription, notification)}
            got = set(subscription.got)
            counts["owed"] += len(owed)
            counts["delivered"] += len(subscription.got)
            counts["lost"] += len(owed - got)
            counts["repeated"] += len(subscription.got) - len(got)
            counts["unexpected"] += sum(not self._is_concurrent(subscription, key) for key in got - owed)
            last: dict[str, int] = {}
            for publisher, sequence in subscription.got:
                counts["out_of_order"] += sequence < last.get(publisher, -1)
                last[publisher] = max(sequence, last.get(publisher, -1))
        return counts


def _is_owed(subscription: Subscription, notification: Notification) -> bool:
    if subscription.confirmed_ms is None or subscription.confirmed_ms >= notification.publish_ms:
        return False
    if subscription.cancelled_ms is not None and subscription.cancelled_ms < notification.publish_ms:
        return False
    return matches(subscription.filter_, notification.content)


def random_swap(configuration: Configuration, epoch: int, rng: random.Random) -> Configuration:
    """Return the tree with one random link exchanged, at ``epoch``."""
    pairs = [
        link(a, b)
        for position, a in enumerate(configuration.brokers)
        for b in configuration.brokers[position + 1 :]
        if link(a, b) not in configuration.links
    ]
    if not pairs:
        return Configuration(epoch, configuration.brokers, configuration.links)
    added = rng.choice(pairs)
    removed = rng.choice(cycle_links(configuration, added))
    links = [pair for pair in configuration.links if pair != removed] + [added]
    return Configuration.of(epoch, configuration.brokers, links)


def difference(before: Configuration, after: Configuration) -> tuple[Sequence[Link], Sequence[Link]]:
    """Return the links removed and added between two configurations, as sorted tuples."""
    removed = tuple(sorted(set(before.links) - set(after.links)))
    added = tuple(sorted(set(after.links) - set(before.links)))
    return removed, added
