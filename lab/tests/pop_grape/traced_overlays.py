"""Small overlays on which brokers trace one publisher, p: the paper's Fig. 1, and random ones."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from regraft.api.brokers import Filter, Operator, Predicate
from regraft.api.emulation import LedgerSnapshot, inventory_timing
from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planning import ClosedWindow, TreeState
from regraft.api.records import QueueState
from regraft.api.trees import TreeConfiguration, random_tree
from regraft_lab.pop_grape.distributed_relocation import RelocatingOverlay, Settings
from regraft_lab.pop_grape.distributed_traces import Gathered, TraceMessage
from tests.overlay.small_overlays import NO_CAP, brokers_named, inventory_of

PUBLISHER = "p"
TOPIC = Predicate("topic", Operator.EQ, "x")
ALL: Filter = (TOPIC,)
SIZE_BYTES = 100

FIG_1_TREE = TreeConfiguration.of(
    0,
    [f"B{number}" for number in range(1, 9)],
    [("B1", "B2"), ("B2", "B3"), ("B1", "B4"), ("B1", "B5"), ("B5", "B6"), ("B6", "B7"), ("B6", "B8")],
)
# 1 subscriber at B1, 6 behind B2, 3 behind B4, none at B5, 15 behind B6, where no broker has more than half of all.
FIG_1_SUBSCRIBERS = {"B1": 1, "B2": 2, "B3": 4, "B4": 3, "B6": 5, "B7": 4, "B8": 6}


@dataclass(frozen=True)
class Wish:
    """A subscription at ``home`` to what has v above ``above``."""

    home: str
    above: float

    @property
    def filter_(self) -> Filter:
        """The same as a broker's filter."""
        return (TOPIC, Predicate("v", Operator.GT, self.above))


@dataclass
class Traced:
    """An overlay with one publisher, its subscriptions, and all messages between brokers."""

    overlay: RelocatingOverlay
    wishes: Sequence[Wish]
    sent: list[tuple[str, str, TraceMessage]] = field(default_factory=list)
    gathered: list[Gathered] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def publish(self, values: Sequence[float], pause_ms: float = 2_000.0) -> None:
        """Publish one notification for each v, so far apart that none waits for another."""
        for value in values:
            self.values.append(value)
            self.overlay.virtual.overlay.publish(PUBLISHER, {"topic": "x", "v": value}, SIZE_BYTES)
            self.overlay.virtual.run_for(pause_ms)

    def got_by(self, value: float) -> Mapping[str, int]:
        """Return how many subscribers of each broker want this v."""
        brokers = self.overlay.inventory.brokers
        return {broker: sum(wish.home == broker and value > wish.above for wish in self.wishes) for broker in brokers}

    def messages(self, kind: type[TraceMessage]) -> list[tuple[str, str, TraceMessage]]:
        """Return the messages of one kind, in order."""
        return [each for each in self.sent if isinstance(each[2], kind)]

    def end(self) -> LedgerSnapshot:
        """Execute all decisions and return the account."""
        self.overlay.settle()
        return self.overlay.virtual.finish()


def traced(inventory: Inventory, home: str, wishes: Sequence[Wish], settings: Settings, seed: int = 1) -> Traced:
    """Connect publisher and subscribers; control messages take no service time."""
    overlay = RelocatingOverlay(inventory, seed, settings, inventory_timing(inventory, 0.0))
    found = Traced(overlay, wishes)
    overlay.on_sent = lambda *message: found.sent.append(message)
    overlay.on_gathered = found.gathered.append
    overlay.virtual.overlay.advertise(PUBLISHER, home, ALL)
    for place, wish in enumerate(wishes):
        overlay.virtual.overlay.subscribe(f"s{place}", wish.home, wish.filter_)
    overlay.virtual.run_for(5_000.0)
    return found


def fig_1(settings: Settings) -> Traced:
    """Return Fig. 1: p is at B1, and all subscribers want everything."""
    wishes = [Wish(broker, -1.0) for broker, count in FIG_1_SUBSCRIBERS.items() for _ in range(count)]
    return traced(inventory_of(FIG_1_TREE, {}), "B1", wishes, settings)


def random_traced(rng: random.Random, settings: Settings, *, same_at_a_broker: bool = False) -> Traced:
    """Return a random tree with random costs, p anywhere, and up to three subscribers at each of some brokers."""
    names = brokers_named(rng.randrange(2, 13))
    count = len(names)
    cost = np.triu(np.array([[rng.randrange(1, 80) / 8 for _ in names] for _ in names]), 1)
    processing = np.array([rng.randrange(1, 16) / 8 for _ in names])
    inventory = Inventory(names, processing, cost + cost.T, NO_CAP, random_tree(names, NO_CAP, rng))
    wishes = []
    for broker in rng.sample(names, rng.randrange(1, count + 1)):
        above = [rng.choice([-1.0, 0.3, 0.5, 0.9]) for _ in range(rng.randrange(1, 4))]
        wishes += [Wish(broker, above[0] if same_at_a_broker else each) for each in above]
    return traced(inventory, rng.choice(names), wishes, settings, seed=rng.randrange(1 << 30))


def state_of(traced: Traced, home: str) -> TreeState:
    """Return one window with all publications, and the queues that brokers reported, idle if none was reported."""
    delivered: dict[tuple[str, str, int], int] = {}
    local: dict[tuple[str, str], int] = {}
    for sequence, value in enumerate(traced.values):
        for broker, count in traced.got_by(value).items():
            if count:
                delivered[broker, PUBLISHER, 0] = delivered.get((broker, PUBLISHER, 0), 0) | 1 << sequence
                local[PUBLISHER, broker] = local.get((PUBLISHER, broker), 0) + count
    inventory = traced.overlay.inventory
    published = {(home, PUBLISHER, 0): (1 << len(traced.values)) - 1}
    waits_ms = {report.broker: report.queueing_ms for found in traced.gathered for report in found.reports}
    queues = tuple(
        QueueState(
            broker,
            "",
            1.0,
            1.0,
            1.0,
            0.0,
            0.0,
            float(matching_ms) / 1_000.0,
            0,
            0,
            1.0,
            60_000,
            waits_ms.get(broker, 0.0),
        )
        for broker, matching_ms in zip(inventory.brokers, inventory.processing_cost, strict=True)
    )
    sets = DeliverySets.of(inventory.brokers, delivered, 60.0, published)
    homes = {PUBLISHER: home}
    window = ClosedWindow(0, 60_000, sets, queues=queues, epoch_min=0, epoch_max=0, homes=homes, local_deliveries=local)
    tree = inventory.bootstrap
    return TreeState(TreeConfiguration.of(0, tree.brokers, tree.links, homes), inventory, (window,))
