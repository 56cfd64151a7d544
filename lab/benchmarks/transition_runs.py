"""Overlays with clients, and the plans whose cost :mod:`lab.benchmarks.bench_transition` measures on them.

In: the number of brokers and a seed. Out: the cost of each scenario. All draws depend only on the seed and the
scenario's name, never on what brokers do, so that runs of different versions get the same plans and load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from lab.benchmarks.transition_meter import CoreObserver, PlanDriver, TransitionCost
from regraft.api.emulation import (
    LedgerSnapshot,
    SubscriptionMaker,
    VirtualOverlay,
    VirtualSettings,
    advertisement,
    load_stock_data,
    topic_filter,
)
from regraft.api.overlays import Inventory, OverlayConfiguration, link
from regraft.api.records import ClientMove, Plan, PlanPhase
from regraft.api.rings import DEFAULT_BITS, RingConfiguration
from regraft.api.trees import TreeConfiguration, cycle_links, random_tree

Draw = Callable[[random.Random], tuple[OverlayConfiguration, list[ClientMove]]]

DEGREE_MAX = 8
LINK_MS = (1.0, 19.0)
SERVICE_MS = 0.2
COMMAND_MS = (2.0, 10.0)  # Range of a broker's delay for a command and for its answer.
PUBLISHERS = 49
TOPICS = 150
TOPICS_OF_USER = (5, 10)
NOTIFICATIONS_PER_S = 500.0  # All publishers together.
CHANGES_PER_S = 10.0  # Subscriptions replaced, or topics of users exchanged.
LEAD_MS = 200.0  # Traffic before a plan starts.


class TransitionRun:
    """One overlay with clients that executes scenarios one after the other."""

    kind = ""

    def __init__(self, inventory: Inventory, seed: int, command_ms: tuple[float, float]) -> None:
        self.seed = seed
        self.inventory = inventory
        self.virtual = VirtualOverlay(inventory, settings=VirtualSettings(seed=seed, flush_ms=None))
        self.overlay = self.virtual.overlay
        self.configuration: OverlayConfiguration = inventory.bootstrap
        self.observer = CoreObserver(self.virtual)
        rng = random.Random(f"{seed} delays")
        self._delay_ms = {broker: rng.uniform(*command_ms) for broker in inventory.brokers}
        self._is_live = False

    @property
    def scenarios(self) -> dict[str, Draw]:
        """The scenarios by name; each draws a target and the moves of clients."""
        raise NotImplementedError

    def publish(self, rng: random.Random) -> None:
        """Let one publisher publish once."""
        raise NotImplementedError

    def change(self, rng: random.Random) -> None:
        """Let one subscriber or user change what it wants."""
        raise NotImplementedError

    def home_of(self, client: str) -> str | None:
        """Return the home of a client that can move; None if it is not connected."""
        raise NotImplementedError

    def measure(self, scenario: str) -> TransitionCost:
        """Execute a scenario under traffic; raise AssertionError if the plan does not reach its target."""
        self.settle()
        self.observer.forget_arrivals()
        target, moves = self.scenarios[scenario](random.Random(f"{self.seed} {self.kind} {scenario}"))
        plan = plan_between(self.configuration, target, moves)
        self._is_live = True
        self._repeat(random.Random(f"{self.seed} publish {scenario}"), NOTIFICATIONS_PER_S, self.publish)
        self._repeat(random.Random(f"{self.seed} change {scenario}"), CHANGES_PER_S, self.change)
        self.virtual.run_for(LEAD_MS)
        cost = PlanDriver(self.virtual, plan, self._delay_ms).run(self.observer)
        self._is_live = False
        self.configuration = target
        self.settle()
        for name, broker in self.overlay.brokers.items():
            epochs = sorted(cast(Any, broker.core).state.tables)
            assert epochs == [target.epoch], f"{name} holds tables of {epochs} after the plan to {target.epoch}"
        for move in moves:
            assert self.home_of(move.client) == move.home_to, f"{move.text}: it is at {self.home_of(move.client)}"
        return cost

    def finish(self) -> LedgerSnapshot:
        """Return the final account; raise AssertionError if it is not clean or the observer missed a delivery."""
        account = self.virtual.finish()
        assert account.final, account
        assert account.is_clean, account
        assert account.expected == account.delivered > 0, account
        seen = self.observer.deliveries_ever
        assert account.delivered + account.concurrent == seen, (account, seen)
        return account

    def settle(self) -> None:
        """Run the clock until the overlay is quiet; raise AssertionError after 60 s."""
        end_ms = self.virtual.now_ms + 60_000.0
        while not self.overlay.is_quiet:
            assert self.virtual.now_ms < end_ms, "the overlay does not become quiet"
            self.virtual.run_for(50.0)

    def _repeat(self, rng: random.Random, rate_per_s: float, act: Callable[[random.Random], None]) -> None:
        def act_and_repeat(_: object) -> None:
            if self._is_live:
                act(rng)
                self._repeat(rng, rate_per_s, act)

        self.virtual.env.timeout(rng.expovariate(rate_per_s) * 1_000.0).callbacks.append(act_and_repeat)

    def some_moves(self, rng: random.Random, clients: Sequence[str], count: int) -> list[ClientMove]:
        """Return moves of ``count`` random clients, each to a random other broker."""
        moves = []
        for client in sorted(rng.sample(clients, count)):
            home = self.home_of(client)
            assert home is not None, f"{client} is not connected"
            moves.append(ClientMove(client, home, rng.choice([one for one in self.inventory.brokers if one != home])))
        return moves


class TreeRun(TransitionRun):
    """A random tree with 49 publishers of stock quotes and ``subscription_count`` subscriptions at random brokers."""

    def __init__(
        self, broker_count: int, subscription_count: int, seed: int, command_ms: tuple[float, float] = COMMAND_MS
    ) -> None:
        rng = random.Random(f"{seed} tree {broker_count}")
        inventory = drawn_inventory(broker_count, rng, lambda names: random_tree(names, DEGREE_MAX, rng))
        super().__init__(inventory, seed, command_ms)
        self.kind = f"tree, {subscription_count} subscriptions"
        self._data = load_stock_data()
        self._maker = SubscriptionMaker(self._data, rng)
        self._symbols = sorted(rng.sample(self._data.symbols, PUBLISHERS))
        self._published = 0
        self._named = 0
        for symbol in self._symbols:
            self.overlay.advertise(symbol, rng.choice(inventory.brokers), advertisement(symbol))
        self.settle()
        self._subscriptions = [
            self._subscribe(self._symbols[number % PUBLISHERS], rng) for number in range(subscription_count)
        ]
        self.settle()

    @property
    def scenarios(self) -> dict[str, Draw]:
        """The scenarios: exchanges of links, moves of publishers."""
        return {
            "8 links, 10 publishers": lambda rng: self._draw(rng, 8, 10),
            "10 publishers": lambda rng: self._draw(rng, 0, 10),
            "1 publisher": lambda rng: self._draw(rng, 0, 1),
        }

    def publish(self, rng: random.Random) -> None:
        """Let a symbol's publisher publish the next quote."""
        symbol = rng.choice(self._symbols)
        quotes = self._data.quotes[symbol]
        quote = quotes[self._published % len(quotes)]
        self._published += 1
        self.overlay.publish(symbol, quote.content, quote.size_bytes)

    def change(self, rng: random.Random) -> None:
        """Replace a subscription by a new one at a random broker."""
        place = rng.randrange(len(self._subscriptions))
        self.overlay.cancel(self._subscriptions[place])
        self._subscriptions[place] = self._subscribe(rng.choice(self._symbols), rng)

    def home_of(self, client: str) -> str | None:
        """Return a publisher's home."""
        return self.overlay.publishers.home_of(client)

    def _subscribe(self, symbol: str, rng: random.Random) -> str:
        name = f"s{self._named:06d}"
        self._named += 1
        self.overlay.subscribe(name, rng.choice(self.inventory.brokers), self._maker.make(symbol))
        return name

    def _draw(self, rng: random.Random, links: int, publishers: int) -> tuple[OverlayConfiguration, list[ClientMove]]:
        assert isinstance(self.configuration, TreeConfiguration)
        target = with_swaps(self.configuration, links, rng)
        return target, self.some_moves(rng, self._symbols, publishers)


class RingRun(TransitionRun):
    """A Chord ring of 150 topics with a publisher each; each broker has as many users, with five to ten topics each."""

    def __init__(
        self, broker_count: int, users_of_broker: int, seed: int, command_ms: tuple[float, float] = COMMAND_MS
    ) -> None:
        rng = random.Random(f"{seed} ring {broker_count}")
        inventory = drawn_inventory(broker_count, rng, lambda names: RingConfiguration.hashed(0, DEFAULT_BITS, names))
        super().__init__(inventory, seed, command_ms)
        self.kind = f"ring, {broker_count * users_of_broker} users"
        self._topics = [f"t{number:03d}" for number in range(TOPICS)]
        self._wants: dict[str, list[str]] = {}
        for topic in self._topics:
            self.overlay.advertise(f"p-{topic}", rng.choice(inventory.brokers), topic_filter(topic))
        self.settle()
        for number in range(broker_count * users_of_broker):
            user, wanted = f"u{number:05d}", rng.sample(self._topics, rng.randint(*TOPICS_OF_USER))
            self._wants[user] = wanted
            self.overlay.users.connect(user, inventory.brokers[number % broker_count], wanted)
        self._users = sorted(self._wants)
        self.settle()

    @property
    def scenarios(self) -> dict[str, Draw]:
        """The scenarios: pairs of brokers that exchange IDs, moves of users."""
        return {
            "1 user": lambda rng: self._draw(rng, 0, 1),
            "10 users": lambda rng: self._draw(rng, 0, 10),
            "10 IDs, 10 users": lambda rng: self._draw(rng, 10, 10),
            "2 IDs": lambda rng: self._draw(rng, 2, 0),
        }

    def publish(self, rng: random.Random) -> None:
        """Let a topic's publisher publish."""
        topic = rng.choice(self._topics)
        self.overlay.publish(f"p-{topic}", {"topic": topic}, 100)

    def change(self, rng: random.Random) -> None:
        """Let a user replace the topic that it has had longest."""
        user = rng.choice(self._users)
        wanted = self._wants[user]
        other = rng.choice([topic for topic in self._topics if topic not in wanted])
        self._wants[user] = [*wanted[1:], other]
        self.overlay.users.change_topics(user, self._wants[user])

    def home_of(self, client: str) -> str | None:
        """Return a user's home."""
        return self.overlay.users.home_of(client)

    def _draw(self, rng: random.Random, exchanged: int, users: int) -> tuple[OverlayConfiguration, list[ClientMove]]:
        ring = self.configuration
        assert isinstance(ring, RingConfiguration)
        id_of = dict(ring.id_of)
        chosen = rng.sample(ring.brokers, exchanged)
        for one, other in zip(chosen[::2], chosen[1::2], strict=True):
            id_of[one], id_of[other] = id_of[other], id_of[one]
        target = RingConfiguration.of(ring.epoch + 1, ring.bits, id_of)
        return target, self.some_moves(rng, self._users, users)


def drawn_inventory(
    broker_count: int, rng: random.Random, bootstrap: Callable[[tuple[str, ...]], OverlayConfiguration]
) -> Inventory:
    """Return an inventory with random link delays and equal service times."""
    brokers = tuple(f"b{number:04d}" for number in range(broker_count))
    generator = np.random.default_rng(rng.getrandbits(64))
    half = np.triu(generator.uniform(*LINK_MS, (broker_count, broker_count)), 1)
    return Inventory(brokers, np.full(broker_count, SERVICE_MS), half + half.T, broker_count, bootstrap(brokers))


def with_swaps(present: TreeConfiguration, count: int, rng: random.Random) -> TreeConfiguration:
    """Return the next epoch's tree with this many random links exchanged, within the degree cap."""
    tree, taken = TreeConfiguration.of(present.epoch + 1, present.brokers, present.links), set(present.links)
    added: set[tuple[str, str]] = set()
    while len(added) < count:
        roomy = [broker for broker in tree.brokers if len(tree.neighbours[broker]) < DEGREE_MAX]
        fresh = link(*rng.sample(roomy, 2))
        removable = [one for one in cycle_links(tree, fresh) if one not in added]
        if fresh in taken or not removable:
            continue
        gone = rng.choice(removable)
        tree = replace(tree, links=tuple(sorted({*tree.links, fresh} - {gone})))
        taken.add(fresh)
        added.add(fresh)
    return tree


def plan_between(before: OverlayConfiguration, target: OverlayConfiguration, moves: Sequence[ClientMove]) -> Plan:
    """Return the plan from one configuration to the next as the controller would write it, but without reasons."""
    plan = Plan(
        f"plan-{target.epoch}", before.epoch, target.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PROPOSED, (),
        moves=tuple(moves),
    )  # fmt: skip
    return target.as_target(plan, before)
