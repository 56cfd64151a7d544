"""The controller of the any-order runs: the real PlanRunner and PlanLog over ports in memory that fail on demand.

In: plans to begin, answers of brokers, time, faults. Out: commands, stored plans. It can be killed after every single
effect; after a restart it knows only the stored plans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import TERM_FIRST, TransitionLimits
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.member import Member
from regraft.schemas.plan import ClientMove, Plan, PlanPhase

UP, AWAY, UNACKNOWLEDGED = "up", "away", "unacknowledged"


class ControllerKilledError(Exception):
    """The controller dies after an effect."""


@dataclass
class PlanShelf:
    """The place where one controller, or several in succession, store plans.

    ``state`` is whether plans can be stored: UNACKNOWLEDGED stores them but reports that it has not. A controller that
    stores with a lower term than ``term`` is fenced off, as a transactional producer is by its successor.
    """

    term: int
    state: str = UP
    stored: dict[str, Plan] = field(default_factory=dict)
    phases: list[tuple[str, PlanPhase]] = field(default_factory=list)


class AnyOrderController:
    """Ports, stored plans and the runner, which is None while the controller is dead; a fenced-off one stays dead."""

    def __init__(
        self,
        inventory: Inventory,
        limits: TransitionLimits,
        send: Callable[[Command, str], None],
        term: int = TERM_FIRST,
        instance: str = "",
        shelf: PlanShelf | None = None,
    ) -> None:
        self.inventory = inventory
        self.limits = limits
        self.term = term
        self.instance = instance
        self.shelf = shelf or PlanShelf(term)
        self.results: deque[CommandResult] = deque()
        self.events: deque[str] = deque(maxlen=50)
        self.dead: frozenset[str] = frozenset()  # As reported to the controller.
        self.kills = 0
        self.fenced = 0
        self._send = send
        self._starts = 0
        self._effects_left = -1
        self._ports = replace(MemoryPorts().ports, results=self, events=self, plans=self)
        self.log = PlanLog(inventory)
        self.runner: PlanRunner | None = None
        self.restart()

    # --- incarnation and death ----------------------------------------------------------------------------------------

    def restart(self) -> bool:
        """Start a controller from the stored plans; return whether that was possible."""
        plans = self.load()
        if self.runner is not None or plans is None or self.shelf.term > self.term:
            return False
        self._starts += 1
        self.log = PlanLog(self.inventory, plans)
        self.runner = PlanRunner(self._ports, self.log, self.limits, term=self.term, instance=self._name)
        return True

    def successor(self, term: int) -> AnyOrderController:
        """Return the controller that takes over from what is stored here; from now on this one can store nothing."""
        self.shelf.term = term
        after = AnyOrderController(self.inventory, self.limits, self._send, term, f"t{term}", self.shelf)
        after.dead = self.dead
        return after

    def begin_again(self, other: AnyOrderController) -> None:
        """Restart with a copy of what another controller has stored."""
        self.kill()
        self.shelf.stored = dict(other.shelf.stored)
        self.restart()

    @property
    def _name(self) -> str:
        return self.instance and f"{self.instance}.{self._starts}"  # No two processes have the same.

    @property
    def is_out(self) -> bool:
        """Return True if it is dead, or knows that another one leads."""
        return self.runner is None or self.runner.deposed_by_term > 0

    def kill(self) -> bool:
        """Kill it; answers that it had not taken are lost. Return whether it was alive."""
        was_alive = self.runner is not None
        self.kills += was_alive
        self.runner = None
        self.results.clear()
        return was_alive

    # --- work --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Return True if no plan is under way; a dead controller is not idle."""
        return self.runner is not None and not self.runner.is_busy and self.log.moving is None

    @property
    def has_work(self) -> bool:
        """Return True if a step is ready that needs no time to pass."""
        runner = self.runner
        if runner is None or self.is_out:
            return False
        return bool(self.results) or runner.queue_lengths["effects"] > 0

    def begin(self, plan: Plan, now_ms: int) -> None:
        """Begin a new plan."""
        assert self.runner is not None
        self.runner.begin(plan, now_ms)

    def advance(self, now_ms: int, kill_behind: int = 0) -> None:
        """Take a step; with ``kill_behind`` above 0 the controller dies after that many effects."""
        if self.runner is None:
            return
        self._effects_left = kill_behind
        self.runner.lose(self.dead)
        try:
            self.runner.advance(now_ms)
        except ControllerKilledError:
            self.kill()
        self._effects_left = 0

    def take_result(self, result: CommandResult) -> None:
        """Put an answer into the topic, where it is not read while the controller is dead."""
        if not self.is_out:
            self.results.append(result)

    def describe(self) -> str:
        """Describe the plan under way and the brokers it waits for."""
        moving = self.log.moving
        if self.runner is None or moving is None:
            return "dead" if self.runner is None else "no plan under way"
        transition = self.runner._transition
        waiting = () if transition is None else transition.waiting_for
        return f"{moving.plan} is {moving.phase} and waits for {', '.join(waiting) or 'nobody'}"

    # --- ports -------------------------------------------------------------------------------------------------

    def commit(self, plan: Plan | None, commands: Sequence[Command], members: Sequence[Member] = ()) -> bool:
        """Store the plan as the store's state allows, then send the commands.

        Kafka stores them all or not at all; here the controller may die between any two of them, which is worse.
        Commands of a fenced-off controller are still sent: they may have been on their way.
        """
        if plan is not None and not self._store_plan(plan):
            return False
        for command in commands:
            self._send(command, self._name)
            self._count_effect()
        return True

    def _store_plan(self, plan: Plan) -> bool:
        shelf = self.shelf
        if shelf.term > self.term:
            self.fenced += 1
            raise ControllerKilledError
        if shelf.state != AWAY:
            shelf.stored.pop(plan.plan, None)
            shelf.stored[plan.plan] = plan
            shelf.phases.append((plan.plan, plan.phase))
        self._count_effect()
        return shelf.state == UP

    def load(self) -> list[Plan] | None:
        """Return what is stored."""
        return None if self.shelf.state == AWAY else list(self.shelf.stored.values())

    def forget(self, plan: str) -> None:
        """Drop a plan."""
        self.shelf.stored.pop(plan, None)

    def flush(self) -> None:
        """Do nothing: nothing waits here."""

    def emit(self, event: AdaptationEvent) -> None:
        """Keep an event's text."""
        self.events.append(event.text)
        self._count_effect()

    def poll(self) -> list[CommandResult]:
        """Return the answers that have arrived."""
        found = list(self.results)
        self.results.clear()
        return found

    def _count_effect(self) -> None:
        if self._effects_left > 0:
            self._effects_left -= 1
            if not self._effects_left:
                raise ControllerKilledError


def new_plan(log: PlanLog, target: OverlayConfiguration, moves: Sequence[ClientMove]) -> Plan:
    """Return a plan from the present configuration of the log to its next epoch, still without changes."""
    return Plan(
        f"plan-{target.epoch}", log.present.epoch, target.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, (),
        moves=tuple(moves),
    )  # fmt: skip
