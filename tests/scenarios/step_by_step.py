"""Brokers whose messages a test delivers one by one, in the one order that matters to it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from typing import Any

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.answer_commands import NO_PLAN
from regraft.producers.brokers.broker_messages import (
    UNSTAMPED_EPOCH,
    Answer,
    Deliver,
    Notification,
    Send,
    control_messages_in,
)
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.emulator.subscriber_clients import HomesInTurn
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import OFF_RING, ClientMove, HomeMove, IdMove

ALL = (Predicate("symbol", Operator.EQ, "A"),)


class StepByStep:
    """Real broker cores, FIFO links between them, and everything that they delivered, answered and sent to clients.

    Clients know no homes but those that a test notes in ``turns``.
    """

    def __init__(self, configuration: OverlayConfiguration) -> None:
        self.brokers = configuration.brokers
        self.cores: dict[str, Any] = {broker: core_of(broker, configuration, 0) for broker in self.brokers}
        self.links: dict[tuple[str, str], deque[Any]] = defaultdict(deque)
        self.turns = HomesInTurn()
        self.now_ms = 0
        self.control_count = 0  # Control messages that brokers have sent to each other.
        self.got: list[tuple[str, str, int]] = []  # Subscription, publisher, sequence.
        self.answers: list[tuple[str, Outcome]] = []
        self.client_effects: list[tuple[str, Any]] = []  # Broker, effect for a client.
        self._sequences: Counter[str] = Counter()

    def feed(self, broker: str, source: str | None, message: Any) -> None:
        """Let a broker handle one message now."""
        self.now_ms += 1
        for effect in self.cores[broker].handle(source, message, self.now_ms):
            self._follow(broker, effect)

    def lose_peer(self, broker: str, peer: str) -> None:
        """Let a broker notice that a neighbour is dead."""
        self.now_ms += 1
        for effect in self.cores[broker].lose_peer(peer, self.now_ms):
            self._follow(broker, effect)

    def cross(self, source: str, broker: str) -> None:
        """Deliver the oldest message of one link."""
        self.feed(broker, source, self.links[source, broker].popleft())

    def run(self, held: Collection[tuple[str, str]] = ()) -> None:
        """Deliver everything except on the links that are held up."""
        while ready := sorted(pair for pair, queue in self.links.items() if queue and pair not in held):
            self.cross(*ready[0])

    def publish(self, broker: str, publisher: str, **content: str) -> None:
        """Let a publisher hand its next notification to a broker."""
        self.now_ms += 1
        sequence = self._sequences[publisher]
        self._sequences[publisher] += 1
        notification = Notification(publisher, sequence, self.now_ms, broker, UNSTAMPED_EPOCH, content, 100)
        self.feed(broker, None, notification)

    def command(
        self,
        broker: str,
        phase: CommandPhase,
        target: OverlayConfiguration,
        moves: tuple[ClientMove, ...] = (),
        id_moves: tuple[IdMove, ...] = (),
        lost_brokers: tuple[str, ...] = (),
        emptied: tuple[HomeMove, ...] = (),
        returned: tuple[str, ...] = (),
    ) -> None:
        """Let a broker obey one command of the plan that leads to ``target``; lost brokers that have returned join."""
        epoch_from = target.epoch - 1
        is_prepare = phase is CommandPhase.PREPARE
        before = self.cores[broker].state.tables[epoch_from].configuration if is_prepare else target
        is_tree = isinstance(target, TreeConfiguration) and isinstance(before, TreeConfiguration)
        kept = {pair for pair in before.links if not {*returned}.intersection(pair)} if is_tree else set()
        order = Command(
            f"plan-{target.epoch}", phase, broker, epoch_from, target.epoch,
            links_removed=tuple(sorted(set(before.links) - set(target.links))) if is_tree else (),
            links_added=tuple(sorted(set(target.links) - kept)) if is_tree else (),
            digest=target.digest,
            moves=moves if is_prepare else (),
            id_moves=id_moves if is_prepare else (),
            subscribers_moved=emptied if is_prepare else (),
            lost_brokers=lost_brokers,
            brokers_joined=tuple(sorted(set(target.brokers) - set(before.brokers) | set(returned))),
            brokers_left=tuple(sorted(set(before.brokers) - set(target.brokers) - set(lost_brokers))),
        )  # fmt: skip
        self.feed(broker, None, order)

    def install(self, broker: str, overlay: OverlayConfiguration) -> None:
        """Let a broker obey the INSTALL of an overlay, whose epoch it holds from then on without being part of it."""
        held = overlay.as_target(NO_PLAN, overlay.with_homes({}))
        ids = tuple(IdMove(one.broker, OFF_RING, one.ring_id) for one in held.ring_target)
        order = Command(
            "installed", CommandPhase.INSTALL, broker, overlay.epoch, overlay.epoch,
            links_added=held.links_target, id_moves=ids, brokers_joined=overlay.brokers,
        )  # fmt: skip
        self.feed(broker, None, order)

    def execute(
        self,
        target: OverlayConfiguration,
        moves: tuple[ClientMove, ...] = (),
        id_moves: tuple[IdMove, ...] = (),
        phases: Sequence[CommandPhase] = (CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE),
    ) -> None:
        """Take all brokers through these phases, each to its end before the next."""
        for phase in phases:
            for broker in self.brokers:
                self.command(broker, phase, target, moves, id_moves)
                self.run()

    def answered(self, outcome: Outcome) -> set[str]:
        """Return the brokers that have given this answer."""
        return {broker for broker, given in self.answers if given is outcome}

    def effects_of(self, kind: type[Any]) -> list[Any]:
        """Return the effects of this kind for clients, oldest first."""
        return [effect for _, effect in self.client_effects if isinstance(effect, kind)]

    def publishers_at(self, broker: str) -> dict[str, int]:
        """Return the stays that a broker of a tree knows, by publisher."""
        known = self.cores[broker].routing.interests.advertisements
        return {name: one.connection for name, one in known.items()}

    def _follow(self, broker: str, effect: Any) -> None:
        match effect:
            case Send(peer, message):
                self.links[broker, peer].append(message)
                self.control_count += 0 if isinstance(message, Notification) else control_messages_in(message)
            case Deliver(notification, subscriptions):
                taken = [name for name in subscriptions if self.turns.takes(name, broker)]
                self.got += [(name, notification.publisher, notification.sequence) for name in taken]
            case Answer(result):
                self.answers.append((broker, result.outcome))
            case _:
                self.client_effects.append((broker, effect))
