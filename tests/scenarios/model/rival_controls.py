"""Two controllers as one value: each has a plan for the same epoch and does not know the other.

In: answers of brokers, which both read. Out: the commands of both. Their terms are equal, so only the digest
distinguishes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regraft.schemas.command import Command, CommandResult
from tests.scenarios.model.plain_controller import Control

RIVAL = "rival"  # Stands for the second one in the digests of its plans.


@dataclass(frozen=True)
class RivalControls:
    """The states of both; what they have in common looks like one controller."""

    first: Control
    second: Control

    @property
    def ended(self) -> tuple[str, ...]:
        """How the plans of the first one ended."""
        return self.first.ended

    @property
    def can_abort(self) -> bool:
        """Return False: no plan is aborted on purpose, as the two already interfere with each other."""
        return False

    def begin(self) -> tuple[RivalControls, list[Command]]:
        """Let both begin."""
        first, commands = self.first.begin()
        second, others = self.second.begin()
        return RivalControls(first, second), commands + others

    def after(self, event: CommandResult | str) -> tuple[RivalControls, list[Command]]:
        """Let both take an answer."""
        first, commands = self.first.after(event)
        second, others = self.second.after(event)
        return replace(self, first=first, second=second), commands + others

    def fault(self) -> str:
        """Describe what is wrong at the end: both must have ended, at most one of them with a plan executed."""
        faults = [fault for one in (self.first, self.second) if (fault := one.fault())]
        if "completed" in self.first.ended and "completed" in self.second.ended:
            faults.append("both plans were executed")
        return "; ".join(faults)
