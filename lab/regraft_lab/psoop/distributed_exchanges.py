"""Execute agreed exchanges on a running emulated overlay, with the transition protocol and one transition at a time.

In: exchanges that brokers hand over, or whole target trees of a central planner. Out: transitions. Jaeger07 leaves the
reconfiguration to another paper; here one broker, the executor, runs the controller's side of the transition
(:mod:`controller.execute.transition`), so that no notification is lost, repeated or reordered. It decides nothing: it
only checks that an exchange still fits the tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from regraft.api.emulation import MemoryPorts, OverlayListener, VirtualOverlay
from regraft.api.overlays import Inventory, Link, link
from regraft.api.planning import PlanLog, TransitionLimits
from regraft.api.records import ClientMove, Plan, PlanPhase
from regraft.api.transitions import Command, CommandResult, PlanRunner
from regraft.api.trees import TreeConfiguration
from regraft_lab.message_tally import MessageTally
from regraft_lab.psoop.distributed_messages import HEADER_BYTES, Exchange, MessageKind
from regraft_lab.psoop.distributed_settings import DistributedSettings

STEP_MS = 20.0  # How often the executor checks for answers and time-outs during a transition.
LINK_BYTES = 8  # Two broker ids.
MOVE_BYTES = 12  # The ids of a client and two brokers.


class TransitionDriver(OverlayListener):
    """The executor's side of a transition: commands to all brokers and their answers, each delayed and counted.

    ``on_done(target, succeeded)`` is called at the end of a transition.
    """

    def __init__(
        self,
        virtual: VirtualOverlay,
        executor: str,
        inventory: Inventory,
        tally: MessageTally[MessageKind],
        on_done: Callable[[TreeConfiguration, bool], None],
    ) -> None:
        self.executor = executor
        self.executed = 0
        self.aborted = 0
        self._virtual = virtual
        self._inventory = inventory
        self._tally = tally
        self._on_done = on_done
        self._ports = MemoryPorts()
        self._log = PlanLog(inventory)
        self._runner = PlanRunner(self._ports.ports, self._log, TransitionLimits())
        self._target: TreeConfiguration | None = None
        virtual.overlay.listeners.append(self)

    @property
    def present(self) -> TreeConfiguration:
        """The tree of the last transition that was executed."""
        present = self._log.present
        assert isinstance(present, TreeConfiguration)  # Jaeger07's overlays are trees.
        return present

    @property
    def is_busy(self) -> bool:
        """True during a transition."""
        return self._target is not None

    def begin(self, links: Iterable[Link], moves: Iterable[ClientMove] = ()) -> None:
        """Begin a transition of all brokers to the tree of these links, with moves of clients.

        Raises NotATreeError if the links do not form a tree.
        """
        target = TreeConfiguration.of(self._log.epoch_next, self._inventory.brokers, links)
        present = self.present
        now_ms = int(self._virtual.now_ms)
        plan = Plan(
            plan=f"exchange-{target.epoch}",
            epoch_from=present.epoch,
            epoch_to=target.epoch,
            window_end_ms=now_ms,
            proposals=(),
            links_removed=tuple(sorted(set(present.links) - set(target.links))),
            links_added=tuple(sorted(set(target.links) - set(present.links))),
            links_target=target.links,
            cost_before_per_s=0.0,  # No broker knows the tree's cost.
            cost_predicted_per_s=0.0,
            phase=PlanPhase.PREPARING,
            history=(),
            moves=tuple(moves),
        )
        self._runner.begin(plan, now_ms)
        self._target = target
        self._step()

    # --- what the overlay reports ----------------------------------------------------------------------------------

    def on_result(self, result: CommandResult) -> None:
        """Count a broker's answer, and deliver it to the executor after the link's delay."""
        delay_ms = self._virtual.overlay.timing.link_delay_ms(result.broker, self.executor)
        self._count(MessageKind.RESULT, result.broker, self.executor, HEADER_BYTES)
        self._virtual.env.timeout(delay_ms, result).callbacks.append(
            lambda event: self._ports.results.records.append(event.value)
        )

    def _step(self) -> None:
        self._runner.advance(int(self._virtual.now_ms))
        while self._ports.commands.sent:
            command = self._ports.commands.sent.popleft()
            links, moves = len(command.links_removed) + len(command.links_added), len(command.moves)
            size_bytes = HEADER_BYTES + LINK_BYTES * links + MOVE_BYTES * moves
            self._count(MessageKind.COMMAND, self.executor, command.broker, size_bytes)
            self._virtual.send_command(command)
        if self._runner.is_busy:
            self._virtual.env.timeout(STEP_MS).callbacks.append(lambda _: self._step())
        else:
            self._finish()

    def _finish(self) -> None:
        target, self._target = self._target, None
        if target is None:
            raise RuntimeError("a transition ended that was never started")
        succeeded = self.present.epoch == target.epoch
        plan = next(plan for plan in self._log.plans if plan.epoch_to == target.epoch)
        markers = 2 * (len(target.brokers) - 1) if succeeded else 0
        # Brokers report how many messages they sent, but not over which links: assume the tree's mean cost.
        mean_cost = _mean_message_cost(target, self._inventory)
        self._tally.note(MessageKind.MARKER, HEADER_BYTES, mean_cost, markers)
        self._tally.note(MessageKind.SUBSCRIPTION, HEADER_BYTES, mean_cost, plan.control_messages - markers)
        self.executed += succeeded
        self.aborted += not succeeded
        self._on_done(target, succeeded)

    def _count(self, kind: MessageKind, source: str, target: str, size_bytes: int) -> None:
        if source != target:
            self._tally.note(kind, size_bytes, message_cost(self._inventory, source, target))


class ExchangeQueue:
    """A queue of exchanges that the deciding brokers hand over, until a transition executes them.

    A transition takes all waiting exchanges that still fit: their path is in the tree, and they share no broker with
    another chosen cycle. ``on_rejected(exchange)`` is called for each exchange that will not be executed.
    """

    def __init__(
        self,
        virtual: VirtualOverlay,
        executor: str,
        inventory: Inventory,
        settings: DistributedSettings,
        tally: MessageTally[MessageKind],
        on_rejected: Callable[[Exchange], None],
    ) -> None:
        self.driver = TransitionDriver(virtual, executor, inventory, tally, self._on_done)
        self.executed: list[Exchange] = []
        self.rejected = 0
        self._virtual = virtual
        self._settings = settings
        self._on_rejected = on_rejected
        self._waiting: deque[Exchange] = deque()
        self._under_way: list[Exchange] = []
        self._is_gathering = False

    @property
    def is_idle(self) -> bool:
        """True if no exchange is waiting or in progress."""
        return not self._waiting and not self.driver.is_busy

    def hand_over(self, exchange: Exchange) -> None:
        """Queue an exchange, or reject it if too many are waiting."""
        if len(self._waiting) >= self._settings.exchanges_waiting_max:
            self._reject(exchange)
            return
        self._waiting.append(exchange)
        self._gather()

    def _gather(self) -> None:
        if self._waiting and not self._is_gathering and not self.driver.is_busy:
            self._is_gathering = True
            self._virtual.env.timeout(self._settings.gather_ms).callbacks.append(lambda _: self._begin())

    def _begin(self) -> None:
        self._is_gathering = False
        chosen, kept, misfits = independent_exchanges(self.driver.present, self._waiting)
        self._waiting = deque(kept)
        for exchange in misfits:
            self._reject(exchange)
        if chosen:
            self._under_way = chosen
            self.driver.begin(exchanged_links(self.driver.present, chosen))

    def _on_done(self, target: TreeConfiguration, succeeded: bool) -> None:
        under_way, self._under_way = self._under_way, []
        if succeeded:
            self.executed += under_way
        else:
            for exchange in under_way:
                self._reject(exchange)
        self._gather()

    def _reject(self, exchange: Exchange) -> None:
        self.rejected += 1
        self._on_rejected(exchange)


def independent_exchanges(
    present: TreeConfiguration, waiting: Iterable[Exchange]
) -> tuple[list[Exchange], list[Exchange], list[Exchange]]:
    """Return the exchanges for one transition, those left for the next one, and those that do not fit the tree.

    An exchange fits if its path is in the tree and its new link is not. The chosen ones have no broker in common, so
    none changes the path of another: executing all of them, or any subset in any order, results in a tree.
    """
    links = set(present.links)
    chosen: list[Exchange] = []
    kept: list[Exchange] = []
    misfits: list[Exchange] = []
    taken: set[str] = set()
    for exchange in waiting:
        cycle = exchange.cycle
        if cycle.link_added in links or not links.issuperset(link(a, b) for a, b in pairwise(cycle.brokers)):
            misfits.append(exchange)
        elif taken.isdisjoint(cycle.brokers):
            chosen.append(exchange)
            taken.update(cycle.brokers)
        else:
            kept.append(exchange)
    return chosen, kept, misfits


def exchanged_links(present: TreeConfiguration, exchanges: Iterable[Exchange]) -> set[Link]:
    """Return the tree's links after the exchanges."""
    links = set(present.links)
    for exchange in exchanges:
        links.remove(exchange.link_removed)
        links.add(exchange.cycle.link_added)
    return links


def message_cost(inventory: Inventory, source: str, target: str) -> float:
    """Return the cost of one message in units of the overlay's cost: c of its link plus p of its receiver."""
    return inventory.cost_of_link(source, target) + float(inventory.processing_cost[inventory.index[target]])


def command_delay(link_delay_ms: Callable[[str, str], float], executor: str) -> Callable[[Command], float]:
    """Return a function that gives the delay of a command from the executor to its broker."""
    return lambda command: link_delay_ms(executor, command.broker)


def _mean_message_cost(tree: TreeConfiguration, inventory: Inventory) -> float:
    ends = [(a, b) for pair in tree.links for a, b in (pair, pair[::-1])]
    return sum(message_cost(inventory, a, b) for a, b in ends) / max(len(ends), 1)
