"""Execute the decisions of publishers' homes, and count what the paper's own migration would cost.

In: paths from homes to targets. Out: transitions with moved publishers, one at a time, by one broker as executor
(:class:`experiments.psoop.distributed_exchanges.TransitionDriver`), so that no notification is lost, repeated or
reordered. The migration of Cheung09, section 3.3, is not executed: its messages and time are computed by its rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from regraft.api.emulation import VirtualOverlay
from regraft.api.overlays import Inventory
from regraft.api.records import ClientMove
from regraft.api.trees import TreeConfiguration
from regraft_lab.message_tally import MessageTally
from regraft_lab.pop_grape.distributed_traces import HEADER_BYTES, ID_BYTES, MessageKind
from regraft_lab.psoop.distributed_exchanges import TransitionDriver, message_cost
from regraft_lab.psoop.distributed_messages import MessageKind as TransitionKind

GATHER_MS = 1_000.0  # The first move handed over waits this long for others to share its transition.
CLIENT_CONTROL_MESSAGES = 4  # Pause and readvertise; the advertisement; resume; disconnect from the old home.


@dataclass(frozen=True, slots=True)
class Move:
    """A publisher to move along ``path``, as decided at ``decided_ms``."""

    publisher: str
    path: tuple[str, ...]
    decided_ms: float

    @property
    def target(self) -> str:
        """The new home."""
        return self.path[-1]

    @property
    def client_move(self) -> ClientMove:
        """The move in the form of plans."""
        return ClientMove(self.publisher, self.path[0], self.path[-1])


@dataclass(frozen=True, slots=True)
class PaperMigration:
    """The cost of a migration by section 3.3: messages over the overlay's links, and how long the publisher pauses.

    ``updates`` MUMs go from target to source and as many MCMs back; ``forwarded`` subscriptions go towards the target.
    """

    updates: int
    forwarded: int
    wait_ms: float


class MoveQueue:
    """A queue of moves that publishers' homes hand over, until a transition executes them.

    ``on_failed(move)`` is called for each move whose transition was aborted; ``host_of`` returns the broker on whose
    machine a publisher runs.
    """

    def __init__(
        self,
        virtual: VirtualOverlay,
        executor: str,
        inventory: Inventory,
        tally: MessageTally[MessageKind],
        host_of: Callable[[str], str],
        on_failed: Callable[[Move], None],
    ) -> None:
        self.transition_tally = MessageTally[TransitionKind]()
        self.driver = TransitionDriver(virtual, executor, inventory, self.transition_tally, self._on_done)
        self.executed: list[tuple[Move, float]] = []  # With the end of its transition.
        self.paper_waits_ms: list[float] = []
        self._virtual = virtual
        self._executor = executor
        self._inventory = inventory
        self._tally = tally
        self._host_of = host_of
        self._on_failed = on_failed
        self._waiting: deque[Move] = deque()
        self._under_way: list[Move] = []
        self._is_gathering = False
        self._handed_over = 0

    @property
    def is_idle(self) -> bool:
        """True if no move is waiting or in progress."""
        return not self._waiting and not self.driver.is_busy and not self._handed_over

    def hand_over(self, move: Move) -> None:
        """Send a move to the executor."""
        self._count_paper(move)
        source = move.path[0]
        delay_ms = 0.0
        if source != self._executor:
            delay_ms = self._virtual.overlay.timing.link_delay_ms(source, self._executor)
            kind = TransitionKind.HAND_OVER
            cost = message_cost(self._inventory, source, self._executor)
            self.transition_tally.note(kind, HEADER_BYTES, cost)

        def arrive(_: object) -> None:
            self._handed_over -= 1
            self._waiting.append(move)
            self._gather()

        self._handed_over += 1
        self._virtual.env.timeout(delay_ms).callbacks.append(arrive)

    def _gather(self) -> None:
        if self._waiting and not self._is_gathering and not self.driver.is_busy:
            self._is_gathering = True
            self._virtual.env.timeout(GATHER_MS).callbacks.append(lambda _: self._begin())

    def _begin(self) -> None:
        """Execute all waiting moves together: moves of different publishers do not conflict."""
        self._is_gathering = False
        self._under_way = list(self._waiting)
        self._waiting.clear()
        moves = sorted(move.client_move for move in self._under_way)
        self.driver.begin(self.driver.present.links, moves)

    def _on_done(self, _: TreeConfiguration, succeeded: bool) -> None:
        under_way, self._under_way = self._under_way, []
        for move in under_way:
            if succeeded:
                self.executed.append((move, self._virtual.now_ms))
            else:
                self._on_failed(move)
        self._gather()

    def _count_paper(self, move: Move) -> None:
        found = paper_migration(self._virtual, move, self._host_of(move.publisher))
        self.paper_waits_ms.append(found.wait_ms)
        list_bytes = HEADER_BYTES + ID_BYTES * (1 + len(move.path))
        for a, b in pairwise(move.path):
            self._tally.note(MessageKind.MIGRATION_UPDATE, list_bytes, message_cost(self._inventory, b, a))
            self._tally.note(MessageKind.MIGRATION_COMPLETE, HEADER_BYTES, message_cost(self._inventory, a, b))
        mean_cost = sum(message_cost(self._inventory, a, b) for a, b in pairwise(move.path)) / found.updates
        self._tally.note(MessageKind.FORWARDED_SUBSCRIPTION, HEADER_BYTES, mean_cost, found.forwarded)
        self._tally.note(MessageKind.CLIENT_CONTROL, list_bytes, 0.0, CLIENT_CONTROL_MESSAGES)


def paper_migration(virtual: VirtualOverlay, move: Move, host: str) -> PaperMigration:
    """Return the present cost of the paper's migration of a publisher; ``host`` is the broker on whose machine it runs.

    A subscription that matches the advertisement is forwarded over each link of the path with its home on the near
    side, unless the far side already has it for another publisher. The wait runs from the pause to the resume: a round
    trip to the target by direct connection, and one along the path by links, without queues.
    """
    delay_ms = virtual.overlay.timing.link_delay_ms
    links = list(pairwise(move.path))
    tables = {broker: core.state.tables[core.epoch] for broker, core in virtual.cores.items()}
    matching = [entry for entry in tables[move.path[0]].entries.values() if move.publisher in entry.matching]
    forwarded = sum(
        tables[peer].next_hop.get(entry.home) == broker and entry.subscription not in tables[peer].entries
        for broker, peer in links
        for entry in matching
    )
    to_target_ms = delay_ms(host, move.target) if host != move.target else 0.0
    wait_ms = 2 * to_target_ms + sum(delay_ms(a, b) + delay_ms(b, a) for a, b in links)
    return PaperMigration(len(links), forwarded, wait_ms)
