"""Whom a broker obeys: the leader of the highest term that it has seen, and for each epoch one plan alone.

In: commands. Out: why one is refused, regardless of its request. What a command does that is not refused here belongs
to :mod:`producers.brokers.two_epochs`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from regraft.schemas.command import Command, CommandPhase, Refusal

PLANS_KEPT_MAX = 100  # Plans that are over; what comes for an older one is refused as not known.


@dataclass(frozen=True, slots=True)
class EpochOwner:
    """The plan that an epoch belongs to here; ``is_aborted``: it was given up."""

    plan: str
    digest: str
    is_aborted: bool = False


class CommandFence:
    """The highest term seen, and whose each epoch is: that of the plan under way, of the one in force, of some before.

    An epoch belongs to the first plan that is prepared or aborted in it. Another plan of the same epoch comes from a
    controller that does not know of the first, and is refused in every phase, also when the first is long over.
    """

    def __init__(self) -> None:
        self.term = 0
        self._owners: dict[int, EpochOwner] = {}  # Oldest first.

    def begin_at(self, epoch: int, plan: str, digest: str, term: int) -> None:
        """Know from the start which plan led to an epoch, and the highest term so far."""
        self.term = max(self.term, term)
        self._owners[epoch] = EpochOwner(plan, digest)

    def plan_of(self, epoch: int) -> str:
        """Return the plan that an epoch belongs to, empty when that is not known."""
        owner = self._owners.get(epoch)
        return "" if owner is None else owner.plan

    def digest_of(self, epoch: int) -> str:
        """Return the digest of the plan that an epoch belongs to, empty when that is not known."""
        owner = self._owners.get(epoch)
        return "" if owner is None else owner.digest

    def is_aborted(self, epoch: int) -> bool:
        """Return True if an epoch belongs to a plan that was aborted."""
        owner = self._owners.get(epoch)
        return owner is not None and owner.is_aborted

    def refusal_of(self, command: Command, epoch: int) -> tuple[Refusal, str]:
        """Take in a command's term, and return why it is refused at ``epoch``; NONE when nothing here is against it."""
        if command.term < self.term:
            return Refusal.TERM, f"has term {command.term}, but a leader of term {self.term} commands"
        self.term = command.term
        if command.phase in (CommandPhase.REPORT, CommandPhase.INSTALL):
            return Refusal.NONE, ""  # What is in force is so whichever plan was known here before.
        owner, epoch_to = self._owners.get(command.epoch_to), command.epoch_to
        if owner is None:
            if epoch_to > epoch:
                return Refusal.NONE, ""
            return Refusal.EPOCH, f"holds epoch {epoch}, and which plan led to {epoch_to} is unknown here"
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
        """Let the installed epoch belong to its plan; one that was prepared at ``epoch``, and overtaken, is aborted.

        It was never active here, and what was prepared of it is gone; its controller may not know what is in force.
        """
        for overtaken in self._owners.keys() & range(epoch + 1, command.epoch_to):
            self._owners[overtaken] = replace(self._owners[overtaken], is_aborted=True)
        self.claim(command, (command.epoch_to,))

    def claim(self, command: Command, live_epochs: Collection[int]) -> None:
        """Let the command's epoch belong to its plan; forget the oldest that are over, but of no live epoch."""
        is_aborted = command.phase is CommandPhase.ABORT
        self._owners[command.epoch_to] = EpochOwner(command.plan, command.digest, is_aborted)
        over = [epoch for epoch in self._owners if epoch not in live_epochs and epoch != command.epoch_to]
        for epoch in over[: max(len(over) - PLANS_KEPT_MAX, 0)]:
            del self._owners[epoch]
