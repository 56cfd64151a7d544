"""Make brokers outsiders of the overlay in force, so that a plan can let them join: command and answers.

Who may join is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.transition import SendCommand
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.overlay_configuration import plan_digest
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import OFF_RING, IdMove, Plan, PlanPhase

FIRST = "bootstrap"  # Instead of a plan's name: none led to the overlay of epoch 0.


class BrokerInstaller:
    """Asks each broker again every ``resend_ms`` until it answers; ``term`` is that of this leader."""

    def __init__(self, runner: PlanRunner, resend_ms: int, term: int) -> None:
        self._runner = runner
        self._resend_ms = resend_ms
        self._term = term
        self._first_asked_ms: dict[str, int] = {}
        self._asked_ms: dict[str, int] = {}
        self._installed: dict[str, tuple[int, int]] = {}  # Epoch, and the time of the answer.

    def note_answers(self, now_ms: int) -> None:
        """Note which brokers have been installed; those that refuse are asked again."""
        for result in self._runner.take_installs():
            if result.outcome is Outcome.INSTALLED and result.broker in self._asked_ms:
                self._installed[result.broker] = (result.epoch_to, now_ms)

    def is_ready(self, broker: str, epoch: int, since_ms: int) -> bool:
        """Return True if the broker has become an outsider of an epoch, no earlier than at a time."""
        installed, at_ms = self._installed.get(broker, (-1, 0))
        return installed == epoch and at_ms >= since_ms

    def forget(self, brokers: Iterable[str]) -> None:
        """No longer count these brokers as ready: a plan that adds them has begun, which changes what they hold."""
        for broker in brokers:
            self._installed.pop(broker, None)

    def is_new(self, broker: str, now_ms: int) -> bool:
        """Return True if the broker has not been asked yet, or so recently that its answer is worth waiting for."""
        first_ms = self._first_asked_ms.get(broker)
        return first_ms is None or now_ms - first_ms < self._resend_ms

    def ask(self, brokers: Iterable[str], plan_log: PlanLog, now_ms: int) -> None:
        """Send these brokers the overlay in force, unless it was sent recently; forget all others."""
        wanted = set(brokers)
        for known in (self._first_asked_ms, self._asked_ms, self._installed):
            for broker in known.keys() - wanted:
                del known[broker]
        due = [one for one in sorted(wanted) if now_ms - self._asked_ms.get(one, -self._resend_ms) >= self._resend_ms]
        if due:
            whole = install_command(plan_log, self._term)
            self._runner.add([SendCommand(replace(whole, broker=broker)) for broker in due])
        for broker in due:
            self._asked_ms[broker] = now_ms
            self._first_asked_ms.setdefault(broker, now_ms)


def install_command(plan_log: PlanLog, term: int) -> Command:
    """Return the command, to the placeholder broker FIRST, that makes a broker an outsider of the overlay in force."""
    present = plan_log.present
    plan_in_force = next((plan for plan in plan_log.in_force if plan.epoch_to == present.epoch), None)
    bare = Plan(FIRST, 0, present.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, ())
    whole = present.as_target(bare, present)
    return Command(
        plan=FIRST if plan_in_force is None else plan_in_force.plan,
        phase=CommandPhase.INSTALL,
        broker=FIRST,
        epoch_from=present.epoch,
        epoch_to=present.epoch,
        links_added=whole.links_target,
        digest=plan_digest(bare if plan_in_force is None else plan_in_force, present),
        id_moves=tuple(IdMove(one.broker, OFF_RING, one.ring_id) for one in whole.ring_target),
        term=term,
        brokers_joined=present.brokers,
    )
