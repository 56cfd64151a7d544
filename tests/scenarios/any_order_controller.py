"""The controller of the any-order runs: the real PlanRunner and PlanLog over ports in memory that fail as told.

In: plans to begin, answers of brokers, time, faults. Out: commands, stored plans. It can be killed after every single
effect; what restarts knows only the plans that were stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from controller.controller_settings import TransitionLimits
from controller.execute.carry_out_plan import PlanRunner
from controller.ports.memory_ports import MemoryPorts
from controller.state.plan_log import PlanLog
from overlay.inventory import Inventory
from overlay.overlay_configuration import OverlayConfiguration
from schemas.command import Command, CommandResult
from schemas.event import AdaptationEvent
from schemas.plan import ClientMove, IdMove, Plan, PlanPhase, RingId

UP, AWAY, UNACKNOWLEDGED = "up", "away", "unacknowledged"


class ControllerKilledError(Exception):
    """The controller dies behind an effect."""


class AnyOrderController:
    """Ports, stored plans and the runner, None while the controller is dead.

    ``store`` says whether plans can be stored: UNACKNOWLEDGED stores them and says that it has not.
    """

    def __init__(self, inventory: Inventory, limits: TransitionLimits, send: Callable[[Command], None]) -> None:
        self.inventory = inventory
        self.limits = limits
        self.store = UP
        self.stored: dict[str, Plan] = {}
        self.results: deque[CommandResult] = deque()
        self.events: deque[str] = deque(maxlen=50)
        self.kills = 0
        self.stored_phases: list[tuple[str, PlanPhase]] = []
        self._send = send
        self._effects_left = -1
        self._ports = replace(MemoryPorts().ports, results=self, events=self, plans=self)
        self.log = PlanLog(inventory)
        self.runner: PlanRunner | None = None
        self.restart()

    # --- life and death ----------------------------------------------------------------------------------------

    def restart(self) -> bool:
        """Start a controller from what was stored; tell whether that was possible."""
        plans = self.load()
        if self.runner is not None or plans is None:
            return False
        self.log = PlanLog(self.inventory, plans)
        self.runner = PlanRunner(self._ports, self.log, self.limits)
        return True

    def kill(self) -> bool:
        """Kill it; answers that it had not taken are lost. Tell whether it was alive."""
        was_alive = self.runner is not None
        self.kills += was_alive
        self.runner = None
        self.results.clear()
        return was_alive

    # --- work --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Tell whether no plan is under way; a dead controller is not idle."""
        return self.runner is not None and not self.runner.is_busy and self.log.moving is None

    @property
    def has_work(self) -> bool:
        """Tell whether something waits for its next step that needs no time to pass."""
        runner = self.runner
        return runner is not None and (bool(self.results) or runner.queue_lengths["effects"] > 0)

    def begin(self, plan: Plan, now_ms: int) -> None:
        """Take up a new plan."""
        assert self.runner is not None
        self.runner.begin(plan, now_ms)

    def advance(self, now_ms: int, kill_behind: int = 0) -> None:
        """Take a step; with ``kill_behind`` above 0 the controller dies behind that many effects, if there are."""
        if self.runner is None:
            return
        self._effects_left = kill_behind
        try:
            self.runner.advance(now_ms)
        except ControllerKilledError:
            self.kill()
        self._effects_left = 0

    def take_result(self, result: CommandResult) -> None:
        """An answer reaches the topic; nobody reads it there while the controller is dead."""
        if self.runner is not None:
            self.results.append(result)

    def describe(self) -> str:
        """Say what is under way and whom it waits for."""
        moving = self.log.moving
        if self.runner is None or moving is None:
            return "dead" if self.runner is None else "no plan under way"
        transition = self.runner._transition
        waiting = () if transition is None else transition.waiting_for
        return f"{moving.plan} is {moving.phase} and waits for {', '.join(waiting) or 'nobody'}"

    # --- ports -------------------------------------------------------------------------------------------------

    def commit(self, plan: Plan | None, commands: Sequence[Command]) -> bool:
        """Store the plan as the store's state allows, then send the commands.

        Kafka stores them whole or not at all; here the controller may die between any two of them, which is worse.
        """
        if plan is not None and not self._store_plan(plan):
            return False
        for command in commands:
            self._send(command)
            self._count_effect()
        return True

    def _store_plan(self, plan: Plan) -> bool:
        if self.store != AWAY:
            self.stored.pop(plan.plan, None)
            self.stored[plan.plan] = plan
            self.stored_phases.append((plan.plan, plan.phase))
        self._count_effect()
        return self.store == UP

    def load(self) -> list[Plan] | None:
        """Return what is stored."""
        return None if self.store == AWAY else list(self.stored.values())

    def forget(self, plan: str) -> None:
        """Let go of a plan."""
        self.stored.pop(plan, None)

    def flush(self) -> None:
        """Nothing waits here."""

    def emit(self, event: AdaptationEvent) -> None:
        """Keep an event's text."""
        self.events.append(event.text)
        self._count_effect()

    def poll(self) -> list[CommandResult]:
        """Return the answers that have come."""
        found = list(self.results)
        self.results.clear()
        return found

    def _count_effect(self) -> None:
        if self._effects_left > 0:
            self._effects_left -= 1
            if not self._effects_left:
                raise ControllerKilledError


def new_plan(
    log: PlanLog,
    target: OverlayConfiguration,
    moves: Sequence[ClientMove],
    *,
    removed: Sequence[tuple[str, str]] = (),
    added: Sequence[tuple[str, str]] = (),
    links_target: Sequence[tuple[str, str]] = (),
    id_moves: Sequence[IdMove] = (),
    ring_target: Sequence[RingId] = (),
) -> Plan:
    """Return a plan from the present configuration of the log to its next epoch."""
    return Plan(
        f"plan-{target.epoch}", log.present.epoch, target.epoch, 0, (), tuple(removed), tuple(added),
        tuple(links_target), 0.0, 0.0, PlanPhase.PREPARING, (),
        moves=tuple(moves), id_moves=tuple(id_moves), ring_target=tuple(ring_target),
    )  # fmt: skip
