"""The controllers of an any-order overlay, and what is under way between them and the brokers, in any order.

In: actions about commands, answers and controllers. Out: their effects. The first controller leads; others may exist
next to it. RIVALS names the ways in which there can be more than one. All of them read all answers, as from one topic.
The keys of what other controllers began, or of what has a higher term, contain that: ``plan-2/t3#3`` is plan-2 as the
controller of term 3 began it, commanded in term 3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from regraft.controller.settings.controller_settings import TERM_FIRST, TransitionLimits
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.command import Command, CommandResult, Outcome
from regraft.schemas.plan import ClientMove, Plan
from tests.scenarios.any_order_controller import AnyOrderController

TWIN, STRANGER, SUCCESSORS = "twin", "stranger", "successors"
RIVALS = {
    TWIN: "a second controller with a log of its own and the same term: the worst misconfiguration",
    STRANGER: "a second controller with a log of its own and a higher term",
    SUCCESSORS: "leaders are suspended, others take over from the same log with higher terms, and the first come back",
}
CONTROLLERS_MAX = 8


class ManyControllers:
    """The controllers, and commands and answers that are under way. A part of an any-order overlay.

    ``controller`` leads; ``suspended`` are those that take no steps, by their positions in ``controllers``.
    """

    clock: Any
    brokers: dict[str, Any]

    def set_up_controllers(self, inventory: Inventory, limits: TransitionLimits, rival: str) -> None:
        """Begin with one controller, and with the rival that ``rival`` names (empty: none)."""
        self.rival = rival
        self.term_max = TERM_FIRST
        self.commands: dict[tuple[str, str, str], int] = {}  # Plan, phase, broker -> how many are under way.
        self.sent_commands: dict[tuple[str, str, str], Command] = {}
        self.results: dict[tuple[str, str, str, str], int] = {}  # Plan, phase, broker, outcome -> how many.
        self.given_results: dict[tuple[str, str, str, str], CommandResult] = {}
        self.refusals: dict[str, int] = {}
        self._names: dict[str, str] = {}  # By digest.
        self.suspended: set[int] = set()
        self.controllers = [AnyOrderController(inventory, limits, self._take_command)]
        self.controller = self.controllers[0]
        self.met_controllers = list(self.controllers)  # Including those that no longer exist.
        if rival in (TWIN, STRANGER):
            self.term_max += rival == STRANGER
            self._add(AnyOrderController(inventory, limits, self._take_command, self.term_max, "rival"))

    def _add(self, controller: AnyOrderController) -> None:
        self.controllers.append(controller)
        self.met_controllers.append(controller)

    def leave_alone(self, at: int) -> None:
        """Remove all controllers but one."""
        self.controller = self.controllers[at]
        self.controllers, self.suspended = [self.controller], set()

    @property
    def rivals(self) -> list[int]:
        """The positions of all controllers except the leader."""
        return [at for at, one in enumerate(self.controllers) if one is not self.controller]

    @abstractmethod
    def _enqueue(self, broker: Any, source: str | None, message: Any) -> None:
        """Put a message into a broker's queue."""

    @abstractmethod
    def plan_of(self, log: Any, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these changes as far as they are possible, or None if nothing is left to do."""

    # --- commands and answers ----------------------------------------------------------------------------------

    def _take_command(self, command: Command, instance: str) -> None:
        self._names.setdefault(command.digest, f"{command.plan}/{instance}" if instance else command.plan)
        key = self._name_of(command), str(command.phase), command.broker
        self.sent_commands[key] = command
        self.commands[key] = self.commands.get(key, 0) + 1

    def on_result(self, result: CommandResult) -> None:
        """Put a broker's answer under way to the controllers."""
        key = self._name_of(result), str(result.phase), result.broker, str(result.outcome)
        self.given_results[key] = result
        self.results[key] = self.results.get(key, 0) + 1
        if result.outcome is Outcome.REFUSED:
            self.refusals[f"refused_{result.refusal}"] = self.refusals.get(f"refused_{result.refusal}", 0) + 1

    def _name_of(self, message: Command | CommandResult) -> str:
        return self._names.get(message.digest, message.plan) + (
            "" if message.term == TERM_FIRST else f"#{message.term}"
        )

    def do_command(self, plan: str, phase: str, broker: str, is_kept: int) -> bool:
        """Let a command reach its broker; if it is kept it will be repeated."""
        key = plan, phase, broker
        if not _take_out(self.commands, key, is_kept):
            return False
        self._enqueue(self.brokers[broker], None, self.sent_commands[key])
        return True

    def do_late_command(self, plan: str, phase: str, broker: str) -> bool:
        """Repeat a command that was sent at some time."""
        command = self.sent_commands.get((plan, phase, broker))
        if command is not None:
            self._enqueue(self.brokers[broker], None, command)
        return command is not None

    def do_result(self, plan: str, phase: str, broker: str, outcome: str, is_kept: int) -> bool:
        """Let an answer reach the controllers; if it is kept it will be repeated."""
        key = plan, phase, broker, outcome
        if not _take_out(self.results, key, is_kept):
            return False
        self._hand_out(self.given_results[key])
        return True

    def do_late_result(self, plan: str, phase: str, broker: str, outcome: str) -> bool:
        """Repeat an answer that was given at some time."""
        result = self.given_results.get((plan, phase, broker, outcome))
        if result is not None:
            self._hand_out(result)
        return result is not None

    def _hand_out(self, result: CommandResult) -> None:
        for controller in self.controllers:
            controller.take_result(result)

    # --- the controller that leads -----------------------------------------------------------------------------

    def do_advance(self, kill_behind: int) -> bool:
        """Let the controller take a step, and perhaps die after an effect of it."""
        return self._advance(self.controller, kill_behind)

    def do_kill(self) -> bool:
        """Kill the controller."""
        return self.controller.kill()

    def do_restart(self) -> bool:
        """Start a controller, unless one is alive."""
        return self.controller.restart()

    def do_store(self, state: str) -> None:
        """Change the store: plans are stored, refused, or stored without acknowledgement."""
        for controller in self.controllers:
            controller.shelf.state = state

    def do_plan(self, changes: Sequence[Any], moves: Sequence[Sequence[str]]) -> bool:
        """Begin a plan at the controller, if none is under way."""
        return self._plan(self.controller, changes, moves)

    def _advance(self, controller: AnyOrderController, kill_behind: int) -> bool:
        is_alive = controller.runner is not None
        controller.advance(self.clock.now, kill_behind)
        return is_alive

    def _plan(self, controller: AnyOrderController, changes: Sequence[Any], moves: Sequence[Sequence[str]]) -> bool:
        if not controller.is_idle:
            return False
        plan = self.plan_of(controller.log, changes, [ClientMove(*move) for move in moves])
        if plan is None:
            return False
        controller.begin(plan, self.clock.now)
        return True

    # --- others beside it --------------------------------------------------------------------------------------

    def do_rival(self, at: int, deed: str, *arguments: Any) -> bool:
        """Let a controller that does not lead step, plan, die, start or resume."""
        if at not in self.rivals:
            return False
        controller = self.controllers[at]
        if deed == "wake":
            was_suspended = at in self.suspended
            self.suspended.discard(at)
            return was_suspended
        if at in self.suspended:
            return False
        if deed == "advance":
            return self._advance(controller, *arguments)
        if deed == "plan":
            return self._plan(controller, *arguments)
        return controller.kill() if deed == "kill" else controller.restart()

    def do_take_over(self) -> bool:
        """Suspend a leader, or replace a dead one: another controller takes over the same log with a higher term."""
        before = self.controller
        if len(self.controllers) >= CONTROLLERS_MAX or before.load() is None:
            return False
        self.suspended.add(self.controllers.index(before))
        self.term_max += 1
        self.controller = before.successor(self.term_max)
        self._add(self.controller)
        return True

    def do_same_log(self) -> bool:
        """Give two controllers that do not know each other the newer log: they begin alike again."""
        if len(self.controllers) != 2 or not all(one.is_idle for one in self.controllers):
            return False
        newer = max(self.controllers, key=lambda one: one.log.present.epoch)
        for one in self.controllers:
            if one is not newer:
                one.begin_again(newer)
        return True

    def do_lead(self, at: int) -> bool:
        """Let one controller alone continue, with a higher term; all others are suspended for good."""
        if at >= len(self.controllers):
            return False
        self.term_max += 1
        self.controller = self.controllers[at]
        self.controller.kill()
        self.controller.term = self.term_max
        self.controller.shelf.term = self.term_max
        self.suspended = {other for other in range(len(self.controllers)) if other != at}
        return self.controller.restart()


def _take_out(pool: dict[Any, int], key: Any, is_kept: int) -> bool:
    """Return whether the pool has it; take one out unless it is kept."""
    left = pool.get(key, 0)
    if left and not is_kept:
        pool[key] = left - 1
        if left == 1:
            del pool[key]
    return left > 0
