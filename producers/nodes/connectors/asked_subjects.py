"""Which subjects a connector asks its broker for: those that others want, or everything if these are too many. Pure."""

from __future__ import annotations

from collections.abc import Collection

ASKED_MAX = 2_000  # Beyond this, one wildcard costs the broker less than as many subscriptions.


class AskedSubjects:
    """The subjects of one connector. It begins with ``everything``, until someone says what is wanted."""

    def __init__(self, everything: str) -> None:
        self._everything = everything
        self.asked: set[str] = {everything}

    def add(self, subjects: Collection[str]) -> list[str]:
        """Note further subjects; return those to ask for."""
        if self._everything in self.asked:
            return []
        new = set(subjects) - self.asked
        if len(self.asked) + len(new) > ASKED_MAX:
            new = {self._everything}
        self.asked |= new
        return sorted(new)

    def replace(self, subjects: Collection[str]) -> tuple[list[str], list[str]]:
        """Note all that is wanted; return what to ask for, and what no longer."""
        target = set(subjects) if len(subjects) <= ASKED_MAX else {self._everything}
        before, self.asked = self.asked, target
        return sorted(target - before), sorted(before - target)
