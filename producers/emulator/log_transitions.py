"""Log brokers' commands and answers, with the plan and its epoch on every line in between.

In: commands as they are obeyed, results as they are given. Out: one line each when a transition begins and ends for the
brokers, and one for each refusal; meanwhile the log context of this thread holds ``plan`` and ``epoch``. One line for
each command would be thousands.
"""

from __future__ import annotations

import structlog
from structlog.contextvars import bind_contextvars, unbind_contextvars

from regraft.producers.brokers.match_content import Filter
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome

OVER = (Outcome.RETIRED, Outcome.ABORTED)

log = structlog.get_logger(__name__)


class TransitionLog:
    """Follows one transition at a time, the one commanded last; a listener of the overlay."""

    def __init__(self, broker_count: int) -> None:
        self._broker_count = broker_count
        self._plan = ""
        self._over: set[str] = set()

    def on_command(self, command: Command) -> None:
        """Note a command before its broker obeys it."""
        if command.plan == self._plan or command.phase is not CommandPhase.PREPARE:
            return
        self._plan = command.plan
        self._over.clear()
        bind_contextvars(plan=command.plan, epoch=command.epoch_to)
        log.info("transition_started_at_brokers", moves=len(command.moves), links=len(command.links_added))

    def on_result(self, result: CommandResult) -> None:
        """Note an answer; log it if it is a refusal or the last one of the transition."""
        if result.outcome is Outcome.REFUSED:
            log.warning(
                "command_refused",
                broker=result.broker,
                phase=result.phase,
                reason=result.reason,
                plan=result.plan,
                epoch=result.epoch_to,
            )
        if result.plan != self._plan or result.outcome not in OVER:
            return
        self._over.add(result.broker)
        if len(self._over) == self._broker_count:
            log.info("transition_ended_at_brokers", outcome=result.outcome)
            unbind_contextvars("plan", "epoch")
            self._plan = ""
            self._over.clear()

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """Do nothing: clients come and go all the time."""

    def on_may_publish(self, publisher: str) -> None:
        """Do nothing: that is not a transition."""
