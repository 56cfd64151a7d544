"""Small rings on the virtual clock, with feeds and users, and plans executed as by a controller."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.producers.emulator.user_clients import topic_filter
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove

LINK_MS = 10.0
BITS = 16


def ring_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Return brokers on a ring by hashed names, with random delays of 1 to 19 ms and 0.2 ms of service."""
    brokers = [f"b{number:02d}" for number in range(broker_count)]
    ring = RingConfiguration.hashed(0, BITS, brokers)
    half = np.triu(np.array([[rng.uniform(1, 19) for _ in brokers] for _ in brokers]), 1)
    return Inventory(ring.brokers, np.full(broker_count, 0.2), half + half.T, broker_count, ring)


class RingRun:
    """A ring with feeds that publish and users that change their topics."""

    def __init__(self, broker_count: int, topic_count: int, user_count: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.inventory = ring_inventory(broker_count, self.rng)
        self.virtual = VirtualOverlay(self.inventory, settings=VirtualSettings(flush_ms=None))
        self.overlay = self.virtual.overlay
        self.topics = [f"t{number}" for number in range(topic_count)]
        self.users = [f"u{number}" for number in range(user_count)]
        self.configuration = self.inventory.bootstrap
        assert isinstance(self.configuration, RingConfiguration)
        self.ring: RingConfiguration = self.configuration
        for topic in self.topics:
            self.overlay.advertise(f"p-{topic}", self.rng.choice(self.inventory.brokers), topic_filter(topic))
        for user in self.users:
            self.overlay.users.connect(user, self.rng.choice(self.inventory.brokers), self.some_topics())
        self.virtual.run_for(1_000.0)

    def some_topics(self) -> list[str]:
        """Return three random topics."""
        return self.rng.sample(self.topics, 3)

    def live(self, duration_ms: float, every_ms: float = 2.0, changes_share: float = 0.2) -> None:
        """Let feeds publish steadily and users change their topics while the clock advances."""
        at_ms = 0.0
        while at_ms < duration_ms:
            topic = self.rng.choice(self.topics)
            event = self.virtual.env.timeout(at_ms)
            event.callbacks.append(
                lambda _, name=topic: self.overlay.publish(f"p-{name}", {"topic": name}, 100)  # type: ignore[misc]
            )
            if self.rng.random() < changes_share:
                user, wanted = self.rng.choice(self.users), self.some_topics()
                event.callbacks.append(
                    lambda _, who=user, what=wanted: self.overlay.users.change_topics(who, what)  # type: ignore[misc]
                )
            at_ms += every_ms

    def random_target(self) -> RingConfiguration:
        """Return a ring of the same brokers with all IDs exchanged at random."""
        ids = list(self.ring.ids)
        self.rng.shuffle(ids)
        id_of = dict(zip(self.ring.brokers, ids, strict=True))
        return RingConfiguration.of(self.ring.epoch + 1, BITS, id_of)

    def random_moves(self, count: int) -> list[ClientMove]:
        """Return moves of users to random other brokers."""
        moves = []
        for user in sorted(self.rng.sample(self.users, count)):
            home = self.overlay.users.home_of(user)
            assert home is not None
            others = [broker for broker in self.inventory.brokers if broker != home]
            moves.append(ClientMove(user, home, self.rng.choice(others)))
        return moves

    def execute(self, target: RingConfiguration, moves: Sequence[ClientMove] = ()) -> float:
        """Execute a plan phase by phase; return how long it took, in ms."""
        began_ms = self.virtual.now_ms
        id_moves = id_moves_between(self.ring, target)
        for phase, outcomes in (
            (CommandPhase.PREPARE, (Outcome.PREPARED,)),
            (CommandPhase.ACTIVATE, (Outcome.ACTIVATED, Outcome.DRAINED)),
            (CommandPhase.RETIRE, (Outcome.RETIRED,)),
        ):
            is_prepare = phase is CommandPhase.PREPARE
            for broker in target.brokers:
                mine = tuple(move for move in moves if broker in (move.home_from, move.home_to))
                self.virtual.send_command(
                    Command(
                        f"plan-{target.epoch}", phase, broker, self.ring.epoch, target.epoch,
                        digest=target.digest,
                        moves=mine if is_prepare else (),
                        id_moves=id_moves if is_prepare else (),
                    )
                )  # fmt: skip
            for outcome in outcomes:
                self._await(target, outcome)
        self.ring = target
        return self.virtual.now_ms - began_ms

    def _await(self, target: RingConfiguration, outcome: Outcome) -> None:
        deadline_ms = self.virtual.now_ms + 60_000
        while self._answered(target.epoch, outcome) < set(target.brokers):
            assert self.virtual.now_ms < deadline_ms, f"{outcome} of {target.epoch}: not everybody"
            self.virtual.run_for(5.0)

    def _answered(self, epoch: int, outcome: Outcome) -> set[str]:
        results = self.virtual.results.results
        return {one.broker for one in results if one.epoch_to == epoch and one.outcome is outcome}
