"""Which commands a broker obeys: those of the leader with the highest term it has seen, and of one plan for each epoch.

In: commands. Out: why one is refused, whatever it asks for. :mod:`producers.brokers.two_epochs` executes the commands
that are not refused here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from regraft.schemas.command import Command, CommandPhase, Refusal

PLANS_KEPT_MAX = 100  # Finished plans remembered; commands for older ones are refused as unknown.


@dataclass(frozen=True, slots=True)
class EpochOwner:
    """The plan that an epoch belongs to here, and whether that was aborted."""

    plan: str
    digest: str
    is_aborted: bool = False


class CommandFence:
    """The highest term seen, and the plan that each epoch belongs to: under way, in force, or finished lately.

    An epoch belongs to the first plan that is prepared or aborted in it. Another plan for the same epoch comes from a
    controller that does not know of the first, and is refused in every phase, even long after the first is over.
    """

    def __init__(self) -> None:
        self.term = 0
        self._owners: dict[int, EpochOwner] = {}  # Oldest first.

    def begin_at(self, epoch: int, plan: str, digest: str, term: int) -> None:
        """Record, at the start, which plan led to an epoch, and the highest term so far."""
        self.term = max(self.term, term)
        self._owners[epoch] = EpochOwner(plan, digest)

    def plan_of(self, epoch: int) -> str:
        """Return the plan that an epoch belongs to, empty if unknown."""
        owner = self._owners.get(epoch)
        return "" if owner is None else owner.plan

    def digest_of(self, epoch: int) -> str:
        """Return the digest of the plan that an epoch belongs to, empty if unknown."""
        owner = self._owners.get(epoch)
        return "" if owner is None else owner.digest

    def is_aborted(self, epoch: int) -> bool:
        """Return True if an epoch belongs to a plan that was aborted."""
        owner = self._owners.get(epoch)
        return owner is not None and owner.is_aborted

    def refusal_of(self, command: Command, epoch: int) -> tuple[Refusal, str]:
        """Note a command's term, and return why it is refused at ``epoch``; NONE if the fence lets it pass."""
        if command.term < self.term:
            return Refusal.TERM, f"has term {command.term}, but the leader has term {self.term}"
        self.term = command.term
        if command.phase in (CommandPhase.REPORT, CommandPhase.INSTALL):
            return Refusal.NONE, ""  # The overlay in force does not depend on plans known here.
        owner, epoch_to = self._owners.get(command.epoch_to), command.epoch_to
        if owner is None:
            if epoch_to > epoch:
                return Refusal.NONE, ""
            return Refusal.EPOCH, f"holds epoch {epoch}; the plan that led to {epoch_to} is unknown here"
        if (owner.plan, owner.digest) != (command.plan, command.digest):
            whose = f"{owner.plan} (digest {owner.digest or 'none'})"
            not_of = f"{command.plan} (digest {command.digest or 'none'})"
            return (
                Refusal.PLAN,
                f"epoch {epoch_to} belongs to {whose}, not to {not_of}: there may be another controller",
            )
        if owner.is_aborted and command.phase is not CommandPhase.ABORT:
            return Refusal.PHASE, f"epoch {epoch_to} was aborted"
        return Refusal.NONE, ""

    def install(self, command: Command, epoch: int) -> None:
        """Let the installed epoch belong to its plan; mark plans prepared between ``epoch`` and it as aborted.

        They were never active here, and their tables are gone; their controller may not know the overlay in force.
        """
        for overtaken in [each for each in self._owners if epoch < each < command.epoch_to]:
            self._owners[overtaken] = replace(self._owners[overtaken], is_aborted=True)
        self.claim(command, (command.epoch_to,))

    def claim(self, command: Command, live_epochs: Collection[int]) -> None:
        """Let the command's epoch belong to its plan.

        Forgets the oldest finished plans beyond PLANS_KEPT_MAX, but none of a live epoch.
        """
        is_aborted = command.phase is CommandPhase.ABORT
        self._owners[command.epoch_to] = EpochOwner(command.plan, command.digest, is_aborted)
        over = [epoch for epoch in self._owners if epoch not in live_epochs and epoch != command.epoch_to]
        for epoch in over[: max(len(over) - PLANS_KEPT_MAX, 0)]:
            del self._owners[epoch]
