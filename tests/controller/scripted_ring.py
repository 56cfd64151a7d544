"""A scripted ring: eight brokers on a ring of three bits as in Zhao13, Fig. 2, with users, publishers, windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from regraft.controller.kinds.ring.attach_clients import topic_traffic, with_clients
from regraft.controller.kinds.ring.ring_state import RingState, ring_traffic_of
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.chord_ring import ring_key
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.client import Client, PredicateRecord, Role
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.plan import ClientMove, IdMove, Proposal
from regraft.schemas.state import PublisherDelivery, StateRow
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.controller.scripted_windows import WINDOW_MS, marker_of
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of

BITS = 3
BROKERS = brokers_named(8)
RING = RingConfiguration.of(0, BITS, {broker: number for number, broker in enumerate(BROKERS)})


def topic_at(key: int, number: int = 0) -> str:
    """Return a topic with this key on the ring of three bits; ``number`` gives different topics with the same key."""
    found = (name for name in (f"t{count}" for count in range(10_000)) if ring_key(name, BITS) == key)
    return next(islice(found, number, None))


TOPIC = topic_at(1)  # t1 of Fig. 2: its rendezvous is the broker with ID 1.
OTHER = topic_at(4)

# Fig. 2 of Zhao13: with subscribers at IDs 0, 2, 4 and 6 a notification of t1 costs 4 messages to subscribers, 3 to
# relays and 8 hops; at 1, 2, 3 and 5 it costs 3 messages and 3 hops.
FIG_2_USERS = {f"u{number}": (f"b{number:02d}", [TOPIC]) for number in (0, 2, 4, 6)}
FIG_2_MOVES = (("b00", 0, 1), ("b01", 1, 0), ("b04", 4, 3), ("b03", 3, 4), ("b06", 6, 5), ("b05", 5, 6))


def ring_inventory(ring: RingConfiguration = RING) -> Inventory:
    """Return the brokers with links that cost 10 each, and the ring as their first overlay."""
    return replace(inventory_of(line_of(len(ring.brokers)), {}), bootstrap=ring)


def user(name: str, home: str, *topics: str, time_ms: int = 0) -> Client:
    """Return a user as the register has it."""
    return Client(name, Role.SUBSCRIBER, home, (), 0.0, time_ms, tuple(sorted(topics)))


def publisher(name: str, home: str, topic: str, time_ms: int = 0) -> Client:
    """Return a publisher of one topic as the register has it."""
    return Client(name, Role.PUBLISHER, home, (PredicateRecord("topic", "eq", text=topic),), 1.0, time_ms)


def published_rows(start_ms: int, counts: Mapping[str, int], home: str = "b00") -> list[StateRow]:
    """Return a row for each publisher: up to 64 notifications published at one broker, delivered nowhere."""
    rows = []
    for name, count in sorted(counts.items()):
        mask = (1 << count) - 1
        signed = mask - (1 << 64) if mask >> 63 else mask
        delivery = PublisherDelivery(name, home, count, 0, 0, (start_ms // WINDOW_MS,), (0,), (signed,))
        rows.append(StateRow(start_ms, start_ms + WINDOW_MS, "delivery", f"{name}/{home}", delivery=delivery))
    return rows


def ring_window(
    users: Mapping[str, tuple[str, Iterable[str]]],
    counts: Mapping[str, int],
    start_ms: int = 0,
    epoch: int = 0,
    in_force: RingConfiguration = RING,
) -> ClosedWindow:
    """Return a window of one second with these users, and ``counts`` notifications by topic."""
    rows = published_rows(start_ms, counts, home=in_force.brokers[0])
    sets = gather_deliveries(rows, in_force.brokers, WINDOW_MS / 1000).sets
    window = ClosedWindow(start_ms, start_ms + WINDOW_MS, sets, epoch_min=epoch, epoch_max=epoch)
    traffic = topic_traffic(sets, {topic: topic for topic in counts})
    return with_clients(window, UserInterests.of(in_force.brokers, users), traffic, [in_force], 0.0)


def ring_state(ring: RingConfiguration, *windows: ClosedWindow) -> RingState:
    """Return the state of a ring with these windows."""
    return RingState(ring, ring_inventory(), windows, ring_traffic_of(ring, windows))


def reassigning(*pairs: tuple[str, int, int], planner: str = "reassign") -> Proposal:
    """Return a proposal that gives brokers other IDs."""
    return Proposal(planner, (), (), 0.0, 0.0, 0.0, "because", id_moves=tuple(IdMove(*pair) for pair in pairs))


def placing(*moves: tuple[str, str, str], planner: str = "place") -> Proposal:
    """Return a proposal that moves users."""
    return Proposal(planner, (), (), 0.0, 0.0, 0.0, "because", moves=tuple(ClientMove(*move) for move in moves))


def swapping_ids(ring: RingConfiguration, broker: str, other: str, planner: str = "reassign") -> Proposal:
    """Return a proposal in which two brokers swap their IDs."""
    a, b = ring.id_of[broker], ring.id_of[other]
    return reassigning((broker, a, b), (other, b, a), planner=planner)


@dataclass
class ScriptedRing(ScriptedOverlay):
    """A ring around one control loop: users in the register, moved by activated plans, and published topics.

    ``counts`` is how many notifications each window has of each topic; each topic has a publisher of its name.
    """

    counts: dict[str, int] = field(default_factory=dict)
    prepared: dict[tuple[str, str], Command] = field(default_factory=dict)
    commands_seen: Counter[CommandPhase] = field(default_factory=Counter)

    def connect(self, *clients: Client) -> None:
        """Put clients into the register, replacing their earlier records."""
        for client in clients:
            self.ports.clients.put(client)

    def homes(self) -> dict[str, str]:
        """Return each user's home by the register."""
        interests = self.ports.clients.registered.interests(self.inventory.brokers)
        assert interests is not None
        return {name: interests.brokers[interests.homes[at]] for at, name in enumerate(interests.users)}

    def write_window(self, start_ms: int) -> None:
        """Write what publishers published, and the marker."""
        rows = published_rows(start_ms, self.counts)
        self.ports.state.records.extend(rows)
        marker = marker_of(self.inventory.brokers, start_ms, rows, self.epoch, self.lost_batches)
        self.ports.state.records.append(marker)

    def _answers(self, command: Command) -> list[CommandResult]:
        self.commands_seen[command.phase] += 1
        if command.phase is CommandPhase.PREPARE:
            self.prepared[command.plan, command.broker] = command
        if command.phase is CommandPhase.ACTIVATE:
            for move in self.prepared[command.plan, command.broker].moves:
                if move.home_to == command.broker and self.homes().get(move.client) == move.home_from:
                    self._bring(move)
        return super()._answers(command)

    def _bring(self, move: ClientMove) -> None:
        interests = self.ports.clients.registered.interests(self.inventory.brokers)
        assert interests is not None
        self.connect(user(move.client, move.home_to, *interests.topics_of(move.client), time_ms=self.now_ms))
