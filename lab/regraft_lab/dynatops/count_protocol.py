"""Count the messages of a reassignment step by step: Regraft's brokers on the virtual clock, and the paper's protocol.

In: brokers, topics, how many brokers move, a seed. Out: figures by ``brokers``, ``topics``, ``moved`` and
``protocol_step``: ``step_messages`` of Regraft's transition, as its brokers sent them, ``paper_step_messages`` of the
four steps of Zhao13, section 5.1.2, and ``step_bound``, the paper's bound without hidden constants. Totals over all
steps: ``protocol_messages``, ``paper_protocol_messages``, ``protocol_bound`` (Eq. 7). Cost of each user that moves:
``moved_user_messages`` between brokers and ``moved_user_requests`` of the user.

Steps: "commands" are the commands of the controller or manager to brokers, and their answers (steps 1 and 4);
"overlay" is step 2; "pubsub" step 3; "drain", which the paper leaves open, informs brokers that nothing of the older
epoch follows. The paper's steps 1, 3 and 4 are counted on the same trees: a command and an answer for each broker, the
hand-over of tables by key-based routing (3.1), and requests to the root and updates down the tree for each topic that
is wrong in the received table (3.2). Step 2, leaving and joining the ring, is taken at its bound; Regraft's brokers
need no lookups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from regraft.api.brokers import (
    Bundle,
    ClientRequest,
    Effect,
    Message,
    RingPlanUnderWay,
    RingRouting,
    RingState,
    RingTables,
    Send,
    TwoEpochBroker,
)
from regraft.api.emulation import VirtualOverlay, VirtualSettings, topic_filter
from regraft.api.overlays import Inventory
from regraft.api.programs import Figure
from regraft.api.records import ClientMove
from regraft.api.rings import RingConfiguration, id_moves_between
from regraft.api.transitions import Command, CommandPhase, Outcome, answers_to
from regraft_lab.dynatops.random_streams import random_of

Where = dict[str, str | int | float]

BITS = 32
SERVICE_MS, LINK_MS = 0.05, 5.0
SETTLE_MS, STEP_MS, WAIT_MS_MAX = 2_000.0, 20.0, 120_000.0
USERS_PER_BROKER, TOPICS_PER_USER = 10, 3
MOVED_USERS_PER_BROKER = 1
PAIRS_OF_WORK = 400  # Brokers * (brokers + topics) that take as long as an hour of the Poisson model.
COMMANDS = (CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE)
STEP_OF = {
    "Join": "pubsub",
    "JoinAck": "pubsub",
    "Leave": "pubsub",
    "Register": "pubsub",
    "RegisterAck": "pubsub",
    "NotComing": "pubsub",
    "AskEndPublisher": "drain",
    "AskEndTopic": "drain",
    "EndPublisher": "drain",
    "EndTopic": "drain",
    "HandedOver": "drain",
}
STEPS = ("commands", "overlay", "pubsub", "drain")


class CountingCore(TwoEpochBroker[RingTables, RingPlanUnderWay]):
    """A broker that counts the messages it sends, and requests of its clients, by kind."""

    def __init__(self, broker: str, configuration: RingConfiguration, boot_ms: int, sent: Counter[str]) -> None:
        state = RingState(broker, RingTables(broker, configuration))
        super().__init__(state, boot_ms, partial(RingRouting, state))
        self._sent = sent

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Handle one message like any broker, and count it."""
        effects = super().handle(source, message, now_ms)
        for effect in effects:
            if isinstance(effect, Send):
                bundle = effect.message
                parts = bundle.messages if isinstance(bundle, Bundle) else (bundle,)
                self._sent.update(type(part).__name__ for part in parts)
        if source is None and not isinstance(message, Command):
            self._sent[f"{type(message).__name__} of a client"] += 1
        return effects


class ProtocolTask(msgspec.Struct, frozen=True, tag="protocol"):
    """One ring of brokers, and topics with one publisher each."""

    seed: int
    draw: int
    brokers: int
    topics: int

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"protocol-{self.brokers}-{self.topics}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in simulated hours of the Poisson model."""
        return max(1, self.brokers * (self.brokers + self.topics) // PAIRS_OF_WORK)

    @property
    def moved_counts(self) -> tuple[int, ...]:
        """How many brokers move in each reassignment."""
        return tuple(sorted({2, self.brokers // 4, self.brokers // 2, self.brokers}))


class CountedRing:
    """A ring of brokers with users and publishers, on the virtual clock, that counts its messages."""

    def __init__(self, task: ProtocolTask, rng: np.random.Generator) -> None:
        names = [f"broker {number:04d}" for number in range(task.brokers)]
        self.rng = rng
        self.ring = RingConfiguration.hashed(0, BITS, names)
        delays = np.full((task.brokers, task.brokers), LINK_MS) * ~np.eye(task.brokers, dtype=np.bool_)
        inventory = Inventory(self.ring.brokers, np.full(task.brokers, SERVICE_MS), delays, task.brokers, self.ring)
        self.virtual = VirtualOverlay(inventory, settings=VirtualSettings(flush_ms=None))
        self.sent: Counter[str] = Counter()
        for name, broker in self.virtual.overlay.brokers.items():
            broker.core = CountingCore(name, self.ring, broker.core.boot_ms, self.sent)
        self.topics = [f"topic {number:04d}" for number in range(task.topics)]
        self.home_of = {f"user {number:05d}": self._broker() for number in range(USERS_PER_BROKER * task.brokers)}
        self.wanted = {
            user: [self.topics[at] for at in rng.choice(task.topics, TOPICS_PER_USER, replace=False).tolist()]
            for user in self.home_of
        }
        for topic in self.topics:
            self.virtual.overlay.advertise(f"publisher of {topic}", self._broker(), topic_filter(topic))
        for user, home in self.home_of.items():
            self.virtual.overlay.users.connect(user, home, self.wanted[user])
        self.virtual.run_for(SETTLE_MS)

    def exchange_ids(self, moved: int) -> RingConfiguration:
        """Return the next configuration, in which ``moved`` random brokers pass their IDs around in a cycle."""
        chosen = [self.ring.brokers[at] for at in self.rng.permutation(len(self.ring.brokers))[:moved].tolist()]
        id_of = dict(self.ring.id_of)
        for broker, after in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
            id_of[after] = self.ring.id_of[broker]
        return RingConfiguration.of(self.ring.epoch + 1, BITS, id_of)

    def move_users(self, count: int) -> list[ClientMove]:
        """Return moves of ``count`` random users, each to a random other broker."""
        moves = []
        for at in self.rng.permutation(len(self.home_of))[:count].tolist():
            user, home = sorted(self.home_of.items())[at]
            others = [broker for broker in self.ring.brokers if broker != home]
            moves.append(ClientMove(user, home, others[int(self.rng.integers(len(others)))]))
        return sorted(moves)

    def execute(self, target: RingConfiguration, moves: list[ClientMove]) -> Counter[str]:
        """Execute a plan as the controller does; return messages by kind, including commands and answers.

        Raises TimeoutError if brokers do not answer.
        """
        self.sent.clear()
        results = self.virtual.results.results
        answered_before = len(results)
        id_moves = id_moves_between(self.ring, target)
        commands = 0
        for phase in COMMANDS:
            is_prepare = phase is CommandPhase.PREPARE
            for broker in target.brokers:
                mine = tuple(move for move in moves if broker in (move.home_from, move.home_to)) if is_prepare else ()
                self.virtual.send_command(
                    Command(
                        f"plan {target.epoch}", phase, broker, self.ring.epoch, target.epoch, digest=target.digest,
                        moves=mine, id_moves=id_moves if is_prepare else (),
                    )
                )  # fmt: skip
                commands += 1
            for outcome in answers_to(phase):
                self._await(target, outcome)
        self.virtual.run_for(SETTLE_MS)
        self.home_of |= {move.client: move.home_to for move in moves}
        self.ring = target
        return self.sent + Counter({"Command": commands, "CommandResult": len(results) - answered_before})

    def _await(self, target: RingConfiguration, outcome: Outcome) -> None:
        deadline_ms = self.virtual.now_ms + WAIT_MS_MAX
        results = self.virtual.results.results
        while True:
            answered = {one.broker for one in results if one.epoch_to == target.epoch and one.outcome is outcome}
            if len(answered) == len(target.brokers):
                return
            if self.virtual.now_ms > deadline_ms:
                missing = sorted(set(target.brokers) - answered)
                raise TimeoutError(
                    f"{len(missing)} brokers are not {outcome} after {WAIT_MS_MAX:g} ms, as {missing[0]}"
                )
            self.virtual.run_for(STEP_MS)

    def _broker(self) -> str:
        return self.ring.brokers[int(self.rng.integers(len(self.ring.brokers)))]


def run_protocol(task: ProtocolTask, report_work: Callable[[int], None] = lambda count: None) -> list[Figure]:
    """Return the counts of one ring for consecutive reassignments, then for moves of users."""
    ring = CountedRing(task, random_of(task.seed, task.draw, f"protocol {task.brokers} {task.topics}"))
    figures: list[Figure] = []
    for count in task.moved_counts:
        target = ring.exchange_ids(count)
        paper = paper_messages(ring, target)
        messages_by_step = by_step(ring.execute(target, []))
        where: Where = {"brokers": task.brokers, "topics": task.topics, "moved": count}
        bound = bounds(task, count)
        for step in STEPS:
            here: Where = {**where, "protocol_step": step}
            figures += [
                Figure("step_messages", here, float(messages_by_step[step]), "messages"),
                Figure("paper_step_messages", here, paper[step], "messages"),
                Figure("step_bound", here, bound[step], "messages"),
            ]
        # Eq. 7 counts V once, though two of its steps are O(V); its P log V includes the hand-over of tables.
        total = task.brokers + bound["overlay"] + bound["pubsub"] - math.log2(task.brokers) * count
        figures += [
            Figure("protocol_messages", where, float(sum(messages_by_step.values())), "messages"),
            Figure("paper_protocol_messages", where, float(sum(paper.values())), "messages"),
            Figure("protocol_bound", where, total, "messages"),
        ]
    figures += _user_figures(task, ring)
    report_work(task.work_count)
    return figures


def by_step(sent: Counter[str]) -> dict[str, int]:
    """Return the messages of brokers and controller by step. Raises KeyError for a kind that has no step."""
    counts = dict.fromkeys(STEPS, 0)
    for kind, count in sent.items():
        if kind in ("Command", "CommandResult"):
            counts["commands"] += count
        elif not kind.endswith("of a client"):
            counts[STEP_OF[kind]] += count
    return counts


def bounds(task: ProtocolTask, moved: int) -> dict[str, float]:
    """Return the paper's bound of each step, with logarithms to base 2 and without constants."""
    hops = math.log2(task.brokers)
    return {
        "commands": 2.0 * task.brokers,
        "overlay": hops * hops * moved,
        "pubsub": (1 + task.topics) * hops * moved,
        "drain": 0.0,
    }


def paper_messages(ring: CountedRing, target: RingConfiguration) -> dict[str, float]:
    """Return the messages of the paper's four steps between two configurations; brokers subscribe for their users."""
    before, hops = ring.ring, math.log2(len(target.brokers))
    moves = id_moves_between(before, target)
    subscribed: dict[str, set[str]] = {broker: set() for broker in target.brokers}
    for user, home in ring.home_of.items():
        subscribed[home].update(ring.wanted[user])
    depths, position = target.ring.depths, target.position_of
    handed = wrong = 0
    for move in moves:
        # The broker's table goes to the new owner of its old ID; it receives that of the old owner of its new ID.
        here = position[move.broker]
        handed += int(depths[here, before.position_of[move.broker]])
        previous = before.broker_at[here]
        for topic in subscribed[move.broker] ^ subscribed[previous]:
            root = position[target.rendezvous(topic)]
            wrong += int(depths[here, root] + depths[root, here])
    brokers = len(target.brokers)
    return {
        # RCFG_INIT, RCFG_PUBSUB and RCFG_FINISH to all brokers, RCFG_OVERLAY to those that move, all with answers.
        "commands": 2.0 * (3 * brokers + len(moves)),
        "overlay": hops * hops * len(moves),
        "pubsub": float(handed + wrong),
        "drain": 0.0,
    }


def _user_figures(task: ProtocolTask, ring: CountedRing) -> list[Figure]:
    """Return the cost of a moved user: a plan with moved users compared with a plan that moves nothing."""
    none = ring.execute(ring.exchange_ids(0), [])
    count = MOVED_USERS_PER_BROKER * task.brokers
    some = ring.execute(ring.exchange_ids(0), ring.move_users(count))
    messages = sum(by_step(some).values()) - sum(by_step(none).values())
    requests = sum(number for kind, number in some.items() if kind.endswith("of a client"))
    where: Where = {"brokers": task.brokers, "topics": task.topics, "topics_per_user": TOPICS_PER_USER}
    return [
        Figure("moved_user_messages", where, messages / count, "messages"),
        Figure("moved_user_requests", where, requests / count, "messages"),
        Figure("idle_plan_messages", where, float(sum(by_step(none).values())), "messages"),
    ]
